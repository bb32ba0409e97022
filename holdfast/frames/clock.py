"""The frame clock of a stream process: which frame covers which interval of time.

Frame n (n >= 1) covers [t0 + (n-1)d, t0 + nd) of element time. All streams of a process share one clock, so a frame
number means the same interval everywhere. t0 is a multiple of d: two runs over the same data, or over data whose
first element differs by less than a frame, agree on the boundaries.

Pure: integer arithmetic on epoch microseconds; no wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.errors import invariant

__all__ = ["FrameClock"]


@dataclass(frozen=True, slots=True)
class FrameClock:
    t0_us: int
    frame_us: int

    def __post_init__(self) -> None:
        invariant(self.frame_us > 0, f"a frame of {self.frame_us} us covers no time")

    @classmethod
    def starting(cls, first_us: int, frame_us: int) -> FrameClock:
        """The clock whose frame 1 covers `first_us`."""
        invariant(frame_us > 0, f"a frame of {frame_us} us covers no time")
        return cls(int(first_us) // frame_us * frame_us, frame_us)

    def frame_of(self, times_us: np.ndarray) -> np.ndarray:
        """The frame that covers each time, as int64; 0 or less before t0."""
        times = np.asarray(times_us, dtype=np.int64)
        return (times - self.t0_us) // self.frame_us + 1

    def frame_at(self, time_us: int) -> int:
        """The frame that covers one time."""
        return (int(time_us) - self.t0_us) // self.frame_us + 1

    def start_us(self, n: int) -> int:
        """Start of frame n, inclusive."""
        return self.t0_us + (n - 1) * self.frame_us

    def boundary_us(self, n: int) -> int:
        """End of frame n, exclusive; also the start of frame n + 1."""
        return self.t0_us + n * self.frame_us

    def to_json(self) -> dict[str, int]:
        return {"t0_us": self.t0_us, "frame_us": self.frame_us}

    @classmethod
    def from_json(cls, found: dict[str, int]) -> FrameClock:
        return cls(int(found["t0_us"]), int(found["frame_us"]))
