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

__all__ = ["EdgeStatus", "consistency"]


@dataclass(frozen=True, slots=True)
class EdgeStatus:
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
        found = []
        for stream, queue in board.streams.items():
            maker = makers.get(stream)
            # Who is being put back has what lies in its queue, and its place is not known yet.
            produced = queue.sealed if maker is None or maker.condition != "RUNNING" else maker.processed
            after = min(queue.frames, default=queue.sealed + 1) - 1
            upto = max(queue.frames, default=queue.sealed)
            readers = [
                # What it has acknowledged it has consumed; its position is told at the end of a batch.
                (
                    unit.name,
                    port.feedback_frames,
                    max(0, unit.processed - port.feedback_frames, queue.acked.get(unit.name, 0)),
                )
                for unit in board.units.values()
                for port in unit.inputs
                if port.stream == stream
            ]
            readers += [(f"sink {name}", 0, written) for name, (own, written) in board.sinks.items() if own == stream]
            for consumer, delay, consumed in readers:
                exact = produced == upto and consumed == after
                relaxed = produced <= upto and consumed >= after
                found.append(EdgeStatus(stream, consumer, delay, produced, after, upto, consumed, exact, relaxed))
    return found if guards is None else [_judged(edge, board, guards, makers) for edge in found]


def _judged(edge: EdgeStatus, board: Board, guards: Guards, makers: Mapping[str, UnitState]) -> EdgeStatus:
    maker = makers.get(edge.stream)
    is_sink = edge.consumer.startswith("sink ")
    if (maker is not None and guards.is_lossy(maker.name)) or (not is_sink and guards.is_lossy(edge.consumer)):
        return edge
    stored_in = edge.consumed if is_sink else max(0, guards.stored(edge.consumer) - edge.delay)
    if maker is None:  # a source's log or files can be read again
        return replace(edge, stored_in=stored_in, stored=edge.queue_after <= stored_in)
    stored_out = guards.stored(maker.name)
    held_after = guards.held_after(maker.name, edge.stream, edge.consumer, edge.delay)
    return replace(edge, stored_out=stored_out, stored_in=stored_in, stored=min(stored_out, held_after) <= stored_in)
