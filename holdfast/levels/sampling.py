"""Which frames of an output are recomputed: its first and its last with rows, and some spread over the run.

Most of them have rows: an empty frame that is made again without rows shows little. Some have none,
where there are such: rows may be what is missing there. Each is drawn from a stretch of its own.

Pure: chance is handed in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

__all__ = ["sampled"]

# One in so many is a frame without rows.
_EMPTY_SHARE = 4


def sampled(rows: Mapping[int, int], count: int | None, draw: Callable[[int], int]) -> tuple[int, ...]:
    """At most `count` numbers out of frame -> rows (None: all); `draw(k)` gives one of 0 .. k-1."""
    if count is None or len(rows) <= count:
        return tuple(sorted(rows))
    full, empty = ([n for n in sorted(rows) if bool(rows[n]) is has_rows] for has_rows in (True, False))
    without = min(len(empty), max(count // _EMPTY_SHARE, count - len(full)))
    ends = [*full[:1], *full[1:][-1:]][: count - without]
    between = _spread(full[1:-1], count - without - len(ends), draw)
    return tuple(sorted([*ends, *between, *_spread(empty, without, draw)]))


def _spread(frames: Sequence[int], count: int, draw: Callable[[int], int]) -> list[int]:
    """One of each of `count` stretches that are as long as each other."""
    cuts = [len(frames) * at // count for at in range(count + 1)] if count else []
    return [frames[low + draw(high - low)] for low, high in itertools.pairwise(cuts)]
