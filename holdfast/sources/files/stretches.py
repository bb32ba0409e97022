"""Text that is still growing: its whole rows, its good stretches, and the rows that are bad.

How much of a file is there when it is looked at is chance, so nothing may depend on
where a block ends: a row is good or bad by itself. A block that cannot be parsed as
one is taken in halves until the bad rows stand alone; what lies between them is as
good as if it had come in other pieces.

Pure but for the file that a bad row is looked up in, to say its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from holdfast.graph.schemas import Schema
from holdfast.sources.parse import text
from holdfast.sources.parse.bad import REFUSED, Bad
from holdfast.sources.parse.quotes import BOM_INSIDE, is_open, last_row_end, row_ends, row_with_bom
from holdfast.sources.parse.there import check_there

__all__ = ["QUOTED_MAX", "Stretch", "stretches", "whole_rows"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring rows that were read, or one that could not be."""

    start: int  # bytes of the block
    stop: int
    table: pa.Table | None
    bad: Bad | None = None


# A quote that is not closed within so much is a stray one: its line is bad, and rows behind it are rows.
QUOTED_MAX = 1024 * 1024


def whole_rows(block: bytes, mark: re.Pattern[bytes] | None) -> int:
    """Bytes of the block up to the end of its last whole row: one that ends with a newline."""
    return last_row_end(block, mark, QUOTED_MAX)


def stretches(
    block: bytes,
    end: int,
    format: str,
    options: tuple,
    schema: Schema,
    path: str,
    byte: int,
    *,
    missing: str,
    first_only: bool,
) -> list[Stretch]:
    """The whole rows of a block, which end at `end`, in order; with `first_only` up to the first bad row.

    What lies behind them says whether a quote among them is closed in time.
    """
    settings = dict(options)
    mark = text.csv_mark(format, settings)

    def attempt(start: int, stop: int) -> pa.Table:
        part = block[start:stop]
        part.decode()  # Arrow does not look at every column
        if row_with_bom(part, mark, byte + start, QUOTED_MAX) is not None:
            raise ValueError(BOM_INSIDE)
        if len(part) > QUOTED_MAX and is_open(part, mark, QUOTED_MAX):
            raise ValueError(f"a quote is not closed within {QUOTED_MAX:,} bytes")
        table = text.parsed(part, format, settings, schema, "ignore")
        if table.num_rows != text.rows_in(part, format, mark, QUOTED_MAX):
            # Where a row ends is ours to say: a source that stops at a row goes on there.
            raise ValueError(f"it is not one {'object' if format == 'json' else 'row'} a line")
        if format == "json" and missing != "null":
            _check_there(part, table)
        return table

    try:
        return [Stretch(0, end, attempt(0, end))]
    except REFUSED:
        ends = [at for at in row_ends(block, mark, QUOTED_MAX) if at <= end]
    found: list[Stretch] = []
    todo = [(0, len(ends) - 1)]
    while todo:
        first, last = todo.pop()
        try:
            found.append(Stretch(ends[first], ends[last], attempt(ends[first], ends[last])))
        except REFUSED as error:
            if last - first > 1:
                middle = (first + last) // 2
                todo += [(middle, last), (first, middle)]
                continue
            found.append(_bad(block, ends[first], ends[last], path, byte, error))
            if first_only:
                break
    return found


def _bad(block: bytes, start: int, stop: int, path: str, byte: int, error: Exception) -> Stretch:
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    raw = block[start:stop].decode(errors="backslashreplace").rstrip("\r\n")
    said = text.bad_row(path, byte + start, why)
    return Stretch(start, stop, None, Bad(start, said, f"{said.where}: {why}", raw))


def _check_there(part: bytes, table: pa.Table) -> None:
    """A null is fine where the row says null; a name that is not there is not."""
    check_there([line for line in part.split(b"\n") if line.strip()], table)
