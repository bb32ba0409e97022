"""Cut a sequence of elements into frames by element time.

An element belongs to the frame that covers its time, unless that frame is
closed: then it is late. Frame n is closed once the newest element seen is at
boundary(n) + grace or beyond, or once `close` says so. What becomes of element
i depends on the elements before i and on nothing else, so the same sequence is
cut the same way however it is handed over, today or at a replay.

A null is no time, nor is anything before year 1 or from END_US on (databases
write 9999-12-31 for "unknown"): such elements are late and do not move the
clock. Taken at its word, one of them would close every frame there is.

Pure: no wall clock; who closes by a monotonic clock logs it and calls `close`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SourceError, invariant
from holdfast.frames.clock import FrameClock
from holdfast.frames.identity import END_US, FIRST_N
from holdfast.frames.layout import one_chunk

__all__ = ["LATE", "NULL_US", "Cut", "Cutter", "Late", "is_time", "times_of"]

Late = Literal["admit", "drop", "quarantine", "fail"]
LATE: tuple[str, ...] = ("admit", "drop", "quarantine", "fail")

NULL_US = int(np.iinfo(np.int64).min)  # also what NaT is inside numpy
_START_US = -62_135_596_800_000_000  # 0001-01-01, the first day Spark can write


@dataclass(frozen=True, slots=True)
class Cut:
    """What became of the elements of one feed, in their order."""

    frames: np.ndarray  # int64: the frame an element falls into; if late, the lowest then open
    late: np.ndarray  # bool
    admits: bool  # late elements stay in the stream
    closed: int  # the highest frame closed after this feed

    @property
    def kept(self) -> np.ndarray:
        """Which elements are in the stream; the others are dropped or quarantined."""
        return np.ones(len(self.late), dtype=bool) if self.admits else ~self.late

    def runs(self, mask: np.ndarray | None = None) -> list[tuple[int, int, int]]:
        """(frame, start, stop) of neighbours in one frame, in order of arrival.

        `mask` picks elements; by default those that are kept.
        """
        picked = self.kept if mask is None else mask
        at = np.flatnonzero(picked)
        if len(at) == 0:
            return []
        frames = self.frames[at]
        breaks = np.flatnonzero((np.diff(at) != 1) | (np.diff(frames) != 0)) + 1
        firsts = np.concatenate(([0], breaks))
        lasts = np.concatenate((breaks, [len(at)])) - 1
        found = zip(frames[firsts].tolist(), at[firsts].tolist(), at[lasts].tolist(), strict=True)
        return [(n, start, last + 1) for n, start, last in found]


class Cutter:
    """Cuts one input; remembers three numbers, whatever the length of the input."""

    def __init__(self, clock: FrameClock, grace_us: int, late: Late = "admit", first_open: int = FIRST_N) -> None:
        invariant(grace_us >= 0, f"a grace of {grace_us} us closes frames before their end")
        invariant(late in LATE, f"late={late!r} is none of {', '.join(LATE)}")
        invariant(first_open >= FIRST_N, f"frame {first_open} cannot be open: numbers start at 1")
        self.clock, self.grace_us, self.late = clock, grace_us, late
        self._newest_us = NULL_US
        self._floor = first_open - 1  # closed from outside, up to here
        self._highest = 0  # the highest frame any element fell into
        self._seen = 0
        self._finished = False

    @property
    def closed(self) -> int:
        """The highest frame that is closed; the next one is the lowest open."""
        return int(self._closed_at(np.array([self._newest_us]))[0])

    @property
    def newest_us(self) -> int | None:
        return None if self._newest_us == NULL_US else self._newest_us

    @property
    def seen(self) -> int:
        """How many elements were fed."""
        return self._seen

    def feed(self, times_us: np.ndarray) -> Cut:
        """Take the next elements, in order of arrival: epoch microseconds, NULL_US for null.

        With late="fail" the first late element raises, and none of this feed is taken.
        """
        invariant(not self._finished, "an element came after the end of its input")
        times = _as_us(times_us)
        usable = is_time(times)
        newest = np.empty(len(times) + 1, dtype=np.int64)  # [i]: newest before element i
        newest[0] = self._newest_us
        np.maximum.accumulate(np.where(usable, times, NULL_US), out=newest[1:])
        np.maximum(newest, self._newest_us, out=newest)

        lowest_open = self._closed_at(newest[:-1]) + 1
        # An element without a time has no frame of its own and is late wherever it comes.
        own = np.where(usable, self.clock.frame_of(np.where(usable, times, self.clock.t0_us)), 0)
        late = own < lowest_open
        if self.late == "fail" and late.any():
            raise self._too_late(times, late, lowest_open)

        frames = np.maximum(own, lowest_open)
        self._newest_us = int(newest[-1])
        self._highest = max(self._highest, int(frames.max(initial=0)))
        self._seen += len(times)
        return Cut(frames, late, self.late == "admit", self.closed)

    def close(self, n: int) -> None:
        """Close all frames up to n from outside: a silent input's clock has run out."""
        self._floor = max(self._floor, n)

    def finish(self) -> int:
        """The input has ended: all its frames are closed. Returns the last one's number."""
        self._finished = True
        self._floor = max(self._highest, self.closed)
        return self._floor

    def state(self) -> dict[str, Any]:
        """All that is remembered, as JSON can hold it."""
        return {
            "clock": self.clock.to_json(),
            "grace_us": self.grace_us,
            "late": self.late,
            "newest_us": self.newest_us,
            "floor": self._floor,
            "highest": self._highest,
            "seen": self._seen,
            "finished": self._finished,
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Cutter:
        clock = FrameClock.from_json(state["clock"])
        cutter = cls(clock, state["grace_us"], state["late"], state["floor"] + 1)
        cutter.go_back(state)
        return cutter

    def go_back(self, state: dict[str, Any]) -> None:
        """To where it was when it gave this state; what was fed since may be fed anew, or less of it."""
        self._newest_us = NULL_US if state["newest_us"] is None else state["newest_us"]
        self._floor, self._highest, self._seen = state["floor"], state["highest"], state["seen"]
        self._finished = state["finished"]

    def _closed_at(self, newest_us: np.ndarray) -> np.ndarray:
        """The highest frame closed when these were the newest elements."""
        known = newest_us != NULL_US
        # boundary(n) + grace <= newest, solved for n.
        over = np.where(known, newest_us, self.clock.t0_us) - self.grace_us - self.clock.t0_us
        return np.maximum(np.where(known, over // self.clock.frame_us, self._floor), self._floor)

    def _too_late(self, times: np.ndarray, late: np.ndarray, lowest_open: np.ndarray) -> SourceError:
        at = int(np.argmax(late))
        n = int(lowest_open[at])
        time, start = _shown(int(times[at])), _shown(self.clock.start_us(n))
        return SourceError(
            "HF-F004",
            "ElementLate",
            f"element {self._seen + at} has the time {time}, but frames up to {n - 1} are closed.",
            why=f"frame {n}, the lowest open one, starts at {start}; late='fail' was declared",
            effect="the input stops before this element; frames closed before it are as they were",
            do="declare a longer grace=, or late='admit', 'drop' or 'quarantine'",
        )


def is_time(times_us: np.ndarray) -> np.ndarray:
    """Which are times that have a frame."""
    return (times_us >= _START_US) & (times_us < END_US)


def times_of(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """An Arrow timestamp column as int64 microseconds, NULL_US where it is null."""
    options = pc.CastOptions(target_type=pa.timestamp("us", tz=column.type.tz), allow_time_truncate=True)
    array = one_chunk(pc.cast(column, options=options)).cast(pa.int64())
    return pc.fill_null(array, NULL_US).to_numpy()


def _as_us(times_us: np.ndarray) -> np.ndarray:
    times = np.asarray(times_us)
    if times.dtype.kind == "M":
        return times.astype("datetime64[us]").view(np.int64)
    return times.astype(np.int64, copy=False)


def _shown(us: int) -> str:
    if not _START_US <= us < END_US:
        return "null" if us == NULL_US else f"{us} us (no usable time)"
    return str(np.datetime64(us, "us")) + "Z"
