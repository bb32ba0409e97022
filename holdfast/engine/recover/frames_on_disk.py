"""What is at hand: sealed frames that lie on disk, and what a unit's neighbours have and need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.engine.flow.queues import Sealed
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.recover.skip_lost import Neighbours
from holdfast.errors import HoldfastError
from holdfast.frames.files import list_frames, read_frame
from holdfast.protocols.taint import mark_of
from holdfast.protocols.wiring import Wiring

__all__ = ["forget_leftovers", "frames_on_disk", "neighbours"]


def frames_on_disk(folder: Path, upto: int, *, made_again: bool = False) -> dict[int, Sealed]:
    """The frames up to this one that lie here without a gap. `made_again`: a damaged one is a gap, since it can be had."""
    found: dict[int, Sealed] = {}
    for n, _, path in reversed(list_frames(folder)):
        if n == upto - len(found):
            try:
                record, _ = read_frame(path)
            except HoldfastError:
                if made_again:
                    break
                raise
            found[n] = Sealed(
                n, record.boundary_us, record.rows, record.bytes, record.checksum, record.epoch, record.kind, str(path),
                mark=mark_of(record),
            )  # fmt: skip
    return found


def forget_leftovers(folder: Path, first: int) -> None:
    """Frames below the first that anybody needs: their deletion came to nothing."""
    for n, _, path in list_frames(folder):
        if n < first:
            path.unlink(missing_ok=True)


def neighbours(
    board: Board,
    wiring: Wiring,
    outputs: tuple[str, ...],
    written: Callable[[str], int],
    is_dead: Callable[[str], bool],
) -> Neighbours:
    """How far everybody below a unit is, and what is left above it; `written` says so of a sink."""
    with board.changed:
        reached: dict[str, int | None] = {}
        for edge in wiring.outputs:
            queue = board.streams[outputs[edge.port]]
            if edge.outside:
                reached[edge.edge] = written(edge.consumer.removeprefix("sink "))
            elif is_dead(edge.consumer):  # it may have to go back to what it acknowledged
                reached[edge.edge] = queue.acked.get(edge.consumer, 0)
            else:
                reached[edge.edge] = queue.taken.get(edge.consumer, 0)
            if queue.frames:  # its files are there: they are not made again
                reached[edge.edge] = max(reached[edge.edge], queue.sealed)
        first: dict[str, int | None] = {}
        for edge in wiring.inputs:
            queue = board.streams[edge.edge.split(">")[0]]
            gone = not edge.outside and is_dead(edge.producer) and not queue.frames
            first[edge.edge] = None if gone else min(queue.frames, default=queue.sealed + 1)
        return Neighbours(reached, first)
