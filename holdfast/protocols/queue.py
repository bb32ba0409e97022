"""The queue of one stream: sealed frames kept until every reader acknowledged them.

Promise: a frame leaves only when no restart of any reader can need it again; and the
queue asks for a checkpoint before it is full, so a bounded queue does not stop a
healthy graph.

Why it holds. Acks are cumulative and true for good (see `messages.AckSent`), so the
minimum over the readers of a stream bounds what may go. At half the bound the producer
asks for a checkpoint at once; a bound that cannot hold two checkpoint intervals is
refused by `refuse_small_bound`, else the queue would fill before the checkpoint that
empties it is even taken. Feedback edges do not count towards the bound: their length is
bounded by the delay of the loop, and holding a frame for a reader that waits for that
very frame would stop the loop. Frames that are permitted and not yet made count as
large as the newest one.

A reader is whatever has a position of its own: an edge for the simulator's unit, a unit
or a sink for the board. Frames are read by number; nothing here knows what is in them
but their size and checksum.

Pure: no clock, randomness, thread, file, socket or Spark.
Driven by `engine.flow.queues` on Spark (an edge inside one host) and by `protocols.edges` (an edge with a wire).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, Protocol, TypeVar

from holdfast.protocols.invariants import ProtocolRefused, invariant
from holdfast.protocols.wiring import Frame

__all__ = ["FrameQueue", "MadeOtherwise", "QueuedFrame", "refuse_small_bound"]


class QueuedFrame(Protocol):
    """What a queue must know of a frame."""

    @property
    def size(self) -> int: ...

    @property
    def checksum(self) -> Hashable: ...


ReaderT = TypeVar("ReaderT", bound=Hashable)
FrameT = TypeVar("FrameT", bound=QueuedFrame)


class MadeOtherwise(Exception):
    """A frame whose file was lost was made again, with other content."""

    def __init__(self, number: Frame, known: Hashable, made: Hashable) -> None:
        super().__init__(f"frame {number} had checksum {known} and was made again with {made}")
        self.number, self.known, self.made = number, known, made


def refuse_small_bound(bytes_max: int, every: int, frame_bytes_max: int) -> None:
    """Refuse a bound below two checkpoint intervals of the largest frames."""
    least = 2 * (every + 1) * frame_bytes_max
    if bytes_max < least:
        raise ProtocolRefused(
            f"queue bound {bytes_max} B is below {least} B: two checkpoint intervals of "
            f"{every} + 1 frames of up to {frame_bytes_max} B; the producer would be held "
            "before the checkpoint that frees it; raise the bound or checkpoint more often"
        )


@dataclass
class FrameQueue(Generic[ReaderT, FrameT]):
    name: str
    bytes_bound: int
    _: KW_ONLY
    frames: dict[Frame, FrameT] = field(default_factory=dict)
    sealed: Frame = 0  # highest number sealed, without a gap
    seen: Frame = (
        0  # highest number any reader may have seen: above `sealed` while a unit that went back makes frames again
    )
    acked: dict[ReaderT, Frame] = field(default_factory=dict)  # no restart of the reader needs a frame up to this
    taken: dict[ReaderT, Frame] = field(default_factory=dict)  # worked off up to this; over a wire: sent up to this
    held: dict[Hashable, Frame] = field(
        default_factory=dict
    )  # other holders: they need none up to this, and hold nobody back
    exempt: set[ReaderT] = field(default_factory=set)  # readers over a feedback edge do not hold the producer
    left_out: set[ReaderT] = field(default_factory=set)  # stand still; a source keeps for them what it can read again
    keeps_unacked: bool = False  # what is not acknowledged counts towards the bound, not only what is not taken
    known: dict[Frame, Hashable] = field(default_factory=dict)  # checksums of frames whose files are lost

    # ---- the producer's side -----------------------------------------------------------

    def seal(self, number: Frame, frame: FrameT) -> bool:
        """Keep a frame under the next number, or under one that is made again. Says whether the number is new."""
        invariant(number <= self.sealed + 1, f"frame {number} of {self.name!r} sealed after {self.sealed}")
        known = self.known.pop(number, None)
        if known is not None and known != frame.checksum:
            raise MadeOtherwise(number, known, frame.checksum)
        self.frames[number] = frame
        if number <= self.sealed:
            return False
        self.sealed = number
        self.seen = max(self.seen, number)
        return True

    def lose(self) -> None:
        """Their files are gone: made again, frames must have the checksum they had."""
        self.known |= {number: frame.checksum for number, frame in self.frames.items()}
        self.frames, self.sealed = {}, 0

    def go_back(self, at: Frame, frames: dict[Frame, FrameT], *, same: bool) -> None:
        """The producer goes on after `at`, with the frames that came back with it.

        `same`: it makes what follows again as it was. One that lost its state does not, and no reader has seen that.
        """
        self.frames, self.sealed = frames, at
        self.known = {number: checksum for number, checksum in self.known.items() if same and number > at}

    # ---- the readers' side -------------------------------------------------------------

    def ack(self, reader: ReaderT, number: Frame) -> bool:
        """Take a cumulative ack; an old one may arrive late. Says whether it is news."""
        invariant(reader in self.acked, f"ack of {self.name!r} from unknown reader {reader!r}")
        if number <= self.acked[reader]:
            return False
        # A producer that went back may stand before its reader's ack; what it makes
        # again up to there no reader needs.
        self.acked[reader] = number
        return True

    def resume(self, reader: ReaderT, after: Frame) -> Frame:
        """The reader holds frames up to `after` and is served what follows. Returns how much of the stream is gone."""
        self.taken[reader] = after
        return self.trimmed

    def hold(self, holder: Hashable, number: Frame) -> None:
        """A holder beside the readers keeps the frames after `number`; no producer waits for that."""
        self.held[holder] = max(self.held.get(holder, 0), number)

    # ---- what may go -------------------------------------------------------------------

    def floor(self) -> Frame:
        """What all readers that move have acknowledged, and no holder keeps."""
        acked = [number for reader, number in self.acked.items() if reader not in self.left_out]
        return min([*acked, *self.held.values()], default=self.sealed)

    def trim(self) -> list[FrameT]:
        """Frames that nobody needs again, taken off the queue."""
        floor = self.floor()
        return [self.frames.pop(number) for number in sorted(self.frames) if number <= floor]

    @property
    def trimmed(self) -> Frame:
        """The highest number below all that is kept."""
        return min(self.frames) - 1 if self.frames else self.sealed

    # ---- the bound ---------------------------------------------------------------------

    def waiting_bytes(self) -> int:
        """What readers other than feedback have still to take.

        Not what they have taken and not acknowledged: they acknowledge two frames late,
        and a queue whose bound is below two frames would wait for ever. Where a protection
        acknowledges what it has stored, and asks for a checkpoint in time, that counts.
        """
        if self.keeps_unacked:
            return self.unacked_bytes()
        return self._bytes_after(min(self._positions().values(), default=self.sealed))

    def unacked_bytes(self) -> int:
        """What must be kept, since a restart of a reader may need it again."""
        passed = self.exempt | self.left_out
        held = [number for reader, number in self.acked.items() if reader not in passed]
        return self._bytes_after(min(held, default=self.sealed))

    def _bytes_after(self, floor: Frame) -> int:
        return sum(frame.size for number, frame in self.frames.items() if number > floor)

    def newest_bytes(self) -> int:
        return self.frames[self.sealed].size if self.sealed in self.frames else 0

    def has_room(self, under_way: int) -> bool:
        """For one frame more than those under way, which are taken to be as large as the newest one."""
        size = self.waiting_bytes() + under_way * self.newest_bytes()
        return size < self.bytes_bound or size == 0

    @property
    def is_half_full(self) -> bool:
        """Time to ask for a checkpoint: the other half is for the time it takes."""
        return 2 * self.unacked_bytes() >= self.bytes_bound

    def _positions(self) -> dict[ReaderT, Frame]:
        passed = self.exempt | self.left_out
        return {r: max(number, self.taken.get(r, 0)) for r, number in self.acked.items() if r not in passed}

    def taken_floor(self) -> Frame:
        """What all readers that move have worked off."""
        moving = (max(n, self.taken.get(r, 0)) for r, n in self.acked.items() if r not in self.left_out)
        return min(moving, default=self.sealed)

    def slowest(self) -> ReaderT | None:
        """The reader that holds the producer back."""
        positions = self._positions()
        return min(positions, key=positions.__getitem__) if positions else None

    # ---- a queue that comes from elsewhere -----------------------------------------------

    def refuse_holes(self) -> None:
        """A checkpoint that promises frames it does not hold is found out here and not when they are asked for."""
        low = min(self.sealed, min(self.acked.values(), default=self.sealed))
        missing = [number for number in range(low + 1, self.sealed + 1) if number not in self.frames]
        invariant(not missing, f"queue of {self.name!r} has a hole in ({low}, {self.sealed}]: {_shown(missing)}")


def _shown(numbers: Iterable[Frame]) -> str:
    return ", ".join(map(str, numbers))
