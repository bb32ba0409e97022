"""One memory layout per value: the same rows always lie in the same bytes.

Arrow lets equal columns differ in memory: a slice keeps its parent's buffers, a
null slot holds whatever was there, a bitmap starts in the middle of a byte, a
NaN has many bit patterns. `plain` removes every such freedom, `buffers` hands
out what is left. Two columns hold equal values exactly when their plain buffers
are equal; -0.0 and 0.0 are different values here.

Pure: pyarrow and numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import invariant

__all__ = ["buffers", "is_fixed", "is_text", "one_chunk", "plain", "validity"]

_EMPTY = pa.py_buffer(b"")


def is_fixed(kind: pa.DataType) -> bool:
    """Types whose values are whole bytes of one width."""
    return (
        pa.types.is_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal128(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array, without a copy when it is one already."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], type=column.type)
    return pa.concat_arrays(column.chunks)


def validity(array: pa.Array) -> np.ndarray | None:
    """Which slots hold a value; None when all do."""
    if array.null_count == 0:
        return None
    return array.is_valid().to_numpy(zero_copy_only=False)


def plain(array: pa.Array, kind: pa.DataType | None = None) -> pa.Array:
    """The same values in the one layout, named by `kind` (same storage as the array's own)."""
    kind = array.type if kind is None else kind
    valid = validity(array)
    if pa.types.is_boolean(kind):
        filled = array if valid is None else array.fill_null(False)
        content = [_packed(filled.to_numpy(zero_copy_only=False))]
        return _build(kind, array, valid, content)
    if is_fixed(kind):
        return _build(kind, array, valid, [_fixed(array, kind, valid)])
    if is_text(kind):
        return _build(kind, array, valid, _text(array, valid))
    if pa.types.is_struct(kind):
        # flatten() applies the slice and the parent's nulls to the children.
        children = [plain(child, kind.field(i).type) for i, child in enumerate(_struct_children(array))]
        return _build(kind, array, valid, [], children)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets, values = _list_parts(array, valid)
        inner = _entry_type(kind) if pa.types.is_map(kind) else kind.value_type
        children = [plain(values, inner)]
        return _build(kind, array, valid, [pa.py_buffer(offsets)], children)
    invariant(False, f"a column of type {kind} has no canonical layout")
    raise AssertionError


def buffers(array: pa.Array) -> Iterator[pa.Buffer]:
    """The bytes of a plain array, outer before inner, each of exact length.

    An absent bitmap comes as an empty buffer, so the sequence has one shape per type.
    """
    own = array.buffers()
    count = 1 if pa.types.is_struct(array.type) else 3 if is_text(array.type) else 2
    for buffer in own[:count]:
        yield _EMPTY if buffer is None else buffer
    if pa.types.is_struct(array.type):
        for i in range(array.type.num_fields):
            yield from buffers(array.field(i))
    elif pa.types.is_list(array.type):
        yield from buffers(array.values)
    elif pa.types.is_map(array.type):
        yield from buffers(array.keys)
        yield from buffers(array.items)


def _build(
    kind: pa.DataType,
    array: pa.Array,
    valid: np.ndarray | None,
    content: list[pa.Buffer],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    bitmap = None if valid is None else _packed(valid)
    nulls = array.null_count
    return pa.Array.from_buffers(kind, len(array), [bitmap, *content], nulls, 0, children)


def _packed(bits: np.ndarray) -> pa.Buffer:
    # packbits leaves the bits past the last row at zero.
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def _fixed(array: pa.Array, kind: pa.DataType, valid: np.ndarray | None) -> pa.Buffer:
    width = kind.bit_width // 8
    stored = array.buffers()[1]
    if len(array) == 0 or stored is None:
        # A column of nulls only may come without values.
        return pa.py_buffer(bytes(len(array) * width))
    buffer = stored.slice(array.offset * width, len(array) * width)
    floating = pa.types.is_floating(kind)
    if valid is None and not floating:
        return buffer
    words = (len(array), 2) if width == 16 else (len(array),)
    values = np.frombuffer(buffer, dtype=_word(kind, width)).reshape(words)
    changed = values
    if valid is not None:
        mask = valid[:, None] if width == 16 else valid
        changed = np.where(mask, values, values.dtype.type(0))
    if floating:
        odd = np.isnan(changed)
        if odd.any():
            changed = np.where(odd, changed.dtype.type(np.nan), changed)
    return buffer if changed is values else pa.py_buffer(np.ascontiguousarray(changed))


def _word(kind: pa.DataType, width: int) -> np.dtype:
    if pa.types.is_floating(kind):
        return np.dtype(f"<f{width}")
    return np.dtype(f"<i{min(width, 8)}")


def _text(array: pa.Array, valid: np.ndarray | None) -> list[pa.Buffer]:
    offsets = _offsets(array)
    if valid is not None and (np.diff(offsets)[~valid] != 0).any():
        # Null slots with bytes behind them: let Arrow write the column anew.
        array = pc.fill_null(array, "" if pa.types.is_string(array.type) else b"")
        offsets = _offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    if last == first:
        data = _EMPTY
    else:
        data = array.buffers()[2].slice(first, last - first)
    return [pa.py_buffer(offsets if first == 0 else offsets - np.int32(first)), data]


def _offsets(array: pa.Array) -> np.ndarray:
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        # An empty column may come without offsets.
        return np.zeros(len(array) + 1, dtype=np.int32)
    return np.frombuffer(buffer, dtype="<i4", count=len(array) + 1, offset=array.offset * 4)


def _struct_children(array: pa.Array) -> list[pa.Array]:
    return array.flatten() if array.type.num_fields else []


def _entry_type(kind: pa.MapType) -> pa.DataType:
    return pa.struct([kind.key_field, kind.item_field])


def _list_parts(array: pa.Array, valid: np.ndarray | None) -> tuple[np.ndarray, pa.Array]:
    """Offsets from zero and the values they point to, without those of null slots."""
    raw = _offsets(array)
    lengths = np.diff(raw)
    if pa.types.is_map(array.type):
        keys, items = array.keys, array.items
        kind = _entry_type(array.type)
        values = pa.StructArray.from_arrays([keys, items], fields=list(kind))
    else:
        values = array.values
    if valid is not None and lengths[~valid].any():
        lengths = np.where(valid, lengths, np.int32(0))
        keep = np.repeat(valid, np.diff(raw))
        first, last = int(raw[0]), int(raw[-1])
        values = values.slice(first, last - first).filter(pa.array(keep))
        offsets = np.zeros(len(array) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return offsets, values
    first, last = int(raw[0]), int(raw[-1])
    return raw - np.int32(first), values.slice(first, last - first)
