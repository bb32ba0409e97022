"""One column of keyed state in memory: values by slot, written and read in bulk.

Numbers, times and booleans lie in a numpy array beside a mask of what is not null.
Everything else stays in Arrow: arrays as they were put, and by slot the place of the
newest value among them; arrays are merged like runs, and when most of what they hold
has been replaced they are written anew.

What comes out of `take` is the same Arrow array whether a value was put there by the
frame before or read from a file, so a restart cannot change a byte.

Memory only: no file, clock or randomness.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.operators.index import is_plain, physical

__all__ = ["PlainColumn", "PooledColumn", "slot_column"]

# Arrow's strings and lists have 32-bit offsets: a merged array must stay far below.
_MERGED_BYTES_MAX = 1 << 29


def slot_column(kind: pa.DataType) -> PlainColumn | PooledColumn:
    return PlainColumn(kind) if is_plain(kind) else PooledColumn(kind)


class PlainColumn:
    """Fixed-width values."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._values = physical(pa.array([], type=kind)).copy()
        self._valid = np.empty(0, dtype=bool)

    def grow(self, room: int) -> None:
        """Makes room for slots below `room`."""
        more = room - len(self._valid)
        self._values = np.concatenate([self._values, np.zeros(more, self._values.dtype)])
        self._valid = np.concatenate([self._valid, np.zeros(more, bool)])

    def put(self, slots: np.ndarray, column: pa.ChunkedArray) -> None:
        array = _one(column)
        self._values[slots] = physical(array)
        if array.null_count:
            self._valid[slots] = array.is_valid().to_numpy(zero_copy_only=False)
        else:
            self._valid[slots] = True

    def clear(self, slots: np.ndarray) -> None:
        """Makes these null."""
        self._values[slots] = 0
        self._valid[slots] = False

    def take(self, slots: np.ndarray) -> pa.Array:
        valid = self._valid[slots]
        mask = None if valid.all() else ~valid
        array = pa.array(self._values[slots], mask=mask, from_pandas=False)
        return array if array.type == self._type else array.view(self._type)

    def at_most(self, limit: int) -> np.ndarray:
        """Slots that hold a value up to `limit`."""
        return np.flatnonzero(self._valid & (self._values <= limit))


class PooledColumn:
    """Strings, decimals, lists, structs, maps."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._pool: list[pa.Array] = []
        self._size = 0
        self._size_max = 1024  # beyond it, values no slot points to are dropped
        self._place = np.empty(0, dtype=np.int64)

    def grow(self, room: int) -> None:
        more = np.full(room - len(self._place), -1, dtype=np.int64)
        self._place = np.concatenate([self._place, more])

    def put(self, slots: np.ndarray, column: pa.ChunkedArray) -> None:
        if not len(slots):
            return
        self._append(_one(column))
        self._place[slots] = np.arange(self._size - len(slots), self._size)
        if self._size > self._size_max:
            used = np.flatnonzero(self._place >= 0)
            values = self.take(used)
            self._pool, self._size = [], 0
            self._append(values)
            self._place[used] = np.arange(len(used))
            self._size_max = 2 * len(used) + 1024

    def clear(self, slots: np.ndarray) -> None:
        self._place[slots] = -1

    def take(self, slots: np.ndarray) -> pa.Array:
        places = self._place[slots]
        if not self._pool:
            return pa.nulls(len(slots), self._type)
        if len(self._pool) == 1:
            return _take(self._pool[0], places)
        starts = np.cumsum([0, *(len(array) for array in self._pool[:-1])])
        which = np.maximum(np.searchsorted(starts, places, side="right") - 1, 0)
        order = np.argsort(which.astype(np.uint8), kind="stable")
        counts = np.bincount(which, minlength=len(starts))
        parts, at = [], 0
        for array, start, count in zip(self._pool, starts, counts, strict=True):
            own = places[order[at : at + count]]
            parts.append(_take(array, np.where(own < 0, -1, own - start)))
            at += count
        back = np.empty(len(slots), dtype=np.int64)
        back[order] = np.arange(len(slots))
        return pa.concat_arrays(parts).take(pa.array(back))

    def _append(self, array: pa.Array) -> None:
        self._pool.append(array)
        self._size += len(array)
        while len(self._pool) > 1 and len(self._pool[-2]) < 2 * len(self._pool[-1]):
            if self._pool[-2].nbytes + self._pool[-1].nbytes > _MERGED_BYTES_MAX:
                break
            self._pool[-2:] = [pa.concat_arrays(self._pool[-2:])]


def _take(array: pa.Array, places: np.ndarray) -> pa.Array:
    missing = places < 0
    return array.take(pa.array(places, mask=missing if missing.any() else None))


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
