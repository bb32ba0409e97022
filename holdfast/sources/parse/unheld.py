"""Rows with a value that a sink below cannot hold: bad records, found before they are logged.

Looked for are the values themselves, wherever they are nested; what operators make of
them, or make new, is the sink's own affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.errors import SourceError
from holdfast.graph.reaching import AFTER_9999, BEFORE_1, NUL

__all__ = ["held"]

_YEAR_1_US, _YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000
_DAY_US = 86_400_000_000


def held(table: pa.Table, unheld: Mapping[str, str]) -> pa.Table:
    """The table; raises HF-S051 if it holds one of `unheld` (what: sink)."""
    if not unheld:
        return table
    for name, column in zip(table.column_names, table.columns, strict=True):
        for leaf in (leaf for chunk in column.chunks for leaf in _leaves(chunk)):
            for what in _found(leaf):
                if what in unheld:
                    raise _not_held(name, what, unheld[what])
    return table


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if kinds.is_struct(kind):
        for each in array.flatten():
            yield from _leaves(each)
    elif kinds.is_map(kind):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif kinds.is_list(kind) or kinds.is_large_list(kind):
        yield from _leaves(array.flatten())
    else:
        yield array


def _found(leaf: pa.Array) -> Iterator[str]:
    kind = leaf.type
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        if pc.any(pc.match_substring(leaf, "\0")).as_py():
            yield NUL
    elif kinds.is_timestamp(kind) or kinds.is_date32(kind):
        days = kinds.is_date32(kind)
        span = pc.min_max(leaf.cast(pa.int32() if days else pa.int64())).as_py()
        if span["min"] is not None:
            scale = _DAY_US if days else 1  # our timestamps are of microseconds
            if span["min"] * scale < _YEAR_1_US:
                yield BEFORE_1
            if span["max"] * scale >= _YEAR_10000_US:
                yield AFTER_9999


def _not_held(column: str, what: str, sink: str) -> SourceError:
    return SourceError(
        "HF-S051",
        "NotHeldBelow",
        f"column {column!r} holds {what}.",
        why=f"sink {sink!r} below could not write it, and its frame would stand for ever",
        effect="the record is not logged and not acknowledged, nor what came after it; those before it are logged",
        do="mend the sender; or declare bad='quarantine' (kept apart) or bad='drop' and run again",
    )
