"""The queues of a run as they are found: sealed frames on disk, and what each consumer needs of them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engine.board import Board, StreamQueue
from holdfast.engine.crew import Crew
from holdfast.engine.folder import StateFolder
from holdfast.engine.guards import Guards
from holdfast.engine.onhand import frames_on_disk
from holdfast.graph.model import Graph
from holdfast.graph.units import Unit

__all__ = ["restore_queues"]


def restore_queues(
    board: Board, graph: Graph, folder: StateFolder, units: Sequence[Unit], crew: Crew, guards: Guards | None
) -> None:
    for source in graph.sources:
        board.streams[source.name] = StreamQueue(source.name, graph.queue_bytes, True)
    for unit in units:
        committed = crew[unit.name].committed
        for stream in unit.outputs:
            queue = StreamQueue(stream, graph.queue_bytes, False, sealed=committed, keeps_unacked=guards is not None)
            queue.frames = frames_on_disk(folder.stream(stream), committed)
            board.streams[stream] = queue
    for unit in units:
        done = crew[unit.name].committed
        safe = done - 2 if guards is None or guards.is_lossy(unit.name) else min(guards.stored(unit.name), done)
        for port in unit.inputs:
            queue = board.streams[port.stream]
            acked = max(0, safe - port.feedback_frames)
            queue.acked[unit.name] = min(acked, queue.acked.get(unit.name, acked))
            queue.taken[unit.name] = max(0, done - port.feedback_frames)
            if port.feedback_frames and port.stream in unit.outputs:
                queue.exempt.add(unit.name)
