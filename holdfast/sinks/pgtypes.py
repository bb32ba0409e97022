"""Arrow columns as PostgreSQL reads them: types, and rows as CSV for COPY.

A column goes over at a time, in Arrow's own code; only binary and nested columns
take the way through Python. Every value is quoted and a null is not, so that an
empty text stays one. Pure: no connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from holdfast.sinks.values import sql_columns

__all__ = ["as_csv", "holds", "refuse_altered", "type_of"]

_WIDER = (("smallint", "integer", "bigint"), ("real", "double precision"))
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_CSV = pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid")


def type_of(kind: pa.DataType) -> str:
    """The type of a column in a table of ours, as PostgreSQL's format_type names it."""
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return {8: "smallint", 16: "smallint", 32: "integer"}.get(kind.bit_width, "bigint")
    if pa.types.is_floating(kind):
        return "real" if kind.bit_width == 32 else "double precision"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp without time zone"
    if pa.types.is_date(kind):
        return "date"
    if pa.types.is_binary(kind):
        return "bytea"
    return "jsonb" if pa.types.is_nested(kind) else "text"


def holds(declared: str, wanted: str) -> bool:
    """Whether a column of a declared type keeps our values as they are.

    A `varchar(n)` and a `uuid` are taken, and single values refused (`refuse_altered`).
    `char(n)` pads every value, so it is not.
    """
    if declared == wanted or (
        declared == "numeric" and wanted.startswith(("numeric", "smallint", "integer", "bigint"))
    ):
        return True
    for kinds in _WIDER:
        if declared in kinds and wanted in kinds:
            return kinds.index(declared) >= kinds.index(wanted)
    if wanted == "text":
        return declared.startswith("character varying") or declared == "uuid"
    if wanted == "jsonb":
        return declared in ("json", "text")
    if wanted.startswith("numeric"):
        there, ours = (re.fullmatch(r"numeric\((\d+),(-?\d+)\)", each) for each in (declared, wanted))
        if there and ours:
            digits, places = int(there[1]), int(there[2])
            return places >= int(ours[2]) and digits - places >= int(ours[1]) - int(ours[2])
    return False


def refuse_altered(table: pa.Table, declared: Mapping[str, str]) -> None:
    """ValueError if a column of the table that is there would take a text and keep another one.

    A `varchar(n)` drops blanks beyond n, which makes one key of two; a `uuid` is kept in its one
    form, whatever was written. `declared`: the columns of the table, in PostgreSQL's words.
    """
    for name in table.column_names:
        kind, column = declared.get(name, ""), table.column(name)
        if kind == "uuid":
            fits = pc.match_substring_regex(column, _UUID)
        elif limit := re.fullmatch(r"character varying\((\d+)\)", kind):
            if not pa.types.is_string(column.type):
                column = _text(column)
            fits = pc.less_equal(pc.utf8_length(column), int(limit[1]))
        else:
            continue
        if pc.all(fits).as_py() is False:
            value = column.filter(pc.invert(fits))[0].as_py()
            raise ValueError(f"column {name!r} is {kind} and would not keep {value[:80]!r} as it is")


def as_csv(table: pa.Table, frame: int, places: Sequence[int], declared: Mapping[str, str] | None = None) -> bytes:
    """The rows with their stream time, (`_frame`, `_i`), as COPY reads them."""
    rows = table.num_rows
    for at, field in enumerate(table.schema):
        # The digits that name a float among floats name another number among doubles.
        if pa.types.is_float32(field.type) and (declared or {}).get(field.name) == "double precision":
            table = table.set_column(at, field.name, table.column(at).cast(pa.float64()))
    columns = [_text(column) for column in table.columns]
    columns += [pa.repeat(pa.scalar(frame, pa.int64()), rows), pa.array(places, pa.int64())]
    out = pa.BufferOutputStream()
    # Names do not go over; numbers, because two columns of a table need two.
    pyarrow.csv.write_csv(pa.table(columns, names=[str(at) for at in range(len(columns))]), out, _CSV)
    return out.getvalue().to_pybytes()


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return column.cast(pa.string())
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_nested(kind):
        return pa.array(sql_columns(pa.table({"nested": column}))[0], pa.string())
    return column
