"""Values that Arrow would take and change: 1.5 as the integer 1, 1e300 as an infinite float, a moment as a date.

Arrow refuses what does not fit, with these exceptions. Of text only numbers that are too great are concerned, which
its parsers take for infinite, and whole numbers in hexadecimal: they refuse the others. Of other files `fit` compares every value.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, time
from numbers import Number, Real
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

__all__ = [
    "dates_as_text",
    "has_infinite",
    "holds_rounded",
    "refuse_hex",
    "refuse_infinite",
    "refuse_not_infinite",
    "refuse_rounded",
    "widened",
]

_FLOAT_MAX = 3.4028235677973366e38  # from here on a 32-bit float is infinite
_MIDNIGHT = time()


def holds_rounded(kind: pa.DataType) -> bool:
    """Whether a column of this type may take a value and keep another."""
    if kinds.is_nested(kind):
        return any(holds_rounded(kind.field(at).type) for at in range(kind.num_fields))
    is_whole = kinds.is_integer(kind) or kinds.is_timestamp(kind) or kinds.is_date(kind)
    return is_whole or kinds.is_float32(kind)


def refuse_rounded(value: Any, kind: pa.DataType, name: str) -> None:
    """ValueError if the value would become another one."""
    if value is None:
        return
    if kinds.is_struct(kind):
        if not isinstance(value, Mapping):  # as Arrow reads it: a tuple by place, another sequence as pairs
            value = dict(zip(kind.names, value, strict=False)) if isinstance(value, tuple) else dict(value)
        for field in kind:
            refuse_rounded(value.get(field.name), field.type, f"{name}.{field.name}")
    elif kinds.is_map(kind):
        for key, item in value.items() if isinstance(value, Mapping) else value:
            refuse_rounded(key, kind.key_type, name)
            refuse_rounded(item, kind.item_type, name)
    elif kinds.is_nested(kind):
        if holds_rounded(kind.value_type):
            for each in value:
                refuse_rounded(each, kind.value_type, name)
    elif kinds.is_float32(kind):
        if isinstance(value, Real) and math.isfinite(value) and abs(value) >= _FLOAT_MAX:  # type: ignore[operator]
            raise ValueError(f"{name} = {value!r} would become infinite as float; declare double")
    elif kinds.is_timestamp(kind):
        if isinstance(value, Number):
            raise ValueError(f"{name} = {value!r} is no time: give a datetime")
    elif kinds.is_integer(kind):
        if value != int(value):  # of any type that Arrow takes for a number: NumPy's, fractions
            raise ValueError(f"{name} = {value!r} would become {int(value)}; declare double or decimal")
    elif kinds.is_date(kind):
        if isinstance(value, Number):
            raise ValueError(f"{name} = {value!r} is no date: give a date")  # Arrow takes numbers, of days
        if isinstance(value, datetime) and value.timetz().replace(tzinfo=None) != _MIDNIGHT:
            raise ValueError(f"{name} = {value!r} would lose its time of day; declare timestamp")


# -- text ----------------------------------------------------------------------------


def has_infinite(column: pa.ChunkedArray) -> bool:
    return any(_infinite(chunk) for chunk in column.chunks)


def _infinite(array: pa.Array) -> int:
    """How many infinite numbers there are, at any depth."""
    if kinds.is_floating(array.type):
        return pc.sum(pc.is_inf(array)).as_py() or 0
    if kinds.is_struct(array.type):
        return sum(_infinite(pc.struct_field(array, [at])) for at in range(array.type.num_fields))
    return _infinite(array.flatten()) if kinds.is_list(array.type) else 0


def widened(field: pa.Field) -> pa.Field:
    """With doubles for floats, at any depth."""
    return field.with_type(_mapped(field.type, kinds.is_float32, pa.float64()))


def dates_as_text(field: pa.Field) -> pa.Field:
    """With text for dates, at any depth."""
    return field.with_type(_mapped(field.type, kinds.is_date, pa.string()))


def _mapped(kind: pa.DataType, is_one: Callable[[pa.DataType], bool], other: pa.DataType) -> pa.DataType:
    if kinds.is_struct(kind):
        return pa.struct([each.with_type(_mapped(each.type, is_one, other)) for each in kind])
    if kinds.is_list(kind):
        return pa.list_(kind.value_field.with_type(_mapped(kind.value_type, is_one, other)))
    return other if is_one(kind) else kind


def refuse_infinite(table: pa.Table, wide: pa.Table) -> None:
    """ArrowInvalid if a number that a double can hold became infinite as float."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if sum(map(_infinite, column.chunks)) != sum(map(_infinite, wide.column(name).chunks)):
            raise pa.ArrowInvalid(f"a number of column {name!r} is too great for float")


def refuse_hex(as_text: pa.ChunkedArray, name: str) -> None:
    """ArrowInvalid if a whole number is written in hexadecimal: Arrow reads 0xFFFFFFFF as -1, and a sender's 0x10 was perhaps a name."""
    found = as_text.filter(pc.match_substring_regex(as_text, r"^\s*0[xX]"))
    if len(found):
        raise pa.ArrowInvalid(f"{found[0].as_py()} is no decimal number (column {name!r})")


def refuse_not_infinite(column: pa.ChunkedArray, as_text: pa.ChunkedArray, name: str) -> None:
    """ArrowInvalid if what was read as infinite is a number in the text."""
    texts = as_text.filter(pc.is_inf(column))
    numbers = texts.filter(pc.match_substring_regex(texts, "[0-9]"))
    if len(numbers):
        raise pa.ArrowInvalid(f"{numbers[0].as_py()} is too great for {column.type} (column {name!r})")
