"""The total order of rows: by column, ascending, nulls first.

The place of a row after this sort is its stream time inside the frame, so the
order may depend on values alone. Numbers go by value (-0.0 before 0.0, NaN
last), text and binary by bytes, lists element by element with the shorter
first, structs field by field, maps by their sorted entries. Rows that tie in
every column are equal, so their order cannot be seen.

Columns are compared one after the other and only where rows still tie: a frame that arrives sorted costs one
comparison of its first column.

Pure: pyarrow and numpy only. Expects the layout of `frames.layout.plain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import invariant
from holdfast.frames.layout import is_fixed, is_text, validity

__all__ = ["total_order"]


class _Key(Protocol):
    """Part of a column as numbers that sort as its values do."""

    def at(self, rows: np.ndarray | None, tied: np.ndarray | None) -> np.ndarray:
        """Numbers of these rows (None: all).

        Where neighbours marked `tied` (None: all) do not fall, only these will be
        compared; where one falls, the numbers must hold between any two rows.
        """


def total_order(columns: Sequence[pa.Array]) -> np.ndarray | None:
    """The permutation that sorts the rows; None when they are sorted already."""
    size = len(columns[0]) if columns else 0
    if size < 2:
        return None
    order: np.ndarray | None = None  # None stands for 0, 1, 2, ...
    places: np.ndarray | None = None  # where rows still tie; None: everywhere
    groups: np.ndarray | None = None  # which of them tie with each other
    for key in (key for column in columns for key in _keys(column)):
        rows = places if order is None else order if places is None else order[places]
        tied = None if groups is None else groups[1:] == groups[:-1]
        numbers = key.at(rows, tied)
        falls = numbers[1:] < numbers[:-1]
        if tied is not None:
            falls &= tied
        if falls.any():
            if order is None:
                order = np.arange(size)
            moved = _sorted(numbers, groups)
            if places is None:
                order = order[moved]
            else:
                order[places] = order[places][moved]
            numbers = numbers[moved]
        still = numbers[1:] == numbers[:-1]
        if tied is not None:
            still &= tied
        if not still.any():
            break
        member = np.zeros(len(numbers), dtype=bool)
        member[1:] = still
        member[:-1] |= still
        starts = np.ones(len(numbers), dtype=bool)
        starts[1:] = ~still
        groups = np.cumsum(starts)[member]
        places = np.flatnonzero(member) if places is None else places[member]
    return order


def _sorted(numbers: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """Places of the numbers in order, group by group. Ties may fall either way.

    Groups are already in order, so a group never leaves its range.
    """
    if groups is None:
        return np.argsort(numbers)
    low, high = int(numbers.min()), int(numbers.max())
    span = high - low + 1
    if high < 2**63 and span * (int(groups[-1]) + 1) < 2**63:
        # One sort of one number takes a third of lexsort's time.
        return np.argsort(groups * span + (numbers.astype(np.int64) - low))
    return np.lexsort((numbers, groups))


def _keys(array: pa.Array) -> Iterator[_Key]:
    """What to compare, most significant first. Lazy: most are never needed."""
    valid = validity(array)
    if valid is not None:
        yield _Numbers(valid)
    kind = array.type
    if pa.types.is_boolean(kind):
        yield _Numbers(array.fill_null(False).to_numpy(zero_copy_only=False))
    elif pa.types.is_decimal128(kind):
        words = np.frombuffer(array.buffers()[1], dtype="<i8").reshape(len(array), 2)
        yield _Numbers(words[:, 1])
        yield _Numbers(words[:, 0].view("<u8"))
    elif pa.types.is_floating(kind):
        yield _Numbers(_float_numbers(array))
    elif is_fixed(kind):
        yield _Numbers(np.frombuffer(array.buffers()[1], dtype=f"<i{kind.bit_width // 8}"))
    elif is_text(kind):
        yield _Texts(array)
    elif pa.types.is_struct(kind):
        for child in array.flatten() if kind.num_fields else []:
            yield from _keys(child)
    elif pa.types.is_list(kind):
        yield from _list_keys(array, [array.values])
    elif pa.types.is_map(kind):
        yield from _list_keys(array, [array.keys, array.items])
    else:
        invariant(False, f"a column of type {kind} has no order")


def _float_numbers(array: pa.Array) -> np.ndarray:
    """IEEE bits read as integers, negatives turned round: a total order."""
    width = array.type.bit_width // 8
    bits = np.frombuffer(array.buffers()[1], dtype=f"<i{width}")
    rest = np.iinfo(bits.dtype).max
    return np.where(bits < 0, bits ^ rest, bits)


def _list_keys(array: pa.Array, children: list[pa.Array]) -> Iterator[_Key]:
    """Element by element: is there one, and what is it."""
    offsets = np.frombuffer(array.buffers()[1], dtype="<i4", count=len(array) + 1)
    lengths = np.diff(offsets)
    inner = [key for child in children for key in _keys(child)]
    for i in range(int(lengths.max(initial=0))):
        yield _Numbers(lengths > i)
        for key in inner:
            yield _Elements(key, offsets[:-1], lengths, i)


class _Numbers:
    def __init__(self, numbers: np.ndarray) -> None:
        self._numbers = numbers

    def at(self, rows: np.ndarray | None, tied: np.ndarray | None) -> np.ndarray:
        return self._numbers if rows is None else self._numbers[rows]


class _Elements:
    """The i-th element of each list, zero where the list is shorter."""

    def __init__(self, key: _Key, starts: np.ndarray, lengths: np.ndarray, i: int) -> None:
        self._key, self._starts, self._lengths, self._i = key, starts, lengths, i

    def at(self, rows: np.ndarray | None, tied: np.ndarray | None) -> np.ndarray:
        starts = self._starts if rows is None else self._starts[rows]
        there = (self._lengths if rows is None else self._lengths[rows]) > self._i
        found = self._key.at(starts[there].astype(np.int64) + self._i, None)
        numbers = np.zeros(len(starts), dtype=found.dtype)
        numbers[there] = found
        return numbers


class _Texts:
    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts

    def at(self, rows: np.ndarray | None, tied: np.ndarray | None) -> np.ndarray:
        texts = self._texts if rows is None else self._texts.take(pa.array(rows))
        texts = pc.fill_null(texts, "" if pa.types.is_string(texts.type) else b"")
        if len(texts) < 2:
            return np.zeros(len(texts), dtype=np.int64)
        before, after = texts.slice(0, len(texts) - 1), texts.slice(1)
        falls = pc.less(after, before).to_numpy(zero_copy_only=False)
        if tied is not None:
            falls = falls & tied
        if not falls.any():
            # Sorted where it matters: counting the changes is rank enough.
            changes = pc.not_equal(after, before).to_numpy(zero_copy_only=False)
            numbers = np.zeros(len(texts), dtype=np.int64)
            np.cumsum(changes, out=numbers[1:])
            return numbers
        coded = texts.dictionary_encode()
        ranks = np.empty(len(coded.dictionary), dtype=np.int64)
        ranks[pc.array_sort_indices(coded.dictionary).to_numpy()] = np.arange(len(ranks))
        return ranks[coded.indices.to_numpy()]
