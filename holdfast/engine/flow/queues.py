"""The queue of one stream: its sealed frames, who has read them, what may be forgotten; and the permit that names them.

No thread of its own: whoever calls holds the scheduler's lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import FrameDiffers, StateRefused

if TYPE_CHECKING:
    from holdfast.protocols.taint import Mark

__all__ = ["Permit", "Sealed", "StreamQueue", "UnitInputState", "delete_frame", "frame_gone", "made_otherwise"]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A frame that can be read: a file of ours, or references into the outside world."""

    n: int
    boundary_us: int
    rows: int
    bytes: int
    checksum: str
    epoch: int
    kind: str = "stable"
    file: str = ""
    references: tuple = ()
    mark: Mark | None = None  # it is TAINTED

    def named(self, stream: str) -> list:
        return [stream, self.n, self.kind, self.epoch, self.checksum]


@dataclass
class StreamQueue:
    """Sealed frames kept until all consumers acknowledged them."""

    name: str
    bytes_bound: int
    from_source: bool
    frames: dict[int, Sealed] = field(default_factory=dict)
    sealed: int = 0  # highest number sealed, without a gap
    seen: int = 0  # highest number anybody may have seen: above `sealed` while a unit that went back makes frames again
    acked: dict[str, int] = field(default_factory=dict)  # consumer -> no restart of mine needs up to this
    taken: dict[str, int] = field(default_factory=dict)  # consumer -> worked off up to this
    held: dict[str, int] = field(
        default_factory=dict
    )  # who else keeps frames -> needs none up to this; holds nobody back
    exempt: set[str] = field(default_factory=set)  # consumers over a feedback edge do not hold the producer
    left_out: set[str] = field(default_factory=set)  # stand still; a source keeps for them what it can read again
    ended: int | None = None  # last number a bounded source gave
    closed_at: int | None = None  # the same, from a run before in which frames after the end were made
    rows: int = 0
    late: int = 0
    keeps_unacked: bool = False  # what is not acknowledged counts towards the bound, not only what is not taken
    known: dict[int, str] = field(default_factory=dict)  # checksums of frames whose files are lost
    durable: int | None = None  # sinks wait until a frame outlasts a loss of power; None: nobody does
    live: Any = None  # the open source, if it has something to say: `remark()`, `away()`, `bad`

    def waiting_bytes(self) -> int:
        """What consumers other than feedback have still to take.

        Not what they have taken and not acknowledged: they acknowledge two frames late,
        and a queue whose bound is below two frames would wait for ever. Where a protection
        acknowledges what it has stored, and asks for a checkpoint in time, that counts.
        """
        if self.keeps_unacked:
            return self.unacked_bytes()
        floor = min(self._positions().values(), default=self.sealed)
        return sum(frame.bytes for n, frame in self.frames.items() if n > floor)

    def unacked_bytes(self) -> int:
        """What must be kept, since a restart of a consumer may need it again."""
        held = [n for c, n in self.acked.items() if c not in self.exempt | self.left_out]
        floor = min(held, default=self.sealed)
        return sum(frame.bytes for n, frame in self.frames.items() if n > floor)

    @property
    def shown(self) -> int:
        """The last frame that may leave the process."""
        return self.sealed if self.durable is None else min(self.sealed, self.durable)

    def taken_floor(self) -> int:
        """What all consumers that move have worked off."""
        return min(
            (max(n, self.taken.get(c, 0)) for c, n in self.acked.items() if c not in self.left_out), default=self.sealed
        )

    def slowest(self) -> str:
        held = self._positions()
        return min(held, key=held.get) if held else ""

    def _positions(self) -> dict[str, int]:
        passed = self.exempt | self.left_out
        return {c: max(n, self.taken.get(c, 0)) for c, n in self.acked.items() if c not in passed}

    def floor(self) -> int:
        """What all consumers that move have acknowledged, and nobody else keeps."""
        return min(
            [*(n for c, n in self.acked.items() if c not in self.left_out), *self.held.values()], default=self.sealed
        )

    def beyond_bound(self) -> int:
        """Up to here nothing is kept for anybody but a consumer: the frames behind it would be more than the bound."""
        if self.from_source:  # they refer to files or to the source's log
            return 0
        size = 0
        for n in range(self.sealed, self.sealed - len(self.frames), -1):
            size += self.frames[n].bytes if n in self.frames else 0
            if size > self.bytes_bound:
                return n
        return 0

    def newest_bytes(self) -> int:
        return self.frames[self.sealed].bytes if self.sealed in self.frames else 0

    def trim(self) -> list[Sealed]:
        """Frames nobody needs again, taken off the queue."""
        floor = self.floor()
        return [self.frames.pop(n) for n in sorted(self.frames) if n <= floor]


@dataclass(frozen=True, slots=True)
class UnitInputState:
    stream: str
    feedback_frames: int = 0
    since: int = 1  # frames before this one are none: over a feedback edge that is newer than they are


@dataclass(frozen=True, slots=True)
class Permit:
    n: int
    boundary_us: int
    since_us: int  # boundary of the frame before: what ended there has been answered
    inputs: tuple[tuple[UnitInputState, Sealed | None], ...]  # None: before the first frame of a feedback edge

    @property
    def rows(self) -> int:
        return sum(sealed.rows for _, sealed in self.inputs if sealed is not None)

    def named(self) -> list[list]:
        return [sealed.named(i.stream) for i, sealed in self.inputs if sealed is not None]

    def made_of(self) -> dict[str, str]:
        """By stream and number, the checksum of each input that operators made; what a source gave never changes."""
        return {
            f"{i.stream} {sealed.n}": sealed.checksum for i, sealed in self.inputs if sealed is not None and sealed.file
        }


def made_otherwise(stream: str, sealed: Sealed, known: str) -> FrameDiffers:
    return FrameDiffers(
        "HF-F001",
        "FrameDiffers",
        f"frame {sealed.n} of {stream!r} was made again with other content.",
        where=sealed.file,
        why=f"its checksum was {known} and is now {sealed.checksum}: an operator gives other rows for the same input",
        effect="the run stops; what consumers and sinks have is what was sealed first",
        do="look for a clock, a random number or an unordered aggregate in the operator: holdfast check",
    )


def frame_gone(stream: str, n: int) -> StateRefused:
    return StateRefused(
        "HF-R016",
        "FramesGone",
        f"frame {n} of stream {stream!r} is needed again, and nobody keeps it any more.",
        why="all its readers had stored what they made of it; since then one of them has lost its host and every copy "
        "of its checkpoints, or hosts or backups that hold them are no longer declared",
        effect="the run stops here; sink tables are as they were",
        do="declare the former hosts and backups, or bring back what is missing, and run again; if it is gone for good, "
        "only a new beginning is left: without the state folder and the sinks' tables. If no host and no copy was lost, "
        "it is our mistake: report it with the state folder's incidents",
    )


def delete_frame(stream: str, sealed: Sealed) -> None:
    """Of a frame that nobody needs again; one that only refers to other files has none."""
    if sealed.file:
        Path(sealed.file).unlink(missing_ok=True)
