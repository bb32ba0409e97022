"""Between pandas and Arrow: exact columns, group numbers, lists of rows per key.

The built-ins compute on Arrow columns, where a null is not a NaN and an integer
with nulls stays an integer, and number their groups in order of appearance, so
that results depend on the order of rows and on nothing else.

Pure: no Spark, session, clock or file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.schemas import Schema

__all__ = [
    "TIMESTAMP",
    "Groups",
    "df_of",
    "group_ids",
    "in_order",
    "list_offsets",
    "micros",
    "micros_of",
    "pack_lists",
    "search",
    "table_of",
    "timestamps",
    "unpack_lists",
]

TIMESTAMP = pa.timestamp("us", tz="UTC")


def table_of(df: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """The columns of `schema` out of `df`, one chunk each."""
    return pa.table([_array(df[field.name], field.type) for field in schema], schema=schema)


def _array(series: pd.Series, kind: pa.DataType) -> pa.Array:
    if isinstance(series.dtype, pd.ArrowDtype):
        found = series.array.__arrow_array__()
        if isinstance(found, pa.ChunkedArray):
            found = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
        return found if found.type == kind else found.cast(kind)
    if pa.types.is_integer(kind) and series.dtype.kind == "f":
        # pandas' way of holding integers with nulls.
        return pa.array(series, from_pandas=True).cast(kind)
    return pa.array(series, type=kind, from_pandas=True)


def df_of(table: pa.Table) -> pd.DataFrame:
    """As pandas, with Arrow's types: nothing is copied, no null becomes a NaN."""
    columns = {
        name: pd.arrays.ArrowExtensionArray(column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=False)


@dataclass(frozen=True, slots=True)
class Groups:
    ids: np.ndarray  # group of each row, numbered in order of appearance
    first: np.ndarray  # row at which each group appears

    @property
    def count(self) -> int:
        return len(self.first)


def group_ids(columns: Sequence[pa.Array | pa.ChunkedArray | np.ndarray]) -> Groups:
    """Numbers rows by equal values of `columns`; nulls are equal to each other."""
    ids: np.ndarray | None = None
    for column in columns:
        if isinstance(column, np.ndarray):
            codes, size = pd.factorize(column)[0], len(column)
        else:
            flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            encoded = flat.dictionary_encode(null_encoding="encode")
            codes, size = encoded.indices.to_numpy(zero_copy_only=False), len(encoded.dictionary)
        codes = codes.astype(np.int64)
        # Renumbered after each column, so that the product stays far below 2**63.
        ids = codes if ids is None else pd.factorize(ids * (size + 1) + codes)[0].astype(np.int64)
    if ids is None:
        raise ValueError("grouping needs a column")
    first = np.zeros(int(ids.max()) + 1 if len(ids) else 0, dtype=np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return Groups(ids, first)


def in_order(columns: Sequence[pa.Array | pa.ChunkedArray]) -> np.ndarray:
    """Row numbers sorted by `columns`: nulls first, NaN last, as Spark orders them."""
    keys: dict[str, pa.Array | pa.ChunkedArray] = {}
    for at, column in enumerate(columns):
        if pa.types.is_floating(column.type):
            keys[f"nan{at}"] = pc.fill_null(pc.is_nan(column), False)
        keys[f"at{at}"] = column
    by = [(name, "ascending", "at_start") for name in keys]
    return pc.sort_indices(pa.table(keys), sort_keys=by).to_numpy()


def micros(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Timestamps as integers of microseconds; the caller has dealt with nulls."""
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return flat.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def micros_of(moment: pd.Timestamp) -> int:
    return int(moment.value) // 1000  # `value` is in nanoseconds whatever the unit


def timestamps(values: np.ndarray, null: np.ndarray | None = None) -> pa.Array:
    return pa.array(values, type=pa.int64(), mask=null).cast(TIMESTAMP)


def list_offsets(ids: np.ndarray, count: int) -> np.ndarray:
    """Where each group's rows begin, for rows already sorted by group."""
    return np.concatenate([[0], np.cumsum(np.bincount(ids, minlength=count))])


def pack_lists(table: pa.Table, ids: np.ndarray, count: int, schema: Schema) -> list[pa.Array]:
    """One list per group and column of `table`, whose rows are sorted by group."""
    offsets = pa.array(list_offsets(ids, count), type=pa.int32())
    packed = []
    for name in table.column_names:
        column = table.column(name)
        flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        kind = schema.arrow.field(name).type
        packed.append(pa.ListArray.from_arrays(offsets, flat.cast(kind.value_type), type=kind))
    return packed


def unpack_lists(table: pa.Table, names: Sequence[str]) -> tuple[pa.Table, np.ndarray]:
    """The rows inside the list columns `names`, and the row of `table` each came from."""
    lists = [table.column(name).combine_chunks() for name in names]
    lengths = pc.fill_null(pc.list_value_length(lists[0]), 0).to_numpy(zero_copy_only=False)
    owners = np.repeat(np.arange(table.num_rows), lengths)
    return pa.table([one.flatten() for one in lists], names=list(names)), owners


def search(values: np.ndarray, low: np.ndarray, high: np.ndarray, wanted: np.ndarray, *, right: bool) -> np.ndarray:
    """np.searchsorted of each `wanted` inside its own stretch [low, high) of `values`."""
    low, high = low.copy(), high.copy()
    while (open_ := low < high).any():
        middle = (low + high) >> 1
        found = values[np.where(open_, middle, 0)]
        after = (found <= wanted) if right else (found < wanted)
        low = np.where(open_ & after, middle + 1, low)
        high = np.where(open_ & ~after, middle, high)
    return low
