"""Every edge of a run at one moment: who has what, and whether a loss of either end would be made good.

For an edge from x to y: x has produced up to one frame, the queue holds the frames from
one to another, y has consumed up to one. *Exactly* consistent: the queue ends where x
is and begins where y is, nothing is sent twice. *Relaxed*: it ends there or later and
begins there or earlier, so what y lacks is there, and what it has is recognised by its
number. Relaxed consistency at every moment is lossless (docs/protocols/index.md).

`stored` looks at the same edge as a loss of both hosts would leave it: x and y at their
newest checkpoints, and in between what x's checkpoint holds of its queue.

Reads the board and the guards under their locks; changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast.engine.flow.scheduler import Board, UnitState
from holdfast.engine.protect.checkpointer import Guards
from holdfast.graph.edge_ids import Consumer, EdgeId

__all__ = ["EdgeStatus", "consistency"]


@dataclass(frozen=True, slots=True)
class EdgeStatus:
    """An edge at a moment: how far each end is, and whether it is consistent."""

    stream: str
    consumer: str
    delay: int  # frames, on a feedback edge
    produced: int  # by x
    queue_after: int  # the queue holds the frames after this one
    queue_upto: int
    consumed: int  # by y
    exact: bool
    relaxed: bool
    stored_out: int | None = None  # position of x's newest checkpoint; None: it has none to fall back to
    stored_in: int | None = None  # how far y's newest checkpoint has consumed
    stored: bool | None = None  # lossless if both hosts went now; None where a protection promises no such thing


def consistency(board: Board, guards: Guards | None) -> list[EdgeStatus]:
    """One entry per edge between units, and from units to sinks, in the order of the streams."""
    with board.changed:
        makers = {stream: unit for unit in board.units.values() for stream in unit.outputs}
        found: list[tuple[EdgeId, EdgeStatus]] = []
        for stream, queue in board.streams.items():
            maker = makers.get(stream)
            # Who is being put back has what lies in its queue, and its place is not known yet.
            produced = queue.sealed if maker is None or maker.condition != "RUNNING" else maker.processed
            after = min(queue.frames, default=queue.sealed + 1) - 1
            upto = max(queue.frames, default=queue.sealed)
            readers = [
                # What it has acknowledged it has consumed; its position is told at the end of a batch.
                (
                    EdgeId(stream, Consumer.unit(unit.name), port.feedback_frames),
                    max(0, unit.processed - port.feedback_frames, queue.acked.get(Consumer.unit(unit.name), 0)),
                )
                for unit in board.units.values()
                for port in unit.inputs
                if port.stream == stream
            ]
            readers += [
                (EdgeId(stream, Consumer.sink(name)), written)
                for name, (own, written) in board.sinks.items()
                if own == stream
            ]
            for edge, consumed in readers:
                exact = produced == upto and consumed == after
                relaxed = produced <= upto and consumed >= after
                names = (stream, str(edge.consumer), edge.delay)
                found.append((edge, EdgeStatus(*names, produced, after, upto, consumed, exact, relaxed)))
    return [each if guards is None else _judged(edge, each, guards, makers) for edge, each in found]


def _judged(edge: EdgeId, status: EdgeStatus, guards: Guards, makers: Mapping[str, UnitState]) -> EdgeStatus:
    maker, consumer = makers.get(edge.stream), edge.consumer
    if (maker is not None and guards.is_lossy(maker.name)) or (not consumer.is_sink and guards.is_lossy(consumer.name)):
        return status
    stored_in = status.consumed if consumer.is_sink else max(0, guards.stored(consumer.name) - edge.delay)
    if maker is None:  # a source's log or files can be read again
        return replace(status, stored_in=stored_in, stored=status.queue_after <= stored_in)
    stored_out = guards.stored(maker.name)
    held_after = guards.held_after(maker.name, edge)
    return replace(status, stored_out=stored_out, stored_in=stored_in, stored=min(stored_out, held_after) <= stored_in)
