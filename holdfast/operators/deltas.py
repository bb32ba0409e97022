"""What changed between two moments of a keyed operator's state, as rows of one run.

Both moments are lists of runs. Runs they have in common say the same in both, so only
those after them are read: merging and folding write rows anew that did not change, and
these are found by comparing. The rows returned, put after the runs of the first moment,
make the second. What both moments hold decides, not how they came about: a state that
was set back or worked out again in between is told as exactly.

Pure: tables in, a table out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.index import KeyIndex, is_plain, sorted_by
from holdfast.operators.runs import KEYS, RunRef

__all__ = ["Incomparable", "changed_rows", "same_values"]

_FORGOTTEN = "_forgotten"
_NONE = -1


class Incomparable(Exception):
    """Rows that do not say their key, or have not the same columns."""


def changed_rows(
    old: Sequence[RunRef], new: Sequence[RunRef], rows_of: Callable[[RunRef], pa.Table]
) -> pa.Table | None:
    """Rows of one shard to put after `old` to make `new`, sorted by key; None if they are the same."""
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    if same == len(old) == len(new):
        return None
    found = _difference([*map(rows_of, old[same:])], [*map(rows_of, new[same:])], covers=same == 0)
    if found is None:
        found = _difference([*map(rows_of, old)], [*map(rows_of, new)], covers=True)
    return found


def _difference(old: list[pa.Table], new: list[pa.Table], *, covers: bool) -> pa.Table | None:
    """`covers`: both are all the shard holds. None: it cannot be told without the runs before."""
    some = (new or old)[0]
    names, keys = some.column_names, _key_count(some)
    if any(not table.schema.equals(some.schema, check_metadata=True) for table in (*old, *new)):
        raise Incomparable
    index = KeyIndex(pa.schema(list(some.schema)[:keys]))
    before, last_before = _newest(index, old, names[:keys])
    after, last_after = _newest(index, new, names[:keys])
    room = index.size
    at_before, at_after = _padded(last_before, room), _padded(last_after, room)
    was = at_before >= 0
    if before is not None:
        was[was] = ~before.column(_FORGOTTEN).to_numpy()[at_before[was]]
    unsaid = (at_before >= 0) & (at_after < 0)
    if unsaid.any() and not covers:
        return None
    parts = [some.slice(0, 0)]
    said = np.flatnonzero(at_after >= 0)
    if after is not None:
        rows = after.take(pa.array(at_after[said]))
        both = np.flatnonzero(at_before[said] >= 0)
        is_changed = np.ones(len(said), dtype=bool)
        if before is not None and len(both):
            then = before.take(pa.array(at_before[said[both]]))
            now = rows.take(pa.array(both))
            equal = np.ones(len(both), dtype=bool)
            for name in names[keys:]:
                equal &= same_values(_one(then.column(name)), _one(now.column(name)))
            is_changed[both] = ~equal
        if covers:  # nobody knows what is forgotten here: nobody need be told
            is_changed &= (at_before[said] >= 0) | ~rows.column(_FORGOTTEN).to_numpy()
        parts.append(rows.filter(pa.array(is_changed)))
    gone = np.flatnonzero(unsaid & was)
    if len(gone):
        rows = before.take(pa.array(at_before[gone])).select(names[:keys])
        for field in list(some.schema)[keys:]:
            value = pa.array(np.ones(len(gone), bool)) if field.name == _FORGOTTEN else pa.nulls(len(gone), field.type)
            rows = rows.append_column(field, value)
        parts.append(rows)
    whole = pa.concat_tables([part.cast(some.schema) for part in parts]).combine_chunks()
    return whole.take(pa.array(sorted_by(whole.select(names[:keys]))))


def _key_count(table: pa.Table) -> int:
    said = (table.schema.metadata or {}).get(KEYS)
    if said is None:
        raise Incomparable
    return int(said)


def _newest(index: KeyIndex, runs: list[pa.Table], keys: list[str]) -> tuple[pa.Table | None, np.ndarray]:
    """All rows, and by slot the place of the newest of its key."""
    last = np.empty(0, dtype=np.int64)
    start = 0
    for run in runs:
        slots = index.add(run.select(keys))
        last = _padded(last, index.size)
        last[slots] = np.arange(start, start + run.num_rows)
        start += run.num_rows
    return (pa.concat_tables(runs).combine_chunks() if runs else None), last


def _padded(places: np.ndarray, room: int) -> np.ndarray:
    return np.concatenate([places, np.full(room - len(places), _NONE, dtype=np.int64)])


def same_values(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Row by row, whether both hold the same bits. Equal numbers may have different ones: 0.0 and -0.0."""
    null = one.is_null().to_numpy(zero_copy_only=False)
    equal = null == other.is_null().to_numpy(zero_copy_only=False)
    kind = one.type
    if pa.types.is_null(kind):
        return equal
    if is_plain(kind):
        return equal & (null | (_bits(one) == _bits(other)))
    if pa.types.is_struct(kind):
        for a, b in zip(one.flatten(), other.flatten(), strict=True):
            equal &= same_values(a, b)
        return equal
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _same_lists(one, other, equal, null)
    if pa.types.is_nested(kind):
        return equal & np.array([a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], dtype=bool)
    return equal & pc.fill_null(pc.equal(one, other), True).to_numpy(zero_copy_only=False)


def _same_lists(one: pa.Array, other: pa.Array, equal: np.ndarray, null: np.ndarray) -> np.ndarray:
    if pa.types.is_map(one.type):
        one, other = _as_list(one), _as_list(other)
    lengths = pc.fill_null(pc.list_value_length(one), 0).to_numpy(zero_copy_only=False)
    equal = equal & (lengths == pc.fill_null(pc.list_value_length(other), 0).to_numpy(zero_copy_only=False))
    alike = np.flatnonzero(equal & ~null)
    if not len(alike):
        return equal
    pair = [some.take(pa.array(alike)).flatten() for some in (one, other)]
    differs = np.concatenate([[0], np.cumsum(~same_values(*pair))])
    ends = np.cumsum(lengths[alike])
    equal[alike] = differs[ends] == differs[ends - lengths[alike]]
    return equal


def _as_list(array: pa.Array) -> pa.Array:
    """A map as the list of its entries."""
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def _bits(array: pa.Array) -> np.ndarray:
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    if array.null_count:
        array = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)
    values = np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
    return values.view(f"u{values.itemsize}") if values.dtype.kind == "f" else values


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
