"""The queues of a run as they are found: sealed frames on disk, and what each consumer needs of them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engine.board import Board, StreamQueue
from holdfast.engine.crew import Crew
from holdfast.engine.deployment import sink_behind
from holdfast.engine.folder import StateFolder
from holdfast.engine.guards import Guards
from holdfast.engine.onhand import forget_leftovers, frames_on_disk
from holdfast.engine.outlet import Outlet
from holdfast.graph.model import Graph
from holdfast.graph.units import Unit

__all__ = ["restore_queues", "stand_sinks", "stood"]


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
        safe = done - 2 if guards is None else guards.safe(unit.name, done)
        for port in unit.inputs:
            queue = board.streams[port.stream]
            acked = max(0, safe - port.feedback_frames)
            queue.acked[unit.name] = min(acked, queue.acked.get(unit.name, acked))
            queue.taken[unit.name] = max(0, done - port.feedback_frames)
            if port.feedback_frames and port.stream in unit.outputs:
                queue.exempt.add(unit.name)


def stood(outlets: Sequence[Outlet], known: dict[str, int]) -> dict[str, list[int]]:
    """By stream, the last frame of each sink that can tell; one that is new takes what there is."""
    found: dict[str, list[int]] = {}
    for outlet in outlets:
        if outlet.sink.writer.idempotent and outlet.sink.name in known:
            found.setdefault(outlet.sink.stream, []).append(max(outlet.last(), known[outlet.sink.name]))
    return found


def stand_sinks(board: Board, outlets: Sequence[Outlet], known: dict[str, int], folder: StateFolder) -> dict[str, int]:
    """Find where each sink stands; returns the frame after which each began."""
    begun = {}
    for outlet in outlets:
        sink, queue = outlet.sink, board.streams[outlet.sink.stream]
        # What the ledger has is not needed again; what is no longer in the queue was written before.
        first, last = min(queue.frames, default=queue.sealed + 1), outlet.last()
        is_new = sink.name not in known and not last
        begun[sink.name] = first - 1 if is_new else known.get(sink.name, 0)
        if sink.writer.idempotent and max(last, begun[sink.name]) < first - 1:
            raise sink_behind(sink, last, first)
        written = min(max(last, first - 1), queue.sealed)
        board.sinks[sink.name] = (sink.stream, written)
        queue.acked[f"sink {sink.name}"] = written
    for queue in board.streams.values():  # everybody has found what it needs
        if not queue.from_source:
            forget_leftovers(folder.stream(queue.name), min(queue.frames, default=queue.sealed + 1))
    return begun
