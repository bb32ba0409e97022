"""What the time of a live source's row must be like, judged before the row is logged.

A row without a time, or far ahead of all before it, would stop the source when it is cut:
at every start anew, for by then it is in the log and its sender was told that all is
well. So neither is logged. A row without a time is a bad record (`bad=`), unless late ones
are dropped or quarantined: then it goes where they go. A row that jumps stops the
source and is not acknowledged, as a row ahead of the clock with `on_ahead="fail"`.

Only what the clock of the process decides is left to the cut: it begins with the
earliest of all sources, and no row knows that.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.frames.cut import is_time, times_of
from holdfast.frames.identity import END_US
from holdfast.sources.assembly import EMPTY_FRAMES_MAX
from holdfast.sources.parse.bad import Terms
from holdfast.sources.parse.unheld import held

__all__ = ["Jumps", "fitting"]

NOT_LOGGED = "it is not logged and not acknowledged, nor what came after it; those before it are logged"


def fitting(table: pa.Table, terms: Terms) -> pa.Table:
    """The table; raises HF-S007 for a row without a usable time, HF-S051 for a value that a sink below cannot hold."""
    if terms.time is not None and table.num_rows:
        times = times_of(table.column(terms.time))
        fits = is_time(times) | (times >= END_US) if terms.judges_ahead else is_time(times)
        if not fits.all():
            raise _time_missing(terms.time)
    return held(table, terms.unheld)


class Jumps:
    """Finds the row that is too far ahead of all before it."""

    def __init__(self, source: str, column: str, frame_us: int, grace_us: int) -> None:
        self._source, self._column, self._frame_us = source, column, frame_us
        # At the cut a row is compared with the lowest open frame, the grace behind the newest one.
        self._most_us = (EMPTY_FRAMES_MAX - 1) * frame_us - grace_us
        self._newest_us: int | None = None

    def saw(self, times_us: np.ndarray) -> None:
        """These are in the log."""
        usable = times_us[is_time(times_us)]
        if len(usable):
            newest_us = int(usable.max())
            self._newest_us = newest_us if self._newest_us is None else max(newest_us, self._newest_us)

    def first(self, times_us: np.ndarray, left_out: np.ndarray | None, floor_us: int | None) -> tuple[int, int] | None:
        """(row, frames ahead) of the first that jumps. `floor_us`: time has come that far, whatever was logged."""
        usable = is_time(times_us)
        if left_out is not None:
            usable &= ~left_out
        places = np.flatnonzero(usable)
        known = [each for each in (self._newest_us, floor_us) if each is not None]
        if not len(places):
            return None
        times = times_us[places]
        before = np.maximum.accumulate(np.concatenate(([max(known, default=int(times[0]))], times)))[:-1]
        far = times - before > self._most_us
        if not far.any():
            return None
        at = int(far.argmax())
        return int(places[at]), int((times[at] - before[at]) // self._frame_us)

    def error(self, number: int, frames: int) -> SourceError:
        return SourceError(
            "HF-S008",
            "TimeJumps",
            f"element {number} is {frames:,} frames ahead of all before it.",
            where=f"source {self._source!r}, column {self._column!r}",
            effect=NOT_LOGGED,
            do="mend the sender; or declare ahead= and on_ahead='quarantine' (kept apart) or 'drop' and run again; if those "
            "before it were wrong, begin a new state folder: --state DIR",
        )


def _time_missing(column: str) -> SourceError:
    return SourceError(
        "HF-S007",
        "TimeMissing",
        f"an element has no usable time in {column!r}.",
        effect=NOT_LOGGED,
        do="mend the sender; or declare bad='quarantine' (kept apart) or bad='drop' and run again",
    )
