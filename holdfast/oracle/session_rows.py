"""Which session each row is in, and in which frame the session comes out, by going through the frames.

A plain loop over rows: a row belongs to a session while no gap before it is longer than
declared, a row at exactly that distance included. A session is over in the frame whose boundary
lies beyond its last row plus the gap plus the lateness. Rows that are alone in a session which was over
before their frame began came too late and are in none; a row that joins open sessions makes them one.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["session_rows"]


class Boundaries(Protocol):
    def boundary_us(self, n: int) -> int: ...

    def since_us(self, n: int) -> int: ...


@dataclass
class _Span:
    start: int
    end: int
    rows: list[int] = field(default_factory=list)
    is_new: bool = True  # nothing in it from a frame before


def session_rows(
    keys: Sequence[tuple[Any, ...]], times_us: Sequence[int], frames: Sequence[int], boundaries: Boundaries, last: int,
    *, gap_us: int, late_us: int,
) -> list[tuple[int, int, int, int, int]]:  # fmt: skip
    """(row, session, start, end, frame) of every row whose session came out up to frame `last`."""
    by_frame: dict[int, dict[str, list[int]]] = {}
    for row, (key, n) in enumerate(zip(keys, frames, strict=True)):
        by_frame.setdefault(n, {}).setdefault(repr(key), []).append(row)
    open_: dict[str, list[_Span]] = {}
    found: list[tuple[int, int, int, int, int]] = []
    sessions = 0
    for n in range(min(frames, default=1), last + 1):
        for text, rows in by_frame.get(n, {}).items():
            fresh = [_Span(times_us[row], times_us[row] + gap_us, [row]) for row in rows]
            open_[text] = _joined([*open_.get(text, []), *fresh])
        for text in list(open_):
            left = []
            for span in open_[text]:
                over_us = span.end + late_us
                if span.is_new and over_us < boundaries.since_us(n):
                    continue  # too late
                if over_us < boundaries.boundary_us(n):
                    sessions += 1
                    found += [(row, sessions, span.start, span.end, n) for row in span.rows]
                else:
                    left.append(span)
            for span in left:
                span.is_new = False
            open_[text] = left
            if not left:
                del open_[text]
    return found


def _joined(spans: list[_Span]) -> list[_Span]:
    made: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if made and span.start <= made[-1].end:
            one = made[-1]
            one.end, one.is_new = max(one.end, span.end), one.is_new and span.is_new
            one.rows += span.rows
        else:
            made.append(span)
    return made
