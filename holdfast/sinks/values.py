"""Arrow columns as values that SQLite can hold, a column at a time.

Times are ISO-8601 text in UTC with six digits, so text order is time order in the years
1 to 9999; others are written with the digits and the sign they need. Decimals are text, so
no digit is lost; nested values are JSON. NaN becomes NULL, because SQLite has no NaN; it
stores -0.0 as 0.0. Pure: no connection.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["affinity_of", "sql_columns"]

_EPOCH = datetime(1970, 1, 1)


def affinity_of(kind: pa.DataType) -> str:
    """The type of a column in a table of ours."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    if pa.types.is_binary(kind):
        return "BLOB"
    return "TEXT"


def sql_columns(table: pa.Table) -> list[list]:
    """Per column a list of Python values; vectorised except for nested columns."""
    return [_values(column) for column in table.columns]


def _values(column: pa.ChunkedArray) -> list:
    kind = column.type
    if pa.types.is_timestamp(kind):
        # Arrow writes "2026-11-15 10:31:06.000000Z"; years after 9999 and before 1 have other lengths.
        column = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date(kind):
        column = column.cast(pa.string())
    elif pa.types.is_decimal(kind):
        # Arrow's own text may be scientific ("1E-9"); format 'f' never is.
        return [None if value is None else format(value, "f") for value in column.to_pylist()]
    elif pa.types.is_nested(kind):
        # As numbers: Python's own times end at the year 9999.
        column = column.cast(_numbered(kind))
        plain = _plain(kind)
        return [
            None if value is None else json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
            for value in column.to_pylist()
        ]
    return column.to_pylist()


def _numbered(kind: pa.DataType) -> pa.DataType:
    """The type with its times and dates as numbers."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_numbered(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_numbered(kind.key_type), _numbered(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbered(kind.value_type)))
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def _moment(value: int, kind: pa.DataType) -> str:
    try:
        if pa.types.is_date32(kind):
            return (_EPOCH + timedelta(days=value)).date().isoformat()
        return (_EPOCH + timedelta(microseconds=value)).isoformat(timespec="microseconds") + "Z" * bool(kind.tz)
    except OverflowError:  # before the year 1 or after 9999
        return pa.scalar(value, kind).cast(pa.string()).as_py().replace(" ", "T", 1)


def _plain(kind: pa.DataType) -> Callable[[Any], Any]:
    """A function that turns one value of a type into what JSON has."""
    if pa.types.is_struct(kind):
        fields = [(field.name, _plain(field.type)) for field in kind]
        return lambda value: None if value is None else {name: f(value[name]) for name, f in fields}
    if pa.types.is_map(kind):
        key, item = _plain(kind.key_type), _plain(kind.item_type)
        if pa.types.is_string(kind.key_type):
            return lambda value: None if value is None else {k: item(v) for k, v in value}
        return lambda value: None if value is None else [[key(k), item(v)] for k, v in value]
    if pa.types.is_nested(kind):
        inner = _plain(kind.value_type)
        return lambda value: None if value is None else [inner(v) for v in value]
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return lambda value: None if value is None else _moment(value, kind)
    if pa.types.is_decimal(kind):
        return lambda value: None if value is None else format(value, "f")
    if pa.types.is_binary(kind):
        return lambda value: None if value is None else value.hex()
    if pa.types.is_floating(kind):
        return _plain_float
    return lambda value: value


def _plain_float(value: float | None) -> float | str | None:
    """JSON knows neither NaN nor infinity."""
    if value is None or math.isnan(value):
        return None
    return str(value) if math.isinf(value) else value
