"""A run of a stream process, as a user holds it: wait, stop, set, status.

`activation` opens what it is made of (`parts`), `keeper` is the thread that keeps it moving and ends it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.engine.flow.parameters import Change, now, user
from holdfast.engine.flow.sink_runner import rows_refused
from holdfast.engine.observe.consistency import EdgeStatus, consistency
from holdfast.engine.observe.control import ControlServer
from holdfast.engine.observe.status import Status, snapshot, why_degraded, with_backups, with_marks
from holdfast.engine.profile import Profile
from holdfast.engine.protect.shadow import Beside
from holdfast.engine.run.activation import activate
from holdfast.engine.run.answering import answer
from holdfast.engine.run.interrupts import interruptible
from holdfast.engine.run.keeper import Keeper
from holdfast.engine.run.parts import FRAMES_AT_ONCE, RunParts
from holdfast.engine.state_folder import StateFolder, state_folder
from holdfast.engine.unit.spark_errors import explain_start
from holdfast.errors import Finding, HoldfastError, ProcessRefused
from holdfast.graph.model import Graph
from holdfast.graph.rules import check_structure
from holdfast.graph.units import Unit
from holdfast.redaction import hide_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Run", "start_graph"]


def start_graph(
    graph: Graph,
    *,
    state: str | Path | None = None,
    fresh: Sequence[str] = (),
    keep: Sequence[str] = (),
    rate: object = None,
    until_frame: int | None = None,
    spark: SparkSession | None = None,
    on_progress: Callable[[Status], None] | None = None,
    changes: Mapping[int, Mapping[str, Any]] | None = None,
    frames_at_once: int = FRAMES_AT_ONCE,
    profile: Profile | None = None,
    beside: Sequence[Beside] = (),
) -> Run:
    """Check, activate and begin; `changes` are parameter changes planned for frames to come.

    `beside`: protections that are tried on the frames of this run, beside the declared one.
    """
    findings = check_structure(graph)
    if any(not finding.warning for finding in findings):
        raise ProcessRefused(sorted(findings, key=lambda finding: finding.warning))
    parts = RunParts(
        graph,
        state_folder(graph, state),
        rate=rate,
        until=until_frame,
        frames_at_once=frames_at_once,
        profile=profile or Profile(),
        beside=beside,
    )
    parts.findings = findings
    run = Run(parts, on_progress)
    try:
        activate(parts, spark, fresh=tuple(fresh), keep=tuple(keep), planned=changes or {})
    except BaseException as error:
        parts.release()
        if (better := explain_start(graph, error)) is not None:
            raise better from error
        raise
    run.keep()
    return run


class Run:
    """A run in operation. Made by `StreamProcess.start()`; `with process.start() as run:` stops it at the end."""

    def __init__(self, parts: RunParts, on_progress: Callable[[Status], None] | None = None) -> None:
        self.parts, self._board = parts, parts.board
        self._on_progress = on_progress
        self._keeper = Keeper(parts)
        parts.status, parts.tell, parts.listen = self.status, self._tell, self._listen
        if parts.graph.values == "hide":
            hide_values(parts.graph.names)

    def keep(self) -> None:
        """Begin to move: what `activation` opened goes on by itself from here."""
        self._keeper.start()

    @property
    def graph(self) -> Graph:
        return self.parts.graph

    @property
    def folder(self) -> StateFolder:
        return self.parts.folder

    @property
    def profile(self) -> Profile:
        return self.parts.profile

    @property
    def findings(self) -> list[Finding]:
        """What `check` has to say of it: warnings, for errors it would not run."""
        return self.parts.findings

    @property
    def notes(self) -> list[str]:
        return self.parts.notes

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
        return self.parts.done.is_set()

    def stop(self) -> None:
        """Stop after the frame in work; what is sealed is written to the sinks first."""
        with self._board.changed:
            self._board.stopping = True
            self._board.changed.notify_all()
        if self._keeper.ident is not None and threading.current_thread() is not self._keeper:
            self.parts.done.wait()

    def wait(self, frame: int | None = None) -> None:
        """Until the run ends, or until every sink (every unit, where there is none) has the frame."""
        with interruptible(self.ask_to_stop):
            if frame is None:
                while not self.parts.done.wait(timeout=0.2):
                    pass
            else:
                while not self.parts.done.is_set():
                    with self._board.changed:
                        if self._reached() >= frame:
                            return
                        if self._is_out_of_reach(frame):
                            raise self.parts.supervisor.given_up_error()
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
        if self.parts.done.is_set() and self._board.error is not None:
            raise self._board.error

    def ask_to_stop(self) -> None:
        """Stop after the frame in work; returns at once."""
        with self._board.changed:
            self._board.stopping = True
            self.parts.state = "stopping"
            self._board.changed.notify_all()

    def set(self, *, note: str = "", key: str | None = None, who: str | None = None, **values: Any) -> Change:
        """Change parameters from the next frame no unit has begun; returns the (last) change."""
        for name, value in values.items():
            self.parts.config.checked(name, value, key)
        at = now()
        change = None
        with self._board.changed:
            # A frame that is taken again after a crash was made with the values of then.
            begun = [unit.permitted for unit in self._board.units.values()] + [
                unit.decided for unit in self.parts.units
            ]
            begun += [queue.seen for queue in self._board.streams.values() if not queue.from_source]
            frame = max(begun, default=0) + 1
            for name, value in values.items():
                change = self.parts.config.set(name, value, frame=frame, key=key, note=note, who=who or user(), at=at)
        return change

    def status(self) -> Status:
        """What it does now: see Status."""
        ages = {} if self.parts.guards is None else self.parts.guards.ages()  # before the board's lock, never inside it
        with self._board.changed:
            parts = snapshot(
                self._board, {outlet.sink.name: (outlet.rows, outlet.left_out) for outlet in self.parts.outlets}
            )
            if self.parts.guards is not None:
                parts["units"] = with_backups(parts["units"], self.parts.units.host_of, ages)
            now = time.monotonic()
            dropped, apart = (
                self.parts.units.rows_left_out(what) | rows_refused(self.parts.outlets, what)
                for what in ("drop", "quarantine")
            )
            with_marks(parts, markers := self.parts.units.markers(), self.parts.promises.gone)
            promises = self.parts.promises.statuses(dropped, apart, now, markers)
            degraded = why_degraded(self._board, parts["sinks"], promises)
            since = self.parts.supervisor.degraded_since_s
            met = self.parts.supervisor.last_met
            seconds = time.monotonic() - (self.parts.running_since or self.parts.started)
            frame = parts["frame"]
            speed = (frame - self.parts.first_frame) / seconds if self.parts.running_since and seconds > 0 else 0.0
            return Status(
                process=self.graph.name,
                state=self.parts.state,
                frames_per_s=round(max(0.0, speed), 2),
                notes=tuple(self.notes + self.parts.changes.sentences()),
                delays=tuple(self.parts.delays.sentences()),
                seconds=round(seconds, 1),
                error=str(self._board.error) if self._board.error is not None else "",
                params=self.parts.config.at(frame + 1) if self.parts.config is not None else {},
                promises=tuple(promises),
                degraded=degraded,
                degraded_s=round(now - since, 1) if since is not None else 0.0,
                last_error=f"{met.error.code} {met.error.name}" if met is not None else "",
                last_error_at=None if met is None else (self.parts.units[met.unit].unit.outputs[0], met.frame),
                **parts,
            )

    def consistency(self) -> list[EdgeStatus]:
        """Every edge at this moment: exactly or relaxed consistent, and as the loss of both hosts would leave it."""
        return consistency(self._board, self.parts.guards)

    def units(self) -> list[Unit]:
        """The units it is cut into, each with the reason."""
        return [query.unit for query in self.parts.units]

    def _listen(self) -> None:
        if self.parts.control is None:
            self.parts.control = ControlServer(self.folder.socket_note, partial(answer, self))
            self.parts.control.start()

    def _tell(self) -> None:
        status = self.status()
        self.parts.observers.saw(status)
        if self._on_progress is not None:
            self._on_progress(status)
