"""Where a run or a replay begins or ends, as users say it: the number of a frame, or a time.

A time means the frame that covers it. It can be told only once the clock is known, which a
first start of a live source learns from its first element; what cannot be read at all is
refused before anything starts.

Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.errors import UsageError
from holdfast.frames.clock import FrameClock

__all__ = ["FrameOrTime", "frame_at", "read_until"]

FrameOrTime = int | str | datetime


def frame_at(said: FrameOrTime, clock: FrameClock) -> int:
    """The frame meant."""
    meant = read_until(said)
    return meant if isinstance(meant, int) else clock.frame_at(round(meant.timestamp() * 1_000_000))


def read_until(said: FrameOrTime) -> int | datetime:
    """A number, or a time with its zone (UTC unless it says otherwise)."""
    if isinstance(said, int) and not isinstance(said, bool):
        return said
    if isinstance(said, str) and said.replace(",", "").isdigit():
        return int(said.replace(",", ""))
    try:
        at = said if isinstance(said, datetime) else datetime.fromisoformat(str(said))
    except ValueError:
        raise UsageError(
            "HF-E026",
            "NotAFrameOrTime",
            f"{said!r} is neither a frame nor a time.",
            effect="nothing was started",
            do="write a number, or a time as 2026-01-05T06:00:12Z (UTC unless it says otherwise)",
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
