"""Numbers for keys: each key a keyed operator has met has a slot, found by hash.

A column's values are numbered as they come (0 stands for null); a key of several
columns is numbered through the pair (number so far, number of the next column).
Numbers are never given twice and stay, so state can be kept in plain arrays by slot.

The hash tables are pandas indexes, which cannot grow: new values go into a new,
small one, and small ones are merged when one is no longer half the size of the one
before. A look-up thus costs what is asked for, not what is known.

Memory only: no file, clock or randomness.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import UsageError

__all__ = ["KeyIndex", "distinct", "is_plain", "normal", "physical", "sorted_by"]

UNKNOWN = -1


def is_plain(kind: pa.DataType) -> bool:
    """Whether values of this type fit a plain numpy array."""
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
    )


def physical(array: pa.Array) -> np.ndarray:
    """The values as numpy holds them, times and dates as integers, null slots as 0."""
    kind = array.type
    if pa.types.is_date32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, False if pa.types.is_boolean(kind) else 0)
    return array.to_numpy(zero_copy_only=False)


def normal(keys: pa.Table) -> pa.Table:
    """One form for keys that are equal: -0.0 is written 0.0."""
    for at, field in enumerate(keys.schema):
        if pa.types.is_floating(field.type):
            zero = pa.scalar(0, type=field.type)
            keys = keys.set_column(at, field, pc.add(keys.column(at), zero))
    return keys


def distinct(keys: pa.Table) -> np.ndarray:
    """Positions of the first row of each distinct key, in order of appearance."""
    rows = keys.num_rows
    codes = np.zeros(rows, dtype=np.int64)
    for at, column in enumerate(keys.columns):
        encoded = _one(column).dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        codes = own if at == 0 else pd.factorize(codes * len(encoded.dictionary) + own)[0]
    count = int(codes.max()) + 1 if rows else 0
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(rows - 1, -1, -1)  # the last assignment wins: the first row
    return first


def sorted_by(keys: pa.Table, shards: np.ndarray | None = None) -> np.ndarray:
    """Positions that sort the keys (by shard first, if given); nulls first."""
    if keys.num_columns == 1 and keys.column(0).null_count == 0:
        column = _one(keys.column(0))
        if is_plain(column.type) and not pa.types.is_floating(column.type):
            order = np.argsort(physical(column), kind="stable")
        else:
            order = pc.sort_indices(column).to_numpy()
    else:
        by = [(name, "ascending", "at_start") for name in keys.column_names]
        order = pc.sort_indices(keys, sort_keys=by).to_numpy()
    if shards is None:
        return order
    # Shards are few: 16 bits make this a radix sort.
    return order[np.argsort(shards[order].astype(np.uint16), kind="stable")]


class KeyIndex:
    """Slots of keys. `find` never changes it, `add` only makes it longer."""

    def __init__(self, keys: pa.Schema) -> None:
        for field in keys:
            if pa.types.is_nested(field.type):
                raise UsageError(
                    "HF-O012",
                    "KeyNotComparable",
                    f"column {field.name!r} of type {field.type} cannot be a key.",
                    why="arrays, maps and structs have no hash here",
                    effect="nothing was read",
                    do="select the fields you mean into columns of their own",
                )
        self._columns = [_Numbers() for _ in keys]
        self._pairs = [_Numbers() for _ in list(keys)[1:]]

    @property
    def size(self) -> int:
        """Slots given so far; slot numbers are below it."""
        last = self._pairs[-1] if self._pairs else self._columns[0]
        return last.size + 1

    def find(self, keys: pa.Table) -> np.ndarray:
        """A slot for each row, -1 where the key was never met."""
        return self._slots(keys, add=False)

    def add(self, keys: pa.Table) -> np.ndarray:
        """A slot for each row. Rows must be distinct."""
        return self._slots(keys, add=True)

    def _slots(self, keys: pa.Table, add: bool) -> np.ndarray:
        slots = self._number(self._columns[0], _one(keys.column(0)), add)
        for numbers, pairs, column in zip(self._columns[1:], self._pairs, keys.columns[1:], strict=True):
            own = self._number(numbers, _one(column), add)
            known = (slots >= 0) & (own >= 0)
            joined = (slots << 32) | own
            if add:
                slots = pairs.add(joined) + 1
            else:
                slots = np.where(known, pairs.find(joined) + 1, UNKNOWN)
                slots[slots == 0] = UNKNOWN
        return slots

    @staticmethod
    def _number(numbers: _Numbers, column: pa.Array, add: bool) -> np.ndarray:
        valid = None
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            column = column.drop_null()
        values = _values(column)
        found = numbers.add(values) if add else numbers.find(values)
        found = np.where(found < 0, UNKNOWN, found + 1)
        if valid is None:
            return found
        slots = np.zeros(len(valid), dtype=np.int64)
        slots[valid] = found
        return slots


class _Numbers:
    """Values numbered in the order in which they were first added."""

    def __init__(self) -> None:
        self._levels: list[tuple[int, pd.Index]] = []  # first number, values
        self.size = 0

    def find(self, values: np.ndarray) -> np.ndarray:
        found = np.full(len(values), UNKNOWN, dtype=np.int64)
        left: np.ndarray | None = None
        for start, level in self._levels:
            asked = values if left is None else values[left]
            if not len(asked):
                break
            at = level.get_indexer(pd.Index(asked, dtype=level.dtype))
            at = np.where(at < 0, UNKNOWN, at + start)
            if left is None:
                found = at
                left = np.flatnonzero(at < 0)
            else:
                found[left] = at
                left = left[at < 0]
        return found

    def add(self, values: np.ndarray) -> np.ndarray:
        found = self.find(values)
        unknown = found < 0
        if unknown.any():
            numbers, fresh = pd.factorize(values[unknown], use_na_sentinel=False)
            found[unknown] = numbers + self.size
            self._levels.append((self.size, pd.Index(fresh, dtype=values.dtype)))
            self.size += len(fresh)
            while len(self._levels) > 1 and len(self._levels[-2][1]) < 2 * len(self._levels[-1][1]):
                _, newest = self._levels.pop()
                start, before = self._levels.pop()
                self._levels.append((start, before.append(newest)))
        return found


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _values(column: pa.Array) -> np.ndarray:
    if pa.types.is_floating(column.type):
        return physical(column).astype(np.float64) + 0.0  # -0.0 and 0.0 are one key
    if is_plain(column.type):
        return physical(column).astype(np.int64, copy=False)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return column.to_numpy(zero_copy_only=False)
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_pylist()
    return values
