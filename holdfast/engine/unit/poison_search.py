"""Finds the rows of a frame on which an operator raises, by trying the frame without some of them.

The search is over items numbered from 0 (rows of all ports, one port after the other).
It looks for the shortest beginning of the frame that raises: its last item is the
culprit, for without it the same beginning passes. Then again without the culprit,
until the frame passes. Each culprit takes log2(items) tries.

A try that raised is made once more before a row is convicted by it: an error that comes and
goes says nothing about rows (`NotAgain`).

Where a key's state is what the operator cannot bear, every row of the key is a
culprit; the whole key goes then (`group`).

`search` is pure; `guilty` and `kept_ranges` read what they are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import CellType, CodeType
from typing import Any

import pyarrow as pa

from holdfast.errors import HoldfastError
from holdfast.graph.model import Graph, Operator
from holdfast.graph.units import Unit

__all__ = ["NotAgain", "Ports", "alike", "guilty", "rows_at", "search", "too_late"]

# A frame with more culprits than this is not a frame with poison in it.
CULPRITS_MAX = 64
# Operators made of expressions or functions of the user's, which may raise without a word of whose they are.
EXPRESSIONS = frozenset({"frame", "filter", "map", "split"})
_PLACE = re.compile(r"(.+):(\d+) in ")


class NotAgain(Exception):
    """What the frame raised on was not met again: no row explains it, and the next try may pass."""


def search(
    count: int,
    raises: Callable[[frozenset[int]], bool],
    group: Callable[[int], Iterable[int]] = lambda item: (item,),
    blame: Callable[[frozenset[int], frozenset[int]], None] = lambda items, left_out: None,
    guess: frozenset[int] = frozenset(),
) -> frozenset[int] | None:
    """The items without which the frame passes; None if no choice of items explains the error.

    `raises(left_out)` tries the frame without those. `group(item)` names the items that
    share its key. `blame(items, left_out)` is told which try convicted which items. `guess`:
    items that are it, if the frame passes without them.
    """
    out: frozenset[int] = frozenset()
    if guess and raises(out) and not raises(guess):
        blame(guess, out)
        return guess
    for _ in range(CULPRITS_MAX):
        if not raises(out):
            return out
        left = [item for item in range(count) if item not in out]
        found = _culprit(left, out, raises)
        if found is None:
            return None
        culprit, left_out = found
        if not raises(left_out):
            raise NotAgain
        same_key = frozenset(group(culprit)) - out
        rest = frozenset(range(count)) - same_key | {culprit}
        is_key = len(same_key) > 1 and raises(rest | out)
        guilty_items = same_key if is_key else frozenset({culprit})
        blame(guilty_items, left_out)
        out |= guilty_items
    return out if not raises(out) else None


def _culprit(
    left: Sequence[int], out: frozenset[int], raises: Callable[[frozenset[int]], bool]
) -> tuple[int, frozenset[int]] | None:
    """The last item of the shortest beginning that raises, and what was left out of that."""

    def raises_with(first: int) -> bool:
        return raises(out | frozenset(left[first:]))

    if raises_with(0):
        return None  # it raises without any row
    passes, fails = 0, len(left)
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if raises_with(middle):
            fails = middle
        else:
            passes = middle
    return left[fails - 1], out | frozenset(left[fails:])


@dataclass(frozen=True)
class Ports:
    """Rows of all ports of a frame as one row of items."""

    rows: tuple[tuple[str, int], ...]  # port key, number of rows

    @property
    def count(self) -> int:
        return sum(rows for _, rows in self.rows)

    def ranges(self, items: Iterable[int]) -> dict[str, list[list[int]]]:
        """Items as ranges [from, to) of each port's own rows."""
        wanted = sorted(items)
        found: dict[str, list[list[int]]] = {}
        first = 0
        for port, rows in self.rows:
            for at in (item - first for item in wanted if first <= item < first + rows):
                ranges = found.setdefault(port, [])
                if ranges and ranges[-1][1] == at:
                    ranges[-1][1] = at + 1
                else:
                    ranges.append([at, at + 1])
            first += rows
        return found


def guilty(graph: Graph, unit: Unit, error: HoldfastError) -> Operator | None:
    """The operator whose own code raised; None if that cannot be told.

    An SQL expression, or a function of another file, leaves no line of an operator's own. Then it is the only
    one of the unit that says what to do about it, unless another one's expressions may have raised as well:
    its rows must not be left out because a neighbour's may be.
    """
    operators = [graph.operator(name) for name in unit.operators]
    places = {(place[1], int(place[2])) for line in error.finding.why.splitlines() if (place := _PLACE.match(line))}
    for operator in operators:
        if f"operator {operator.name!r}" in error.finding.where:
            return operator
    if own := [operator for operator in operators if places & _lines(operator.function)]:
        return own[0] if len({operator.on_error for operator in own}) == 1 else None  # two may share a function
    declared = [operator for operator in operators if operator.on_error != "stop"]
    silent = [operator for operator in operators if operator.on_error == "stop" and operator.kind in EXPRESSIONS]
    return declared[0] if len(declared) == 1 and not silent else None


def _lines(function: Any) -> set[tuple[str, int]]:
    """Where the code of a function stands: its own, that of functions inside it, and those it names."""
    code = getattr(function, "__code__", None)
    if code is None:
        return set()
    known = getattr(function, "__globals__", {})
    held = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    named = [*held, *(known[name] for name in code.co_names if name in known)]
    # A user-defined function of Spark's is wrapped; what it wraps is `func`.
    codes = [code, *(getattr(getattr(each, "func", each), "__code__", None) for each in named if callable(each))]
    found: set[tuple[str, int]] = set()
    while codes:
        each = codes.pop()
        if isinstance(each, CodeType):
            found |= {(each.co_filename, line) for _, _, line in each.co_lines() if line is not None}
            codes += each.co_consts
    return found


def rows_at(table: pa.Table, ranges: list[list[int]]) -> pa.Table:
    return pa.concat_tables([table.slice(first, end - first) for first, end in ranges])


def too_late(tables: dict[str, pa.Table], operator: Operator, since_us: int) -> frozenset[int]:
    """For an operator that raises on rows too late for their windows: the items that are, by their time."""
    options = operator.options
    size, step, late = (1000 * (options.get(name) or 0) for name in ("window_ms", "every_ms", "lateness_ms"))
    if "too_late" not in options or not size:
        return frozenset()
    found, first = set(), 0
    for table in tables.values():
        if options["time"] in table.column_names:
            times = table[options["time"]].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
            for at, time in enumerate(times):
                # The oldest window that holds it is the first to close; between windows (size below step) there is none.
                into = 0 if time is None else time % step
                if time is None or (
                    into < size and time - into - (size - 1 - into) // step * step + size + late <= since_us
                ):
                    found.add(first + at)
        first += table.num_rows
    return frozenset(found)


def alike(tables: dict[str, pa.Table], operator: Operator) -> Callable[[int], Iterable[int]]:
    """For a keyed operator: the items of all ports that have the same key as an item."""
    if "too_late" in operator.options:
        return lambda item: (item,)  # each row is late by its own time, whatever its key
    keys = operator.options.get("keys") or operator.options.get("by") or ()
    if not keys or any(key not in table.column_names for table in tables.values() for key in keys):
        return lambda item: (item,)
    of_item = [row for table in tables.values() for row in zip(*(table[key].to_pylist() for key in keys), strict=True)]
    return lambda item: [at for at, key in enumerate(of_item) if key == of_item[item]]
