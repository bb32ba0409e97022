"""Rows that a target refuses: which they are, and the frame without them.

A table may refuse a row for reasons nobody can know before: a constraint, a value out of
range, a zero byte. With `on_error=` the frame is tried, in transactions that are rolled
back, until the rows are known: the shortest beginning that is refused ends with such a row.
Rows that can be told without trying (a null key) are told first. What is left out is written
down (`Aside`) before the frame is written without it, so a frame that comes again is written
without the same rows.

`refused_rows` is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SinkError

__all__ = ["TRIED_MAX", "Aside", "key_is_null", "ranges_of", "refused_rows", "rows_at", "rows_in", "too_many"]

#: Rows of one frame that are found by trying. A target that refuses more refuses the stream, not some rows of it.
TRIED_MAX = 100


class Aside(Protocol):
    """Where decisions about rows are kept."""

    def at(self, n: int) -> Mapping[str, list[list[int]]]:
        """Ranges of rows that frame n is written without, by the checksum of its content."""

    def decide(
        self, n: int, ports: dict[str, list[list[int]]], tables: dict[str, pa.Table], record: dict[str, object]
    ) -> None: ...


def refused_rows(
    count: int, fits: Callable[[Sequence[int]], bool], known: frozenset[int] = frozenset()
) -> list[int] | None:
    """Of rows 0 to count, those without which the rest fits; None if that is not a matter of rows.

    `fits(rows)` tries these. `known` are left out from the beginning. Takes log2(count) tries for each row.
    """
    out, fine = set(known), 0
    for _ in range(TRIED_MAX + 1):
        left = [row for row in range(count) if row not in out]
        if fits(left):
            return sorted(out)
        fails = len(left)
        if fine == 0 and not fits([]):
            return None
        while fails - fine > 1:
            middle = (fine + fails) // 2
            if fits(left[:middle]):
                fine = middle
            else:
                fails = middle
        out.add(left[fails - 1])  # without it the beginning that it ended fits
    return None


def ranges_of(rows: Sequence[int]) -> list[list[int]]:
    """Rows as ranges [from, to)."""
    found: list[list[int]] = []
    for row in sorted(rows):
        if found and found[-1][1] == row:
            found[-1][1] = row + 1
        else:
            found.append([row, row + 1])
    return found


def rows_in(ranges: Sequence[Sequence[int]]) -> list[int]:
    return [row for first, end in ranges for row in range(first, end)]


def rows_at(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    return table.take(pa.array(rows, pa.int64()))


def key_is_null(table: pa.Table, keys: Sequence[str]) -> dict[int, str]:
    """Rows whose key is null (or NaN), each with the key's name."""
    found: dict[int, str] = {}
    for key in keys:
        column = table.column(key)
        null = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
        if pc.any(null).as_py():
            for row in pc.indices_nonzero(null).to_pylist():
                found.setdefault(row, f"key {key!r} is null")
    return found


def too_many(n: int, rows: int, why: str, where: str) -> SinkError:
    return SinkError(
        "HF-K036",
        "TooManyRefused",
        f"the target refuses frame {n} whatever is left out of its {rows} rows.",
        where=where,
        why=f"{why}\nthe first {TRIED_MAX} rows that it refuses were left out, or it refuses the frame without any row",
        effect="nothing of this frame was written and nothing was set aside; it is kept sealed",
        do="mend the target (a constraint, a trigger, a column that is too narrow) and run again: the frame is then written",
    )
