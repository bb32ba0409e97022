"""When a frame of a recording may be released: at the pace it was recorded, or another.

Pure: the caller brings the time since the start. Pace decides only *when* a
frame is handed out, never what is in it, so results do not depend on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import UsageError

__all__ = ["Pace", "PacedSince"]


@dataclass(frozen=True, slots=True)
class Pace:
    """`speed`: times the recorded pace; `rows_per_s`: elements a second; neither: at once."""

    speed: float | None = None
    rows_per_s: float | None = None

    @classmethod
    def of(cls, rate: object) -> Pace:
        """None or "fast", "as recorded", "10x", or a number of elements a second."""
        if rate is None:
            return cls()
        if isinstance(rate, str):
            word = rate.strip().lower()
            if word in ("fast", "as fast as possible"):
                return cls()
            if word == "as recorded":
                return cls(speed=1.0)
            times = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*x\s*", rate, flags=re.IGNORECASE)
            if times and float(times[1]) > 0:
                return cls(speed=float(times[1]))
        elif isinstance(rate, (int, float)) and not isinstance(rate, bool):
            if rate > 0 and math.isfinite(rate):
                return cls(rows_per_s=float(rate))
        raise UsageError(
            "HF-C030",
            "NotARate",
            f"rate {rate!r} is not a pace.",
            effect="nothing was declared",
            do="write 'as recorded', '10x', 'fast', a number of elements a second, or leave it out",
        )

    def due_s(self, frames: int, frame_us: int, rows: int) -> float:
        """Seconds after the start at which a frame is due.

        `frames` and `rows` count what is released up to and with this frame: a
        frame is due when its whole stretch has passed, as it was when recorded.
        """
        if self.speed is not None:
            return frames * frame_us / 1e6 / self.speed
        if self.rows_per_s is not None:
            return rows / self.rows_per_s
        return 0.0

    def __str__(self) -> str:
        if self.speed is not None:
            return "as recorded" if self.speed == 1 else f"{self.speed:g}x"
        if self.rows_per_s is not None:
            return f"{self.rows_per_s:g} elements a second"
        return "as fast as possible"


@dataclass(frozen=True, slots=True)
class PacedSince:
    """A pace that goes on while the run is down, as a live source does: its first frame began at a moment that stays.

    An ordinary run that is started again takes the recording up where it stopped. This one has
    to catch up, so that a delay counts the time it was away.
    """

    rate: object
    began: Callable[[], float]  # on the monotonic clock of this run
    first: int = 1  # the frame that began then
