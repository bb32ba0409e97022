"""Python values that Arrow would take and change: 1.5 as the integer 1, 1e300 as an infinite float, a moment as a date.

Arrow refuses what does not fit, with these exceptions. Text and files are not concerned:
their parsers refuse them, or `fit` compares every value.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, time
from decimal import Decimal
from numbers import Real

import pyarrow as pa
import pyarrow.types as kinds

__all__ = ["holds_rounded", "refuse_rounded"]

_FLOAT_MAX = 3.4028235677973366e38  # from here on a 32-bit float is infinite
_MIDNIGHT = time()


def holds_rounded(kind: pa.DataType) -> bool:
    """Whether a column of this type may take a value and keep another."""
    if kinds.is_nested(kind):
        return any(holds_rounded(kind.field(at).type) for at in range(kind.num_fields))
    is_whole = kinds.is_integer(kind) or kinds.is_timestamp(kind) or kinds.is_date(kind)
    return is_whole or kinds.is_float32(kind)


def refuse_rounded(value: object, kind: pa.DataType, name: str) -> None:
    """ValueError if the value would become another one."""
    if value is None:
        return
    if kinds.is_struct(kind):
        if isinstance(value, Mapping):
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
        if isinstance(value, Real) and math.isfinite(value) and abs(value) >= _FLOAT_MAX:
            raise ValueError(f"{name} = {value!r} would become infinite as float; declare double")
    elif kinds.is_timestamp(kind):
        if isinstance(value, float | Decimal):
            raise ValueError(f"{name} = {value!r} is no time: give a datetime")
    elif kinds.is_integer(kind):
        if isinstance(value, float | Decimal) and value != int(value):
            raise ValueError(f"{name} = {value!r} would become {int(value)}; declare double or decimal")
    elif kinds.is_date(kind) and isinstance(value, datetime) and value.timetz().replace(tzinfo=None) != _MIDNIGHT:
        raise ValueError(f"{name} = {value!r} would lose its time of day; declare timestamp")
