"""Rows whose time is ahead of the clock: judged before they are logged, so that no replay judges again.

A frame closes when an element comes that is past its end. One row of next year would
close all frames until then, empty, and make every honest row late: by a wrong clock of
one sensor, or by whoever may send. So a live source has a bound, `ahead=`, and says
what becomes of what is beyond it, `on_ahead=`.

The clock is the later of two: the wall clock as it is, and the wall clock of the start
carried on by the monotonic one. Set forward while we run (a machine that came up with
the year 1970 and asked the network), honest rows are not ahead of it; set back, they
are not either. A row is refused only if no reading of the clock would have it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.frames.cut import times_of
from holdfast.graph.durations import show_ms

__all__ = ["Ahead"]


class Ahead:
    def __init__(
        self, column: str, bound_us: int, policy: str, monotonic: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        """`wall`, `monotonic`: seconds. `policy`: "drop" | "quarantine" | "fail"."""
        self.policy = policy
        self._column, self._bound_us = column, bound_us
        self._monotonic, self._wall = monotonic, wall
        self._offset_s = wall() - monotonic()

    @property
    def bound(self) -> str:
        return show_ms(self._bound_us // 1000)

    def far(self, table: pa.Table) -> np.ndarray | None:
        """Which rows are too far ahead; None: none is, as nearly always."""
        if not table.num_rows:
            return None
        now_us = int(max(self._wall(), self._offset_s + self._monotonic()) * 1e6)
        far = times_of(table.column(self._column)) > now_us + self._bound_us
        return far if far.any() else None

    def error(self, source: str, number: int) -> SourceError:
        return SourceError(
            "HF-S050",
            "AheadOfClock",
            f"element {number} has a time more than {self.bound} ahead of this machine's clock.",
            where=f"source {source!r}, column {self._column!r}",
            why="taken at its word it would close all frames until then, and on_ahead='fail' was declared",
            effect="it is not logged and not acknowledged, nor what came after it; elements before it are logged",
            do="set the sender's clock; or declare on_ahead='quarantine' or a longer ahead= and run again",
        )
