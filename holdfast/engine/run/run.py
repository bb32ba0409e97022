"""A run of a stream process: activation, running, deactivation.

Threads of a run: one per source (intake), one per sink (outlet), one query per
unit, one that gives permits and watches. They meet on the board and nowhere else.
The run ends when a bounded input is worked off with its closing frames, when it is
asked to stop (after the frame in work), or at the first error: then what is sealed
stays sealed, sinks write what they can, and a new run goes on from there.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.engine.check.types import infer, with_schemas
from holdfast.engine.flow.delays import DelayWatch
from holdfast.engine.flow.disks import DiskWatch, full_while_running, is_full
from holdfast.engine.flow.end_of_input import closing_frames, late_stages
from holdfast.engine.flow.gone import gone_since
from holdfast.engine.flow.parameters import Change, Config, now, user
from holdfast.engine.flow.ports import first_wanted
from holdfast.engine.flow.promises import PromiseWatch
from holdfast.engine.flow.queues import UnitInputState, delete_frame
from holdfast.engine.flow.scheduler import Board, Hold, UnitState
from holdfast.engine.flow.sink_runner import Outlet, rows_refused
from holdfast.engine.flow.source_runner import Intake, first_time_us, look_at
from holdfast.engine.observe.alerts import Alerts
from holdfast.engine.observe.consistency import EdgeStatus, consistency
from holdfast.engine.observe.control import ControlServer
from holdfast.engine.observe.observers import Observers
from holdfast.engine.observe.status import Status, snapshot, why_degraded, with_backups, with_marks
from holdfast.engine.profile import Profile
from holdfast.engine.protect.checkpointer import Guards
from holdfast.engine.protect.durable import Durable
from holdfast.engine.protect.shadow import Beside, BesideGuards
from holdfast.engine.recover.attempts import Crew
from holdfast.engine.recover.restore import Recovery
from holdfast.engine.recover.supervisor import Supervisor
from holdfast.engine.run import deployment as deployed
from holdfast.engine.run.answering import answer
from holdfast.engine.run.frame_or_time import FrameOrTime, frame_at
from holdfast.engine.run.interrupts import interruptible
from holdfast.engine.run.queues_on_disk import after_reboot, stand_sinks, stand_units
from holdfast.engine.state_folder import StateFolder, forget_unit, state_folder
from holdfast.engine.unit.ingest_query import SparkFeed
from holdfast.engine.unit.query import UnitQuery
from holdfast.engine.unit.spark_errors import explain_start
from holdfast.errors import Finding, HoldfastError, ProcessRefused, invariant
from holdfast.frames.clock import FrameClock
from holdfast.graph.model import Graph
from holdfast.graph.rules import check_structure
from holdfast.graph.units import Unit, cut
from holdfast.hosts.hosts import Homes
from holdfast.journals.incidents import Incidents
from holdfast.redaction import hide_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Run", "start_graph"]

_PROGRESS_S = 0.5
# Frames a batch may hold when a unit of frame-aware operators is behind: amortises Spark's cost
# per batch, and holds a parameter change back by a fraction of a second.
FRAMES_AT_ONCE = 64


def start_graph(
    graph: Graph,
    *,
    state: str | Path | None = None,
    fresh: Sequence[str] = (),
    keep: Sequence[str] = (),
    rate: object = None,
    until_frame: FrameOrTime | None = None,
    spark: SparkSession | None = None,
    on_progress: Callable[[Status], None] | None = None,
    changes: Mapping[int, Mapping[str, Any]] | None = None,
    frames_at_once: int = FRAMES_AT_ONCE,
    profile: Profile | None = None,
    beside: Sequence[Beside] = (),
    accept_versions: bool = False,
) -> Run:
    """Check, activate and begin; `changes` are parameter changes planned for frames to come.

    `beside`: protections that are tried on the frames of this run, beside the declared one.
    """
    findings = check_structure(graph)
    if any(not finding.warning for finding in findings):
        raise ProcessRefused(sorted(findings, key=lambda finding: finding.warning))
    run = Run(graph, state_folder(graph, state), rate=rate, until=until_frame, on_progress=on_progress,
              frames_at_once=frames_at_once, profile=profile or Profile(), beside=beside)  # fmt: skip
    run.findings = findings
    try:
        run.activate(
            spark, fresh=tuple(fresh), keep=tuple(keep), planned=changes or {}, accept_versions=accept_versions
        )
    except BaseException as error:
        run.release()
        if (better := explain_start(graph, error)) is not None:
            raise better from error
        raise
    return run


class Run:
    """A run of a stream process, as `process.start()` gives it; `with` stops it at the end."""

    def __init__(
        self,
        graph: Graph,
        root: Path,
        *,
        rate: object = None,
        until: FrameOrTime | None = None,
        on_progress: Callable[[Status], None] | None = None,
        frames_at_once: int = FRAMES_AT_ONCE,
        profile: Profile = Profile(),
        beside: Sequence[Beside] = (),
    ) -> None:
        self._frames_at_once, self.profile, self._observers = frames_at_once, profile, Observers(profile)
        self._beside = beside
        if graph.values == "hide":
            hide_values(graph.names)
        self.graph = graph
        self.folder = StateFolder(root.absolute())
        self.findings: list[Finding] = []
        self.notes: list[str] = list(profile.notes)
        self.changes = deployed.Changes()
        self._rate, self._until = rate, until
        self._on_progress = on_progress
        self._state = "activating"
        self._started = time.monotonic()
        self._running_since = self._told = 0.0
        self._first_frame = 0
        self._intakes: list[Intake] = []
        self._outlets: list[Outlet] = []
        self._control: ControlServer | None = None
        self._spark: SparkSession | None = None
        self._own_session = False
        self._done = threading.Event()
        self._keeper: threading.Thread | None = None
        self._board = Board(closing_frames=1)
        self._delays = DelayWatch(graph)
        self._promises = PromiseWatch(graph)
        self._alerts = Alerts(graph.on_degraded)
        self._supervisor = Supervisor(self._board, graph.supervision, now=time.monotonic, chance=random.random)
        self._units = Crew(graph, self.folder, self._board, self._supervisor)
        self._disk = DiskWatch(self.folder.root, [Path(host.folder) for host in graph.homes if host.folder])
        self._guards: Guards | None = None
        self._durable: Durable | None = None
        self._recovery: Recovery | None = None

    # ---- activation ----

    def activate(
        self,
        spark: SparkSession | None,
        *,
        fresh: tuple[str, ...],
        keep: tuple[str, ...],
        planned: Mapping[int, Mapping[str, Any]],
        accept_versions: bool = False,
    ) -> None:
        epoch = self.folder.acquire(self.graph.name)
        self.notes += self._observers.open(self.folder.root, self.status)
        self._tell()
        units = [unit for unit in cut(self.graph) if unit.outputs]  # what nobody reads is not run
        old = self.folder.deployment()
        new = deployed.describe(self.graph, units, (old or {}).get("t0_us"))
        self.changes = deployed.compare(old, new, fresh=fresh, keep=keep, accept_versions=accept_versions)
        if old is None:
            for source in self.graph.sources:
                look_at(source, self.graph, self.folder.source(source.name))
        self._session(spark)
        schemas, findings, sensitive = infer(self.graph, self._spark)
        self.findings += findings
        if any(not finding.warning for finding in findings):
            raise ProcessRefused(sorted(findings, key=lambda finding: finding.warning))
        self.graph = with_schemas(self.graph, schemas)
        new["schemas"] = {stream: schema.ddl for stream, schema in schemas.items()}
        new["homes"] = self._settle_homes(units, old or {}).paths()
        self.folder.cut_torn([unit.name for unit in units])
        self._promises.gone = gone_since(old, units, self.folder.root)
        new["gone"] = self._promises.gone.units
        self._begin_units(units, old, {*fresh} & {*new["stateful"]})
        self._config = Config(self.folder.config, self.graph.params)
        self._config.plan(planned, who=user(), at=now())
        self._board.closing_frames = closing_frames(self.graph, units)
        self._board.until = self._until if isinstance(self._until, int) else None
        self._board.on_forget(delete_frame)
        self._board.on_written(lambda sink, last, n: self._promises.written(sink, last, n, time.monotonic()))
        opened = {
            "board": self._board,
            "epoch": epoch,
            "spark": self._spark,
            "owner": self.folder.owner(),
            "folder": self.folder.root,
        }
        for sink in self.graph.sinks:
            self._outlets.append(Outlet(sink, self.graph, schemas[sink.stream], **opened))
        known = (old or {}).get("sinks", {})
        self.notes += after_reboot(self.folder, self.graph, units, self._begin, self._outlets, old, self.changes.names)
        for unit in units:
            self._add_unit(unit, units, schemas, epoch, sensitive, (old or {}).get("settled", {}))
        self.notes += stand_units(
            self._board, self.graph, self.folder, units, self._units, self._guards, self._outlets, old, new
        )
        if self._durable is not None:
            self._durable.begin()
        self.folder.mark_booted()
        clock = FrameClock(old["t0_us"], self.graph.frame_ms * 1000) if old and old["t0_us"] is not None else None
        self._open_sources(clock, epoch)
        if self._board.until is None and self._until is not None:
            self._board.until = frame_at(self._until, self._board.clock)  # a time: it took the clock to know the frame
        new["sinks"] = stand_sinks(self._board, self._outlets, known, self.folder, self.notes.append)
        for name, (stream, written) in self._board.sinks.items():
            self._promises.found(name, written, self._board.streams[stream].sealed, time.monotonic())
        new["t0_us"] = None if self._board.clock is None else self._board.clock.t0_us
        new["start"] = {query.unit.name: query.begun for query in self._units}
        new["settled"] = {query.unit.name: query.settled for query in self._units}
        self.folder.deploy(new)
        self._units.start(self._spark)
        self._first_frame = min((u.processed for u in self._board.units.values()), default=0)
        self._listen()
        self._board.held_for_space = self._disk.held()
        for thread in (*self._intakes, *self._outlets, *([self._durable] if self._durable is not None else [])):
            thread.start()
        self._state, self._running_since = "running", time.monotonic()
        self._keeper = threading.Thread(target=self._keep, name="permits", daemon=True)
        self._keeper.start()

    def _session(self, spark: SparkSession | None) -> None:
        from holdfast.engine.session.session import adopt_session, open_session, tuned_session

        began = time.monotonic()
        if spark is None:
            self._spark = open_session(
                self.folder.root, conf=self.profile.spark_conf(), quiet=self.graph.values == "hide"
            )
            self._own_session = True
            self.notes.append(f"Spark {self._spark.sparkContext.master} {time.monotonic() - began:.1f} s")
        else:
            self.notes += adopt_session(spark)
            self._spark = tuned_session(spark)

    def _settle_homes(self, units: Sequence[Unit], old: dict) -> Homes:
        """Units that have hosts live there; what an earlier run left elsewhere is brought."""
        homes = Homes(
            self.folder.root,
            self.graph.homes,
            self.graph.backup,
            [(unit.name, unit.host, unit.outputs) for unit in units],
        )
        lost = homes.open()
        homes.bring(old)
        invariant(bool(homes.names) or not self._beside, "protections beside none need hosts")
        if homes.names:
            self.folder.live_on(homes)
            self._guards = Guards(self.graph, units, self._board, fail=self._board.fail)
            self._guards.followers = [
                BesideGuards(self.graph, units, self._board, each, self._board.fail) for each in self._beside
            ]
            self._recovery = Recovery(self.folder, homes, units, self._guards, lambda unit: self._begin[unit])
            self._units.protect(homes, self._guards, self._recovery)
            self.notes += [f"host {host} had lost its folder: its units come back from their backups" for host in lost]
        elif self.graph.durability == "fast":
            self.notes.append("durability fast: what was not yet on disk is lost with the power")
        else:
            self._durable = Durable(self._board, self._units, self._board.fail, self.graph)
        return homes

    def _begin_units(self, units: Sequence[Unit], old: dict | None, fresh: set[str]) -> None:
        """Decide where state begins. It is in force once the deployment is written, and not before."""
        known = (old or {}).get("start", {})
        done = {}
        for name, start in known.items():
            last = UnitQuery.last_commit(self.folder.unit(name))
            done[name] = max(last or 0, start)
        self._begin = deployed.begins(old, units, done, fresh)
        for unit in units:
            if unit.name not in known:
                forget_unit(self.folder.unit(unit.name))

    def _add_unit(
        self,
        unit: Unit,
        units: Sequence[Unit],
        schemas: dict,
        epoch: int,
        sensitive: dict[str, bool],
        settled: dict[str, int],
    ) -> None:
        make = partial(
            UnitQuery,
            unit=unit,
            graph=self.graph,
            schemas=schemas,
            folder=self.folder.unit(unit.name),
            decisions=self.folder.decisions(unit.name),
            stream_folders={stream: self.folder.stream(stream) for stream in unit.outputs},
            staging=self.folder.staging_of(unit.name),
            guards=self._guards,
            durable=self._durable,
            board=self._board,
            config=self._config,
            may_be_wide=not (sensitive.keys() & unit.operators) and self.graph.chunks != 1,
            ordered=any(sensitive.get(name) for name in unit.operators),
            begun=self._begin[unit.name],
            delays=self._delays,
        )
        if self._recovery is not None:
            begun = self._recovery.begin(unit.name, epoch)
            epoch = begun.epoch
            self.notes += begun.sentences
            self._units.came_back(unit.name, begun)
        query = make(
            epoch=epoch,
            frames_at_once=self._frames_at_once,
            settled=settled.get(unit.name, 0),
            is_changed=bool(self.changes.names & {*unit.operators}),
        )
        done = query.recover()
        inputs = tuple(UnitInputState(port.stream, port.feedback_frames) for port in unit.inputs)
        self._board.units[unit.name] = UnitState(
            unit.name, inputs, unit.outputs, depth=late_stages(self.graph, units, unit), permitted=done, processed=done
        )
        self._units.add(query, make)

    def _open_sources(self, clock: FrameClock | None, epoch: int) -> None:
        for source in self.graph.sources:
            from_n = first_wanted(self._board, {query.unit.name: query.resume_at for query in self._units}, source.name)
            queue = self._board.streams[source.name]
            queue.sealed = from_n - 1
            queue.acked = {name: max(from_n - 1, n) for name, n in queue.acked.items()}
            self._intakes.append(
                Intake(
                    source,
                    self.graph,
                    board=self._board,
                    directory=self.folder.source(source.name),
                    from_n=from_n,
                    clock=clock,
                    epoch=epoch,
                    rate=self._rate,
                    decided=max((query.decided for query in self._units), default=0),
                    delays=self._delays,
                    promises=self._promises,
                    spark_feed=partial(SparkFeed, self._spark),
                )
            )
        self._promises.is_paced = any(intake.is_paced for intake in self._intakes)
        if clock is None:
            clock = FrameClock.starting(first_time_us(self._intakes, self._note), self.graph.frame_ms * 1000)
        self._board.clock = clock
        for intake in self._intakes:
            intake.set_clock(clock)

    # ---- running ----

    def _keep(self) -> None:
        """Give permits as soon as they can be given; watch queries, disk and delays."""
        try:
            while not self._done.is_set():
                try:
                    if self._step():
                        break
                except OSError as error:
                    if not is_full(error):
                        raise
                    self._disk.met(error)  # what it was about to write is written when there is room
                    self._board.held_for_space = self._disk.held()
                    self._done.wait(0.2)
            if self._board.failed_source is not None:
                raise self._board.failed_source
            if (given_up := self._supervisor.given_up_error()) is not None:
                raise given_up
        except BaseException as error:
            self._board.fail(error)
        finally:
            try:
                self._shut_down()
            except BaseException as error:
                if is_full(error) and not isinstance(error, HoldfastError):
                    error = full_while_running(
                        "the end of the run", error, "what is sealed stays sealed; the next run goes on"
                    )
                self._board.fail(error)
                self._state = "failed"
                self.release()
            finally:
                self._done.set()

    def _step(self) -> bool:
        """Whether the run is over."""
        with self._board.changed:
            moved = self._give_permits()
            finished = self._finished()
            if not moved and not finished:
                self._board.changed.wait(timeout=0.2)
        self._units.look()
        if time.monotonic() - self._told > _PROGRESS_S:
            self._told = time.monotonic()
            self._board.held_for_space = self._disk.held()
            with self._board.changed:
                written = {sink: n for sink, (_, n) in self._board.sinks.items()}
                self._promises.look(written, time.monotonic())
            self._alert()
            self._tell()
        return finished

    def _give_permits(self) -> bool:
        moved = False
        for name, unit in self._board.units.items():
            while True:
                verdict = self._board.next_permit(unit)
                if isinstance(verdict, Hold):
                    unit.held = verdict.why
                    break
                self._delays.permitted(self._units[name].unit, verdict.n, time.monotonic())
                self._units[name].permit(verdict)
                unit.permitted = verdict.n
                unit.held = ""
                moved = True
        return moved

    def _finished(self) -> bool:
        if self._board.error is not None:
            return True
        units = self._board.units.values()
        if self._board.stopping:  # a unit that is down has nothing in work; the next run takes it up
            idle = all(unit.condition != "RUNNING" or unit.permitted <= unit.processed for unit in units)
        else:
            # With a live source the others go on, whatever is given up; once none can, the run is over.
            idle = all(self._board.is_idle(unit) for unit in units)
        return idle and self._board.sinks_are_done()

    def _shut_down(self) -> None:
        with self._board.changed:
            self._state = "stopping"
            self._board.stopping = True
            self._board.changed.notify_all()
        self._tell()
        self.notes += self._board.left_waiting()
        for intake in self._intakes:
            intake.halt()
        self._units.stop()
        for kept in (self._guards, self._durable):
            if kept is not None:
                kept.close()
        for outlet in self._outlets:
            outlet.halt()
        for thread in (*self._intakes, *self._outlets):
            thread.join(timeout=30)
        with self._board.changed:
            last = self._board.last_data_frame
            end = None if last is None else last + self._board.closing_frames  # whatever `until` says
            whole = end is not None and all(u.processed >= end for u in self._board.units.values())
        if self._board.error is not None:
            self._state = "failed"
            Incidents(self.folder.root, epoch=self.folder.epoch).note("error", error=self._board.error)
        else:
            self._state = "finished" if whole else "stopped"
        self._tell()
        self.release()
        self._alerts.close()

    def release(self) -> None:
        """Give back session, socket and lock. Safe to call twice."""
        self._observers.close()
        if self._control is not None:
            self._control.close()
            self._control = None
        self._units.stop()  # those that had begun when the activation failed
        if self._guards is not None:
            self._guards.close()
        for intake in self._intakes:
            intake.stop()
        for outlet in self._outlets:
            outlet.give_back()
        if self._own_session:
            from holdfast.engine.session.session import close_session

            close_session(self._spark)
            self._own_session = False
        self.folder.release()

    # ---- what a user does with it ----

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.stop()
            self._raise()
        else:
            with contextlib.suppress(HoldfastError):
                self.stop()

    @property
    def finished(self) -> bool:
        """Whether it has ended, however it ended."""
        return self._done.is_set()

    def stop(self) -> None:
        """Stop after the frame in work; what is sealed is written to the sinks first."""
        with self._board.changed:
            self._board.stopping = True
            self._board.changed.notify_all()
        if self._keeper is not None and threading.current_thread() is not self._keeper:
            self._done.wait()

    def wait(self, frame: int | None = None) -> None:
        """Until the run ends, or until every sink (every unit, where there is none) has the frame."""
        with interruptible(self.ask_to_stop):
            if frame is None:
                while not self._done.wait(timeout=0.2):
                    pass
            else:
                while not self._done.is_set():
                    with self._board.changed:
                        if self._reached() >= frame:
                            return
                        if self._is_out_of_reach(frame):
                            raise self._supervisor.given_up_error()
                        self._board.changed.wait(timeout=0.2)
        self._raise()

    def _reached(self) -> int:
        written = [n for _, n in self._board.sinks.values()]
        return min(written or [unit.processed for unit in self._board.units.values()], default=0)

    def _is_out_of_reach(self, frame: int) -> bool:
        """What `wait` waits for cannot come in this run: a unit above was given up."""
        dry = {stream for name in self._board.left_out for stream in self._board.units[name].outputs}
        awaited = [stream for stream, _ in self._board.sinks.values()] or list(dry)
        return any(stream in dry and self._board.streams[stream].sealed < frame for stream in awaited)

    def _raise(self) -> None:
        if self._done.is_set() and self._board.error is not None:
            raise self._board.error

    def ask_to_stop(self) -> None:
        """Stop after the frame in work; returns at once."""
        with self._board.changed:
            self._board.stopping = True
            self._state = "stopping"
            self._board.changed.notify_all()

    def set(self, *, note: str = "", key: str | None = None, who: str | None = None, **values: Any) -> Change:
        """Change parameters from the next frame no unit has begun; returns the (last) change."""
        for name, value in values.items():
            self._config.checked(name, value, key)
        at = now()
        change = None
        with self._board.changed:
            # A frame that is taken again after a crash was made with the values of then.
            begun = [unit.permitted for unit in self._board.units.values()] + [unit.decided for unit in self._units]
            begun += [queue.seen for queue in self._board.streams.values() if not queue.from_source]
            frame = max(begun, default=0) + 1
            for name, value in values.items():
                change = self._config.set(name, value, frame=frame, key=key, note=note, who=who or user(), at=at)
        return change

    def status(self) -> Status:
        """What it does now: see Status."""
        ages = {} if self._guards is None else self._guards.ages()  # before the board's lock, never inside it
        with self._board.changed:
            parts = snapshot(
                self._board, {outlet.sink.name: (outlet.rows, outlet.left_out) for outlet in self._outlets}
            )
            if self._guards is not None:
                parts["units"] = with_backups(parts["units"], self._units.host_of, ages)
            now = time.monotonic()
            dropped, apart = (
                self._units.rows_left_out(what) | rows_refused(self._outlets, what) for what in ("drop", "quarantine")
            )
            with_marks(parts, markers := self._units.markers(), self._promises.gone)
            promises = self._promises.statuses(dropped, apart, now, markers)
            degraded = why_degraded(self._board, parts["sinks"], promises)
            since = self._supervisor.degraded_since_s
            met = self._supervisor.last_met
            seconds = time.monotonic() - (self._running_since or self._started)
            frame = parts["frame"]
            speed = (frame - self._first_frame) / seconds if self._running_since and seconds > 0 else 0.0
            return Status(
                process=self.graph.name,
                state=self._state,
                frames_per_s=round(max(0.0, speed), 2),
                notes=tuple(self.notes + self.changes.sentences()),
                delays=tuple(self._delays.sentences()),
                seconds=round(seconds, 1),
                error=str(self._board.error) if self._board.error is not None else "",
                params=self._config.at(frame + 1) if hasattr(self, "_config") else {},
                promises=tuple(promises),
                degraded=degraded,
                degraded_s=round(now - since, 1) if since is not None else 0.0,
                last_error=f"{met.error.code} {met.error.name}" if met is not None else "",
                last_error_at=None if met is None else (self._units[met.unit].unit.outputs[0], met.frame),
                **parts,
            )

    def _alert(self) -> None:
        status = self.status()
        self._alerts.state(status.degraded, {"process": status.process, "state": status.state, "frame": status.frame})

    def consistency(self) -> list[EdgeStatus]:
        """Every edge at this moment: exactly or relaxed consistent, and as the loss of both hosts would leave it."""
        return consistency(self._board, self._guards)

    def units(self) -> list[Unit]:
        """The units it is cut into, each with the reason."""
        return [query.unit for query in self._units]

    def _listen(self) -> None:
        if self._control is None:
            self._control = ControlServer(self.folder.socket_note, partial(answer, self))
            self._control.start()

    def _note(self, sentence: str) -> None:
        self._listen()  # it may take until somebody speaks: `status` has to answer meanwhile
        self.notes = [each for each in self.notes if not each.startswith("waits ")] + [sentence] * bool(sentence)
        self._tell()

    def _tell(self) -> None:
        status = self.status()
        self._observers.saw(status)
        if self._on_progress is not None:
            self._on_progress(status)
