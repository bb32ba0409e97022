"""CSV and JSON lines: cut into blocks at row ends, and parsed block by block.

A text file has no index. The indexer cuts it into blocks of some megabytes and
writes the byte range of each into the references, so that a worker reads and
parses only the blocks its frame touches. A row never spans two blocks: a CSV
newline ends a row only outside of quotes (`quotes`).

Indexer and worker parse the same block with the same options, so a row has the
same number and the same time for both.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
import threading
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import xxhash

from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.sources.parse.exact import (
    dates_as_text,
    has_infinite,
    refuse_hex,
    refuse_infinite,
    refuse_not_infinite,
    widened,
)
from holdfast.sources.parse.fit import NOTHING_READ, fit
from holdfast.sources.parse.quotes import (
    BOM_INSIDE,
    first_row_end,
    has_bare_return,
    is_open,
    last_row_end,
    mark_of,
    row_ends,
    row_with_bom,
    split_rows,
)

__all__ = [
    "bad_row",
    "csv_columns",
    "csv_mark",
    "cut_blocks",
    "digest",
    "header_end",
    "parse",
    "parsed",
    "read_bytes",
    "row_start",
    "row_start_anywhere",
    "rows_in",
    "unreadable",
]

# Large enough that parsing dominates opening and seeking, small enough that a
# frame of a few rows does not parse a day.
BLOCK_BYTES = 4 * 1024 * 1024
# A row longer than this is taken for an unclosed quote.
ROW_BYTES_MAX = 64 * 1024 * 1024


def unreadable(path: str, kind: str, error: Exception) -> SourceError:
    return SourceError(
        "HF-S005",
        "Unreadable",
        f"the file cannot be read as {kind}.",
        where=path,
        why=str(error).splitlines()[0] if str(error) else type(error).__name__,
        effect=NOTHING_READ,
        do="replace the damaged file, or name its format: read.files(..., format=...)",
    )


# -- bytes -------------------------------------------------------------------


@lru_cache(maxsize=8)
def _inflating(path: str, size: int, mtime_ns: int, ctime_ns: int, ino: int) -> gzip.GzipFile:
    # Seeking forward goes on inflating, seeking back starts anew: frames read
    # in order inflate the file once.
    return gzip.open(path, "rb")


_one_at_a_time = threading.Lock()  # two sources may read the same file


def read_bytes(path: str, start: int, stop: int) -> bytes:
    """Bytes [start, stop) of the text; of a .gz file, of what it inflates to."""
    if not path.endswith(".gz"):
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            return file.read(stop - start)
    try:
        found = os.stat(path)
        with _one_at_a_time:
            inflated = _inflating(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
            inflated.seek(start)
            return inflated.read(stop - start)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, "gzip", error) from error


def digest(block: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(block)


def cut_blocks(path: str, format: str, options: dict) -> Iterator[tuple[int, bytes]]:
    """(first byte, block) over the rows of the file, header left out."""
    mark = csv_mark(format, options)
    opened = gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb", buffering=0)  # noqa: SIM115
    with opened as file:
        at, held = 0, b""
        header = format == "csv" and options.get("header", True)
        while True:
            try:
                more = file.read(BLOCK_BYTES)
            except (OSError, EOFError, zlib.error) as error:
                raise unreadable(path, "gzip", error) from error
            held += more
            end = last_row_end(held, mark) if more else len(held)
            if header and end:
                begin = header_end(held, mark, path)
                at, held, end, header = at + begin, held[begin:], end - begin, False
            if end:
                yield at, held[:end]
                at, held = at + end, held[end:]
            if not more:
                return
            if len(held) > ROW_BYTES_MAX:
                raise bad_row(path, at, "a row of more than 64 MB: a quote is not closed")


def csv_mark(format: str, options: dict) -> re.Pattern[bytes] | None:
    """What finds text in quotes in such a file."""
    return mark_of(options.get("quote"), options.get("delimiter") or ",") if format == "csv" else None


def header_end(block: bytes, mark: re.Pattern[bytes] | None, path: str) -> int:
    """Where the header ends. One that ends with a carriage return alone would take the first rows along, or all."""
    end = first_row_end(block, mark)
    if has_bare_return(block[:end], mark):
        why = "its header ends with a carriage return alone; lines end with a newline"
        raise bad_row(path, 0, why, do="write newlines: tr '\\r' '\\n' < FILE > FILE.new, and put that in its place")
    return end


def rows_in(block: bytes, format: str, mark: re.Pattern[bytes] | None, limit: int | None = None) -> int:
    """How many rows a block of whole rows has, as `row_start` counts them."""
    if format == "json" or mark is None:
        return sum(1 for line in block.split(b"\n") if not _is_blank(line, format))
    ends = row_ends(block, mark, limit)
    return sum(1 for start, stop in itertools.pairwise(ends) if not _is_blank(block[start:stop], format))


def row_start(block: bytes, row: int, format: str, mark: re.Pattern[bytes] | None, limit: int | None = None) -> int:
    """Where a row of a block begins; lines with nothing in them are none."""
    ends = row_ends(block, mark, limit)
    for start, stop in itertools.pairwise(ends):
        if not _is_blank(block[start:stop], format):
            if row == 0:
                return start
            row -= 1
    return len(block)


def row_start_anywhere(block: bytes, row: int, format: str, mark: re.Pattern[bytes] | None) -> int:
    """The same where a line may hold several rows, or a row several lines: slower."""
    if format == "csv":
        starts = split_rows(block, mark)
        return starts[row] if row < len(starts) else len(block)
    text, at = block.decode("utf-8", errors="surrogateescape"), 0
    at = _BLANK.match(text, 1 if text[:1] == "\ufeff" else 0).end()
    while row and at < len(text):
        at = _BLANK.match(text, _JSON.raw_decode(text, at)[1]).end()
        row -= 1
    return len(text[:at].encode("utf-8", errors="surrogateescape"))


def _is_blank(line: bytes, format: str) -> bool:
    """In CSV blanks are text."""
    return not (line.strip() if format == "json" else line.strip(b"\r\n"))


def csv_columns(path: str, options: dict, declared: Schema) -> tuple[str, ...]:
    """The file's columns in order: from its header, or else as declared."""
    if not options.get("header", True):
        return declared.names
    mark = csv_mark("csv", options)
    head = read_bytes(path, 0, BLOCK_BYTES)
    line = head[: first_row_end(head, mark)].decode("utf-8-sig", errors="replace")
    quoting = csv.QUOTE_MINIMAL if mark else csv.QUOTE_NONE
    rows = csv.reader(
        io.StringIO(line, newline=""),
        delimiter=options.get("delimiter", ","),
        quotechar=options.get("quote") or '"',
        quoting=quoting,  # type: ignore[arg-type]
    )
    return tuple(next(rows, []))


# -- rows --------------------------------------------------------------------


def parse(block: bytes, format: str, options: tuple, schema: Schema, path: str, byte: int) -> pa.Table:
    """The declared columns of a block; an unreadable row is named by its line."""
    chosen = dict(options)
    if (marked := row_with_bom(block, csv_mark(format, chosen), byte)) is not None:
        raise bad_row(path, byte + marked, BOM_INSIDE)
    error: Exception | None = None
    for unit, zone in _TIMES:
        try:
            return fit(_parsed(block, format, chosen, schema, unit, zone), schema, path)
        except pa.ArrowInvalid as failed:
            error = error or failed
            if not _has_times(schema):
                break
    raise bad_row(path, byte + _find_bad(block, format, chosen, schema), _short(error))


def parsed(block: bytes, format: str, options: dict, schema: Schema, unexpected: str) -> pa.Table:
    """The declared columns of lines that are no file; raises what Arrow raises.

    `unexpected`: "ignore" or "error", of JSON fields that are not declared.
    """
    error: Exception | None = None
    for unit, zone in _TIMES:
        try:
            return fit(_parsed(block, format, options, schema, unit, zone, unexpected), schema, "")
        except pa.ArrowInvalid as failed:
            error = error or failed
            if not _has_times(schema):
                break
    raise error


# Arrow reads a time with a zone only as a type with one, and the other way
# round; a column has one of the two in all its rows.
_TIMES = (("us", "UTC"), ("us", None), ("ns", "UTC"), ("ns", None))


def _has_times(schema: Schema) -> bool:
    return any(pa.types.is_timestamp(field.type) for field in schema.arrow)


def _parsed(
    block: bytes,
    format: str,
    options: dict,
    schema: Schema,
    unit: str,
    zone: str | None,
    unexpected: str = "ignore",
) -> pa.Table:
    types = pa.schema(
        pa.field(f.name, pa.timestamp(unit, zone) if pa.types.is_timestamp(f.type) else f.type) for f in schema.arrow
    )
    if not block.strip():
        return types.empty_table()
    if format == "json":
        _refuse_bare_null(block)
        as_written = pa.schema(map(dates_as_text, types))  # Arrow takes numbers for dates, of days: 20260101 too
        table = _read_json(block, as_written, unexpected)
        # Arrow refuses what is too great for a double, and takes for infinite what is too great for a float only.
        if any(map(has_infinite, table.columns)):
            refuse_infinite(table, _read_json(block, pa.schema(map(widened, as_written)), unexpected))
        return _valid(table if as_written == types else table.select(types.names).cast(types))
    if (quote := options.get("quote")) and quote.encode() in block and is_open(block, csv_mark("csv", options)):
        raise pa.ArrowInvalid("a quote is not closed")
    table = _read_csv(block, types, options)
    infinite = [name for name in types.names if has_infinite(table.column(name))]
    whole = [f.name for f in types if pa.types.is_integer(f.type)] if _HEX.search(block) else []
    if infinite or whole:
        as_text = _read_csv(block, pa.schema([(name, pa.string()) for name in (*infinite, *whole)]), options)
        for name in infinite:
            refuse_not_infinite(table.column(name), as_text.column(name), name)
        for name in whole:
            refuse_hex(as_text.column(name), name)
    return _valid(table)


def _read_json(block: bytes, types: pa.Schema, unexpected: str) -> pa.Table:
    return arrow_json.read_json(
        pa.BufferReader(block),
        arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        arrow_json.ParseOptions(explicit_schema=types, unexpected_field_behavior=unexpected),
    )


def _read_csv(block: bytes, types: pa.Schema, options: dict) -> pa.Table:
    quote: Any = options.get("quote") or False
    quoted = bool(quote) and quote.encode() in block
    return arrow_csv.read_csv(
        pa.BufferReader(block),
        arrow_csv.ReadOptions(
            column_names=list(options["columns"]),
            block_size=len(block) + 1,
        ),
        arrow_csv.ParseOptions(delimiter=options.get("delimiter", ","), quote_char=quote, newlines_in_values=quoted),
        arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=types.names,
            null_values=[options.get("null", "")],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _valid(table: pa.Table) -> pa.Table:
    """Arrow's parsers take text that is not UTF-8, and decimals with more digits than declared: neither gets through Spark."""
    table.validate(full=True)
    return table


_HEX = re.compile(rb"(?<![0-9])0[xX][0-9a-fA-F]")
# Not behind a colon, comma or bracket, so perhaps behind an object.
_BARE_NULL = re.compile(rb"null(?<![:,\[]null)(?<![:,\[] null)")
_BLANK = re.compile(r"[ \t\r\n]*")
_JSON = json.JSONDecoder()


def _refuse_bare_null(block: bytes) -> None:
    """A `null` beside objects ends the whole program inside Arrow's parser (SIGSEGV); found here, it is a bad row."""
    if _BARE_NULL.search(block) is None:
        return
    text = block.decode("utf-8-sig", errors="replace")
    at = _BLANK.match(text).end()
    while at < len(text):
        try:
            value, at = _JSON.raw_decode(text, at)
        except (ValueError, RecursionError):
            return  # Arrow says what it is, and gets no further
        if value is None:
            raise pa.ArrowInvalid("JSON parse error: null is no object")
        at = _BLANK.match(text, at).end()


def _find_bad(block: bytes, format: str, options: dict, schema: Schema) -> int:
    """Where in the block the first row begins that cannot be parsed."""
    ends = row_ends(block, csv_mark(format, options))
    good, bad = 0, len(ends) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if _parses(block[: ends[middle]], format, options, schema):
            good = middle
        else:
            bad = middle
    return ends[good]


def _parses(block: bytes, format: str, options: dict, schema: Schema) -> bool:
    for unit, zone in _TIMES:
        try:
            _parsed(block, format, options, schema, unit, zone)
            return True
        except pa.ArrowInvalid:
            continue
    return False


def _short(error: Exception | None) -> str:
    return str(error).splitlines()[0]


def bad_row(
    path: str, byte: int, why: str, do: str = "correct the line and run again, or declare the column as string"
) -> SourceError:
    line = 1 + sum(
        read_bytes(path, start, min(start + BLOCK_BYTES, byte)).count(b"\n") for start in range(0, byte, BLOCK_BYTES)
    )
    return SourceError(
        "HF-S006",
        "BadRow",
        "a row cannot be read as declared.",
        where=f"{path}, line {line}",
        why=why,
        effect="its frame is not made; frames before it stand, no row was skipped",
        do=do,
    )
