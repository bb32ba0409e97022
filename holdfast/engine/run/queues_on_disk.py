"""The queues of a run as they are found: sealed frames on disk, and what each consumer needs of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from holdfast.engine.flow.ports import known_ports, stand_ports
from holdfast.engine.flow.queues import StreamQueue
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.flow.sink_runner import Outlet
from holdfast.engine.protect.checkpointer import Guards
from holdfast.engine.protect.durable import shown_until
from holdfast.engine.recover import torn
from holdfast.engine.recover.attempts import Crew
from holdfast.engine.recover.frames_on_disk import forget_leftovers, frames_on_disk
from holdfast.engine.run.deployment import sink_behind
from holdfast.engine.state_folder import StateFolder
from holdfast.graph.model import Graph
from holdfast.graph.units import Unit
from holdfast.sinks.ledger import KEPT_FRAMES
from holdfast.sinks.owners import ledger_ahead
from holdfast.sources.files import grown
from holdfast.sources.live import log

__all__ = ["after_reboot", "restore_queues", "stand_sinks", "stand_units", "stood"]


def restore_queues(
    board: Board, graph: Graph, folder: StateFolder, units: Sequence[Unit], crew: Crew, guards: Guards | None
) -> None:
    for source in graph.sources:
        board.streams[source.name] = StreamQueue(source.name, graph.queue_bytes, True)
    for unit in units:
        committed = crew[unit.name].committed
        for stream in unit.outputs:
            queue = StreamQueue(stream, graph.queue_bytes, False, sealed=committed, keeps_unacked=guards is not None)
            queue.frames = frames_on_disk(folder.stream(stream), committed, made_again=guards is not None)
            board.streams[stream] = queue
    for unit in units:
        done = crew[unit.name].committed
        safe = min(done - 2, crew[unit.name].resume_at - 1) if guards is None else guards.safe(unit.name, done)
        for port in unit.inputs:
            queue = board.streams[port.stream]
            acked = max(0, safe - port.feedback_frames)
            queue.acked[unit.name] = min(acked, queue.acked.get(unit.name, acked))
            queue.taken[unit.name] = max(0, done - port.feedback_frames)
            if port.feedback_frames and port.stream in unit.outputs:
                queue.exempt.add(unit.name)


def stand_units(
    board: Board,
    graph: Graph,
    folder: StateFolder,
    units: Sequence[Unit],
    crew: Crew,
    guards: Guards | None,
    outlets: Sequence[Outlet],
    old: dict | None,
    new: dict,
) -> list[str]:
    """Find the queues, and bring every unit to where it can go on; what is to be said of it. `new` is told since when ports read."""
    restore = partial(restore_queues, board, graph, folder, units, crew, guards)
    restore()
    if told := crew.make_missing_again(stood(outlets, (old or {}).get("sinks", {}))):
        restore()
    if crew.place_lossy({outlet.sink.name: outlet.last for outlet in outlets}):
        restore()
    once = {source.name for source in graph.sources if not source.reader.reliable}
    resume_at = {unit.name: crew[unit.name].resume_at for unit in units}
    new["ports"], begun = stand_ports(board, resume_at, old, once=once, has_hosts=guards is not None)
    return [*told, *begun]


def after_reboot(
    folder: StateFolder,
    graph: Graph,
    units: Sequence[Unit],
    begun: Mapping[str, int],
    outlets: Sequence[Outlet],
    old: dict | None,
    changed: Collection[str],
) -> list[str]:
    """If the machine went down since the last run: every unit goes back to what is whole; what is to be said of it."""
    streams = {stream: folder.stream(stream) for unit in units for stream in unit.outputs}
    if not folder.may_be_torn:
        return []
    if folder.has_homes:  # what is not whole there is made again from checkpoints
        for path in streams.values():
            torn.drop_torn_frames(path)
        return []
    folders = {unit.name: folder.unit(unit.name) for unit in units}
    sinks = stood(outlets, (old or {}).get("sinks", {}))
    for outlet in outlets:
        if not outlet.sink.writer.idempotent:  # it cannot tell what it has: all that it may not have been shown
            maker = next(unit.name for unit in units if outlet.sink.stream in unit.outputs)
            sinks.setdefault(outlet.sink.stream, []).append(shown_until(folders[maker], begun[maker]))
    return torn.go_back(
        units, folders, streams, begun, sinks,
        spark=[u.name for u in units if any(graph.operator(name).kind == "stream" for name in u.operators)],
        changed=[unit.name for unit in units if {*changed} & {*unit.operators}],
        since={(unit.name, port): known_ports(old, unit.name)(port) or 1 for unit in units for port in unit.inputs},
        first={source.name: _first_kept(folder.root / "sources" / source.name) for source in graph.sources if not source.reader.reliable},
    )  # fmt: skip


def _first_kept(directory: Path) -> int:
    """Of a source that cannot be read again from outside; it has a log, or a list of places in files."""
    return max(log.first_kept(directory), grown.first_kept(directory))


def stood(outlets: Sequence[Outlet], known: dict[str, int]) -> dict[str, list[int]]:
    """By stream, the last frame of each sink that can tell; one that is new takes what there is."""
    found: dict[str, list[int]] = {}
    for outlet in outlets:
        if outlet.sink.writer.idempotent and outlet.sink.name in known:
            found.setdefault(outlet.sink.stream, []).append(max(outlet.last(), known[outlet.sink.name]))
    return found


def stand_sinks(
    board: Board, outlets: Sequence[Outlet], known: dict[str, int], folder: StateFolder, tell: Callable[[str], None]
) -> dict[str, int]:
    """Find where each sink stands; returns the frame after which each began."""
    begun = {}
    for outlet in outlets:
        sink, queue = outlet.sink, board.streams[outlet.sink.stream]
        # What the ledger has is not needed again; what is no longer in the queue was written before.
        first, last = min(queue.frames, default=queue.sealed + 1), outlet.last()
        is_new = sink.name not in known and not last
        begun[sink.name] = first - 1 if is_new else known.get(sink.name, 0)
        if sink.writer.idempotent and max(last, begun[sink.name]) < first - 1:
            raise sink_behind(sink, last, first, is_known=sink.name in known)
        shown = last if sink.writer.idempotent else shown_until(folder.unit(board.maker_of(sink.stream)), 0)
        queue.seen = max(queue.seen, queue.sealed, shown)
        if last > queue.sealed:
            # A unit went back to a checkpoint, or lost its last commits with the power: frames up to `last` are made
            # again, and the ledger compares each with what is there.
            if last - queue.sealed > KEPT_FRAMES:
                raise ledger_ahead(last, queue.sealed, KEPT_FRAMES, f"sink {sink.name!r}, {sink.line}")
            tell(
                f"sink {sink.name} has frames up to {last:,}, {sink.stream} is made again from {queue.sealed + 1:,} on and compared"
            )
        written = min(max(last, first - 1), queue.sealed)
        board.sinks[sink.name] = (sink.stream, written)
        queue.acked[f"sink {sink.name}"] = written
    board.keep_for_remaking()
    for queue in board.streams.values():  # everybody has found what it needs
        if not queue.from_source:
            forget_leftovers(folder.stream(queue.name), min(queue.frames, default=queue.sealed + 1))
    return begun
