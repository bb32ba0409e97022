"""A frame as a run made it against the same frame computed another way.

Rows are compared by value, as a bag. Sums of floating point numbers depend on the order of
addition, which another way does not share: two rows that are equal but for such numbers, and
have those in common to nine digits, are the same row. `slack` is what their last digits may
differ by where large values cancelled each other out.

A condition on such a number may fall either way (`mean > 80` where the mean is 80). `otherwise` holds
what the frame would be if the numbers were a little smaller or larger: a row that is there in one
of them and not in all is not decided here, and counted.

Pure: plain values in, plain values out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Differing", "Recomputed", "compared", "unmatched"]

Row = tuple[Any, ...]

# Two ways to add up a million numbers agree to ten digits or more; what is wrong differs earlier.
_SHARE = 1e-9
# Rounding of one addition is 1e-16 of the largest number in it; there may be thousands.
_OF_LARGEST = 1e-12
# Rows that are alike but for numbers are tried against each other; more of them are paired in order.
_TRIED_MAX = 200
# Rows that are quoted of a frame that differs.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Differing:
    """A frame that is not what its inputs give."""

    n: int
    missing: int = 0  # rows its inputs give and the run does not have
    extra: int = 0  # rows the run has and its inputs do not give
    first_missing: tuple[str, ...] = ()
    first_extra: tuple[str, ...] = ()
    raised: str = ""  # the other way ended with this error
    came: bool = True  # False: the run has no such frame


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What was found about what one sink got of a stream, or about a stream between two units."""

    output: str  # the sink; "" between units
    stream: str
    unit: str
    operator: str
    way: str = ""  # how it was computed
    frames: tuple[int, ...] = ()  # that were recomputed
    of: int = 0  # frames there are
    rows: int = 0  # that were compared
    differs: tuple[Differing, ...] = ()  # by number
    found_first: int = 0  # of those that differ: computed before the function could remember anything of another
    undecided: int = 0  # rows that rest on the last digits of a floating sum
    left_out: str = ""  # why nothing was recomputed

    @property
    def words(self) -> str:
        """'8 of 31 frames, 240 rows'."""
        if not self.frames:
            return "-"
        said = f"{len(self.frames):,} of {self.of:,} frames, {self.rows:,} rows"
        return said + (f", {self.undecided:,} of them not decided" if self.undecided else "")

    @property
    def worst(self) -> Differing | None:
        """The frame to look at."""
        first = next(iter(self.differs), None)
        return next((each for each in self.differs if each.n == self.found_first), first)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Recomputed:
        differs = [
            {**each, **{at: tuple(each[at]) for at in ("first_missing", "first_extra")}} for each in found["differs"]
        ]
        return cls(
            **{**found, "frames": tuple(found["frames"]), "differs": tuple(Differing(**each) for each in differs)}
        )


def compared(
    n: int, expected: Sequence[Row], actual: Sequence[Row], *, slack: float = 0.0,
    otherwise: Sequence[Sequence[Row]] = (), quote: bool = True,
) -> tuple[Differing | None, int]:  # fmt: skip
    """How the run's rows differ from those computed another way, and how many could not be decided."""
    missing, extra = unmatched(expected, actual, slack)
    found = len(missing) + len(extra)
    for rows in otherwise if found else ():
        lacking, _ = unmatched(missing, rows, slack)
        missing = _without(missing, lacking)
        extra, _ = unmatched(extra, rows, slack)
    undecided = found - len(missing) - len(extra)
    if not missing and not extra:
        return None, undecided
    lacks, has = (tuple(_shown(row) for row in rows[:_SHOWN]) if quote else () for rows in (missing, extra))
    return Differing(n, len(missing), len(extra), lacks, has), undecided


def unmatched(one: Sequence[Row], other: Sequence[Row], slack: float = 0.0) -> tuple[list[Row], list[Row]]:
    """Rows of either side that have no partner on the other."""
    here, there = [(repr(row), row) for row in one], [(repr(row), row) for row in other]
    left, right = _beyond(here, there), _beyond(there, here)
    if not left or not right:
        return left, right
    allowed = _allowed([*one, *other], slack)
    groups: dict[str, tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((left, right)):
        for row in rows:
            groups.setdefault(_exact_part(row), ([], []))[side].append(row)
    alone: tuple[list[Row], list[Row]] = ([], [])
    for mine, theirs in groups.values():
        for found, rows in zip(alone, _paired(mine, theirs, allowed), strict=True):
            found += rows
    return alone


def _beyond(here: list[tuple[str, Row]], there: list[tuple[str, Row]]) -> list[Row]:
    spare = Counter(text for text, _ in there)
    left = []
    for text, row in here:
        if spare[text]:
            spare[text] -= 1
        else:
            left.append(row)
    return left


def _paired(mine: list[Row], theirs: list[Row], allowed: Sequence[float]) -> tuple[list[Row], list[Row]]:
    if len(mine) > _TRIED_MAX or len(theirs) > _TRIED_MAX:
        mine, theirs = sorted(mine, key=_numbers), sorted(theirs, key=_numbers)
        both = [(a, b) for a, b in zip(mine, theirs, strict=False) if not _is_close(a, b, allowed)]
        short = min(len(mine), len(theirs))
        return [a for a, _ in both] + mine[short:], [b for _, b in both] + theirs[short:]
    left, right = [], list(theirs)
    for row in mine:
        at = next((at for at, other in enumerate(right) if _is_close(row, other, allowed)), None)
        left.append(row) if at is None else right.pop(at)
    return left, right


def _is_close(one: Row, other: Row, allowed: Sequence[float]) -> bool:
    return all(_is_same(a, b, at_most) for a, b, at_most in zip(one, other, allowed, strict=True))


def _is_same(a: Any, b: Any, at_most: float) -> bool:
    if not isinstance(a, float) or not isinstance(b, float):
        return True  # the rows are alike in everything but their numbers
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= at_most + _SHARE * max(abs(a), abs(b))


def _allowed(rows: Sequence[Row], slack: float) -> list[float]:
    """By column, what two numbers may differ by whatever their size."""
    columns = zip(*rows, strict=True)
    largest = [
        max((abs(v) for v in column if isinstance(v, float) and math.isfinite(v)), default=0.0) for column in columns
    ]
    return [slack + _OF_LARGEST * each for each in largest]


def _exact_part(row: Row) -> str:
    return repr(tuple(float if isinstance(value, float) else value for value in row))


def _numbers(row: Row) -> tuple[tuple[bool, float], ...]:
    return tuple((math.isnan(v), 0.0 if math.isnan(v) else v) for v in row if isinstance(v, float))


def _without(rows: list[Row], taken: list[Row]) -> list[Row]:
    return _beyond([(repr(row), row) for row in rows], [(repr(row), row) for row in taken])


def _shown(row: Row) -> str:
    text = ", ".join(str(value) for value in row)
    return text if len(text) <= 200 else text[:199] + "…"
