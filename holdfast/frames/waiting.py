"""Rows that were sealed under an earlier declaration of their stream, as the stream's columns are now.

A frame may wait for its consumer while the operator that made it is changed. Its columns are
found by name, never by place. A value that the columns of today cannot hold as it is (its column
is gone or renamed, a field of it is gone, its type is narrower) is not left out and not changed:
`NotAsDeclared` names the column.

Pure: no clock, file or Spark.
"""

from __future__ import annotations

import pyarrow as pa

from holdfast.frames.content import checksum
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema

__all__ = ["NotAsDeclared", "as_declared"]


class NotAsDeclared(ValueError):
    """The frame's rows would not be the same rows in the columns of today."""

    def __init__(self, column: str, what: str) -> None:
        self.column, self.what = column, what
        super().__init__(f"column {column!r}: {what}")


def as_declared(table: pa.Table, schema: Schema, *, fills: bool) -> pa.Table:
    """The columns of `schema` in its order. `fills`: one that the rows do not have yet is null."""
    wanted = schema.arrow
    if table.schema.equals(wanted):
        return table
    for name in table.column_names:
        if name not in wanted.names and table.column(name).null_count < table.num_rows:
            raise NotAsDeclared(name, f"a column {name!r}, which the stream no longer has")
    columns = []
    for field in wanted:
        if field.name in table.column_names:
            columns.append(_kept(table.column(field.name), field))
        elif fills or not table.num_rows:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            raise NotAsDeclared(field.name, f"no column {field.name!r}, which the stream has now")
    return pa.Table.from_arrays(columns, schema=wanted)


def _kept(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """The column in its new type, in which every value says what it said."""
    if column.type == field.type:
        return column
    other = f"a column {field.name!r} of {column.type}, of which not every value is the same as {field.type}"
    try:
        made = column.cast(field.type)
        back = made.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise NotAsDeclared(field.name, other) from error
    if _sum(column) != _sum(back):
        raise NotAsDeclared(field.name, other)
    return made


def _sum(column: pa.ChunkedArray) -> str:
    """Of all bits: NaN is NaN, and -0.0 is not 0.0."""
    schema = Schema.of(pa.schema([("x", column.type)]))
    table = pa.Table.from_arrays([column], schema=schema.arrow)
    return checksum(table, n=1, boundary_us=0, kind=Kind.STABLE)
