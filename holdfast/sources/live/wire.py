"""Text that came over the wire, one record each: JSON objects or CSV lines, as an Arrow table.

Each record is one object or one line, whatever its neighbours are: `alone` says so
before any is parsed, and what is not is bad by itself. The others are parsed at once,
by the parser that reads files; only where that fails are they taken apart, until the
bad ones stand alone (`bad.halved`). Records of another format, or with other columns
given from elsewhere, are never parsed together. A field that
is declared and not there makes a record bad, unless `missing="null"`: a misspelt
name would otherwise be a column of nulls. Fields nobody declared are ignored,
refused, or kept as JSON in the column `_more`, as `new_columns=` says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.sources.live.timed import fitting
from holdfast.sources.parse import text
from holdfast.sources.parse.alone import cleaned, lines_alone, objects_alone, why_not_one_object
from holdfast.sources.parse.bad import Bad, Terms, halved
from holdfast.sources.parse.exact import has_infinite, refuse_hex, refuse_not_infinite
from holdfast.sources.parse.there import LAX, check_there, more_of_text, undeclared_in

__all__ = ["MORE", "Record", "new_columns", "parse_records", "split_payload"]

MORE = "_more"

_JSON = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Record:
    raw: bytes
    given: dict[str, str] = field(default_factory=dict)  # columns known from elsewhere: a topic's levels
    format: str = "json"  # "json" | "csv"
    delimiter: str = ","
    where: str = ""  # topic or sender, for errors


_FORMAT, _GIVEN, _RAW = attrgetter("format", "delimiter"), attrgetter("given"), attrgetter("raw")


def split_payload(payload: bytes, **about: Any) -> Iterator[Record]:
    """One record per JSON object of a payload: itself, or each of an array."""
    body = payload.strip()
    if body.startswith(b"[") or b"\n" in body:
        try:
            parts = _parts(body.decode())
        except (ValueError, RecursionError):
            parts = [body]  # as it is: parsing says what is wrong with it
        yield from (Record(part, **about) for part in parts)
        return
    yield Record(body, **about)


def _parts(text: str) -> list[bytes]:
    """The elements of an array, or the one object, as they were written: a number read and written anew loses digits."""
    parts = []
    if isinstance(json.loads(text), list):
        at = _BLANK.match(text, 1).end()
        while text[at] != "]":
            _, end = _JSON.raw_decode(text, at)
            parts.append(text[at:end])
            at = _BLANK.match(text, end).end()
            if text[at] == ",":
                at = _BLANK.match(text, at + 1).end()
    else:
        parts.append(text)
    # JSON has line ends between its signs only, never inside a text.
    return [re.sub("[\r\n]+", "", part).encode() for part in parts]


def parse_records(
    records: Sequence[Record], terms: Terms, first: int, first_only: bool
) -> tuple[list[pa.Table], list[Bad]]:
    """Tables of the good records; the bad ones by their place. `first`: number of the first, for errors."""
    tables: list[pa.Table] = []
    bad: list[Bad] = []
    at = 0
    for some in _alike(records):
        made, failed = _parsed(some, terms, first_only)
        tables += made
        bad += [_bad(records[at + place], at + place, first + at + place, error, terms) for place, error in failed]
        at += len(some)
        if bad and first_only:
            break
    return tables, bad


def _alike(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """The records in order, in runs of one format and with the same columns given."""
    if len(set(map(_FORMAT, records))) < 2:
        given = list(map(_GIVEN, records))
        if not any(given) or len(set(map(tuple, given))) < 2:
            yield records
            return
    for _, some in groupby(records, lambda each: (each.format, each.delimiter, tuple(each.given))):
        yield list(some)


def _parsed(
    records: Sequence[Record], terms: Terms, first_only: bool
) -> tuple[list[pa.Table], list[tuple[int, Exception]]]:
    """Of records of one kind: tables of the good ones, (place, error) of each bad one."""
    records, alone = _alone(records)
    if alone is None:
        return halved(records, lambda some: _table(some, terms), first_only)
    if first_only and not all(alone):
        alone = alone[: alone.index(False) + 1]
    places = [at for at, is_so in enumerate(alone) if is_so]
    tables, failed = halved([records[at] for at in places], lambda some: _table(some, terms), first_only)
    found = [(places[at], error) for at, error in failed]
    if not (found and first_only):  # else it came before the first that does not stand alone
        found += [(at, ValueError(_why_apart(records[at]))) for at, is_so in enumerate(alone) if not is_so]
    return tables, sorted(found, key=lambda each: each[0])


def _alone(records: Sequence[Record]) -> tuple[Sequence[Record], list[bool] | None]:
    """The records, cleaned where one does not stand alone as it came, and whether each does; None: all do."""
    format = records[0].format
    tell = objects_alone if format == "json" else lines_alone
    alone = tell(list(map(_RAW, records)))
    if alone is None:
        return records, None
    records = [
        record if is_so else replace(record, raw=cleaned(record.raw, format))
        for record, is_so in zip(records, alone, strict=True)
    ]
    return records, tell(list(map(_RAW, records)))


def _why_apart(record: Record) -> str:
    return why_not_one_object(record.raw) if record.format == "json" else "it holds more than one line"


def _table(records: Sequence[Record], terms: Terms) -> pa.Table:
    """All of them, or an exception that names the reason if there is only one."""
    given, kept = records[0].given, terms.new_columns == "keep" and MORE in terms.schema
    read = Schema(tuple(c for c in terms.schema.columns if c.name not in given and not (kept and c.name == MORE)))
    block = b"\n".join(map(_RAW, records))
    block.decode()  # Arrow does not look: text that is not UTF-8 would surface in an operator
    options = {"columns": read.names, "delimiter": records[0].delimiter, "quote": '"'}
    strict = terms.new_columns == "fail" and records[0].format == "json"
    try:
        table = text.parsed(block, records[0].format, options, read, "error" if strict else "ignore")
    except pa.ArrowInvalid as error:
        if strict and len(records) == 1 and (new := _undeclared(records[0], terms)):
            where = f"source {terms.source!r}" + (f", {records[0].where}" if records[0].where else "")
            raise new_columns(new, where) from error
        raise
    if table.num_rows != len(records):
        raise ValueError("it is empty" if not records[0].raw.strip() else "it holds more than one object")
    if records[0].format == "json" and terms.missing != "null":
        check_there(list(map(_RAW, records)), table)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    for name in given:
        if name in terms.schema:
            kind = terms.schema.arrow.field(name).type
            written = pa.chunked_array([[record.given[name] for record in records]], pa.string())
            columns[name] = written.cast(kind)
            if pa.types.is_integer(kind):
                refuse_hex(written, name)
            if has_infinite(columns[name]):
                refuse_not_infinite(columns[name], written, name)
    if kept and records[0].format == "csv":
        columns[MORE] = pa.nulls(len(records), pa.string())  # a line has as many fields as are declared
    elif kept:
        columns[MORE] = pa.array(
            [more_of_text(record.raw.decode(), _declared(terms, record)) for record in records], pa.string()
        )
    return fitting(pa.table([columns[name] for name in terms.schema.names], schema=terms.schema.arrow), terms)


def _declared(terms: Terms, record: Record) -> dict[str, pa.DataType]:
    """What is read from the record itself; a field of its own that is called as ours is one nobody declared."""
    ours = record.given.keys() | ({MORE} if terms.new_columns == "keep" else set())
    return {field.name: field.type for field in terms.schema.arrow if field.name not in ours}


def _undeclared(record: Record, terms: Terms) -> list[str]:
    try:
        return list(undeclared_in(LAX.decode(record.raw.decode()), _declared(terms, record)))
    except (ValueError, RecursionError):
        return []


def _bad(record: Record, at: int, number: int, error: Exception, terms: Terms) -> Bad:
    raw = record.raw.decode(errors="backslashreplace")
    where = f"source {terms.source!r}" + (f", {record.where}" if record.where else "")
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, SourceError):
        placed = SourceError(
            error.code, error.name, error.what, where=error.where or where, why=error.why, effect=error.effect, do=error.do
        )  # fmt: skip
        return Bad(at, placed, error.what, raw)
    shown = raw[:120] + ("..." if len(raw) > 120 else "")
    said = SourceError(
        "HF-S013",
        "BadRecord",
        f"record {number} cannot be read as declared.",
        where=where,
        why=f"{reason}; it was {shown}",
        effect="it is not logged and not acknowledged, nor what came after it; records before it are logged",
        do="mend the sender; or declare bad='quarantine' (kept apart) or bad='drop' and run again",
    )
    return Bad(at, said, reason, raw)


def new_columns(new: Sequence[str], where: str) -> SourceError:
    return SourceError(
        "HF-S014",
        "NewColumns",
        f"a record has fields that are not declared: {', '.join(new)}.",
        where=where,
        why="new_columns='fail' was declared",
        effect="it is not logged and not acknowledged, nor what came after it; records before it are logged",
        do="add them to schema=; or new_columns='ignore', or 'keep' with a column '_more string'",
    )
