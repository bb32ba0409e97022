"""From a checked graph to a run in operation: what is opened, in which order, and where everything goes on.

The deployment is written when all of it is open and fits; a start that is refused before has changed nothing
that a later one relies on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.engine.check.types import infer, with_schemas
from holdfast.engine.flow.end_of_input import closing_frames, late_stages
from holdfast.engine.flow.gone import gone_since
from holdfast.engine.flow.parameters import Config, now, user
from holdfast.engine.flow.ports import first_wanted
from holdfast.engine.flow.queues import UnitInputState, delete_frame
from holdfast.engine.flow.scheduler import UnitState
from holdfast.engine.flow.sink_runner import Outlet
from holdfast.engine.flow.source_runner import Intake, first_time_us, look_at
from holdfast.engine.protect.checkpointer import Guards
from holdfast.engine.protect.durable import Durable
from holdfast.engine.protect.shadow import BesideGuards
from holdfast.engine.recover.restore import Recovery
from holdfast.engine.run import deployment as deployed
from holdfast.engine.run.parts import RunParts
from holdfast.engine.run.queues_on_disk import after_reboot, stand_sinks, stand_units
from holdfast.engine.state_folder import forget_unit
from holdfast.engine.unit.ingest_query import SparkFeed
from holdfast.engine.unit.query import UnitQuery
from holdfast.errors import ProcessRefused, invariant
from holdfast.frames.clock import FrameClock
from holdfast.graph.units import Unit, cut
from holdfast.hosts.hosts import Homes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["activate", "add_unit", "begin_units", "waits"]


def activate(
    parts: RunParts,
    spark: SparkSession | None,
    *,
    fresh: tuple[str, ...],
    keep: tuple[str, ...],
    planned: Mapping[int, Mapping[str, Any]],
) -> None:
    """Everything but the thread that keeps it moving, which begins when this returns."""
    board, folder = parts.board, parts.folder
    epoch = folder.acquire(parts.graph.name)
    parts.notes += parts.observers.open(folder.root, parts.status)
    parts.tell()
    units = [unit for unit in cut(parts.graph) if unit.outputs]  # what nobody reads is not run
    old = folder.deployment()
    new = deployed.describe(parts.graph, units, (old or {}).get("t0_us"))
    parts.changes = deployed.compare(old, new, fresh=fresh, keep=keep)
    if old is None:
        for source in parts.graph.sources:
            look_at(source, parts.graph, folder.source(source.name))
    _open_session(parts, spark)
    schemas, findings, sensitive = infer(parts.graph, parts.spark)
    parts.findings += findings
    if any(not finding.warning for finding in findings):
        raise ProcessRefused(sorted(findings, key=lambda finding: finding.warning))
    parts.graph = with_schemas(parts.graph, schemas)
    new["schemas"] = {stream: schema.ddl for stream, schema in schemas.items()}
    new["homes"] = _settle_homes(parts, units, old or {}).paths()
    folder.cut_torn([unit.name for unit in units])
    parts.promises.gone = gone_since(old, units, folder.root)
    new["gone"] = parts.promises.gone.units
    begin_units(parts, units, old, {*fresh} & {*new["stateful"]})
    parts.config = Config(folder.config, parts.graph.params)
    parts.config.plan(planned, who=user(), at=now())
    board.closing_frames = closing_frames(parts.graph, units)
    board.until = parts.until
    board.on_forget(delete_frame)
    board.on_written(lambda sink, last, n: parts.promises.written(sink, last, n, time.monotonic()))
    _open_sinks(parts, schemas, epoch)
    parts.notes += after_reboot(folder, parts.graph, units, parts.begin, parts.outlets, old, parts.changes.names)
    for unit in units:
        add_unit(parts, unit, units, schemas, epoch, sensitive, (old or {}).get("settled", {}))
    parts.notes += stand_units(
        board, parts.graph, folder, units, parts.units, parts.guards, parts.outlets, old, new
    )  # fmt: skip
    if parts.durable is not None:
        parts.durable.begin()
    folder.mark_booted()
    clock = FrameClock(old["t0_us"], parts.graph.frame_ms * 1000) if old and old["t0_us"] is not None else None
    _open_sources(parts, clock, epoch)
    new["sinks"] = stand_sinks(board, parts.outlets, (old or {}).get("sinks", {}), folder, parts.notes.append)
    for name, (stream, written) in board.sinks.items():
        parts.promises.found(name, written, board.streams[stream].sealed, time.monotonic())
    new["t0_us"] = None if board.clock is None else board.clock.t0_us
    new["start"] = {query.unit.name: query.begun for query in parts.units}
    new["settled"] = {query.unit.name: query.settled for query in parts.units}
    folder.deploy(new)
    parts.units.start(parts.spark)
    parts.first_frame = min((u.processed for u in board.units.values()), default=0)
    parts.listen()
    board.held_for_space = parts.disk.held()
    for thread in (*parts.intakes, *parts.outlets, *([parts.durable] if parts.durable is not None else [])):
        thread.start()
    parts.state, parts.running_since = "running", time.monotonic()


def _open_session(parts: RunParts, spark: SparkSession | None) -> None:
    from holdfast.engine.session.session import adopt_session, open_session, tuned_session

    began = time.monotonic()
    if spark is None:
        parts.spark = open_session(
            parts.folder.root, conf=parts.profile.spark_conf(), quiet=parts.graph.values == "hide"
        )
        parts.owns_session = True
        parts.notes.append(f"Spark {parts.spark.sparkContext.master} {time.monotonic() - began:.1f} s")
    else:
        parts.notes += adopt_session(spark)
        parts.spark = tuned_session(spark)


def _settle_homes(parts: RunParts, units: Sequence[Unit], old: dict) -> Homes:
    """Units that have hosts live there; what an earlier run left elsewhere is brought."""
    graph, board = parts.graph, parts.board
    hosted = [(unit.name, unit.host, unit.outputs) for unit in units]
    homes = Homes(parts.folder.root, graph.homes, graph.backup, hosted)
    lost = homes.open()
    homes.bring(old)
    invariant(bool(homes.names) or not parts.beside, "protections beside none need hosts")
    if homes.names:
        parts.folder.live_on(homes)
        parts.guards = Guards(graph, units, board, fail=board.fail)
        parts.guards.followers = [BesideGuards(graph, units, board, each, board.fail) for each in parts.beside]
        parts.recovery = Recovery(parts.folder, homes, units, parts.guards, lambda unit: parts.begin[unit])
        parts.units.protect(homes, parts.guards, parts.recovery)
        parts.notes += [f"host {host} had lost its folder: its units come back from their backups" for host in lost]
    elif graph.durability == "fast":
        parts.notes.append("durability fast: what was not yet on disk is lost with the power")
    else:
        parts.durable = Durable(board, parts.units, board.fail, graph)
    return homes


def begin_units(parts: RunParts, units: Sequence[Unit], old: dict | None, fresh: set[str]) -> None:
    """Decide where state begins. It is in force once the deployment is written, and not before."""
    known = (old or {}).get("start", {})
    done = {}
    for name, start in known.items():
        last = UnitQuery.last_commit(parts.folder.unit(name))
        done[name] = max(last or 0, start)
    parts.begin = deployed.begins(old, units, done, fresh)
    for unit in units:
        if unit.name not in known:
            forget_unit(parts.folder.unit(unit.name))


def add_unit(
    parts: RunParts,
    unit: Unit,
    units: Sequence[Unit],
    schemas: dict,
    epoch: int,
    sensitive: dict[str, bool],
    settled: dict[str, int],
) -> None:
    """Restore the unit where its host was lost, and stand it where its journal says."""
    folder, graph = parts.folder, parts.graph
    make = partial(
        UnitQuery,
        unit=unit,
        graph=graph,
        schemas=schemas,
        folder=folder.unit(unit.name),
        decisions=folder.decisions(unit.name),
        stream_folders={stream: folder.stream(stream) for stream in unit.outputs},
        staging=folder.staging_of(unit.name),
        guards=parts.guards,
        durable=parts.durable,
        board=parts.board,
        config=parts.config,
        may_be_wide=not (sensitive.keys() & unit.operators) and graph.chunks != 1,
        ordered=any(sensitive.get(name) for name in unit.operators),
        begun=parts.begin[unit.name],
        delays=parts.delays,
    )
    if parts.recovery is not None:
        begun = parts.recovery.begin(unit.name, epoch)
        epoch = begun.epoch
        parts.notes += begun.sentences
        parts.units.came_back(unit.name, begun)
    query = make(
        epoch=epoch,
        frames_at_once=parts.frames_at_once,
        settled=settled.get(unit.name, 0),
        is_changed=bool(parts.changes.names & {*unit.operators}),
    )
    done = query.recover()
    inputs = tuple(UnitInputState(port.stream, port.feedback_frames) for port in unit.inputs)
    parts.board.units[unit.name] = UnitState(
        unit.name, inputs, unit.outputs, depth=late_stages(graph, units, unit), permitted=done, processed=done
    )
    parts.units.add(query, make)


def _open_sinks(parts: RunParts, schemas: Mapping[str, Any], epoch: int) -> None:
    for sink in parts.graph.sinks:
        parts.outlets.append(
            Outlet(
                sink,
                parts.graph,
                schemas[sink.stream],
                board=parts.board,
                epoch=epoch,
                spark=parts.spark,
                owner=parts.folder.owner(),
                folder=parts.folder.root,
            )
        )


def _open_sources(parts: RunParts, clock: FrameClock | None, epoch: int) -> None:
    """Every source from the first frame that somebody wants; the frame clock begins with the first element of all."""
    board, graph = parts.board, parts.graph
    for source in graph.sources:
        from_n = first_wanted(board, {query.unit.name: query.resume_at for query in parts.units}, source.name)
        queue = board.streams[source.name]
        queue.sealed = from_n - 1
        queue.acked = {name: max(from_n - 1, n) for name, n in queue.acked.items()}
        parts.intakes.append(
            Intake(
                source,
                graph,
                board=board,
                directory=parts.folder.source(source.name),
                from_n=from_n,
                clock=clock,
                epoch=epoch,
                rate=parts.rate,
                decided=max((query.decided for query in parts.units), default=0),
                delays=parts.delays,
                promises=parts.promises,
                spark_feed=partial(SparkFeed, parts.spark),
            )
        )
    parts.promises.is_paced = any(intake.is_paced for intake in parts.intakes)
    if clock is None:
        clock = FrameClock.starting(first_time_us(parts.intakes, partial(waits, parts)), graph.frame_ms * 1000)
    board.clock = clock
    for intake in parts.intakes:
        intake.set_clock(clock)


def waits(parts: RunParts, sentence: str) -> None:
    parts.listen()  # it may take until somebody speaks: `status` has to answer meanwhile
    parts.notes = [each for each in parts.notes if not each.startswith("waits ")] + [sentence] * bool(sentence)
    parts.tell()
