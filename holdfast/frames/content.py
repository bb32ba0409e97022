"""Canonical content of a frame, and the checksum over it.

The checksum is how replay, replicas and sinks know that a frame made again is
the same frame. It covers number, boundary, kind, declared columns and rows in
total order, and nothing else: chunking, slicing, dictionary encoding, the order
rows happened to arrive in, metadata and the epoch cannot change it, since
`canonical` maps all of these to one sequence of bytes; every value can, since
each buffer enters the hash with its length.

Pure: no clock, randomness, file or Spark.
"""

from __future__ import annotations

import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from holdfast.errors import UnitError, invariant
from holdfast.frames.identity import Kind
from holdfast.frames.layout import buffers, one_chunk, plain
from holdfast.frames.order import total_order
from holdfast.graph.schemas import Schema

__all__ = ["canonical", "checksum"]

# Written into every checksum: a later way of hashing must not equal this one by chance.
_FORM = "holdfast-frame-1"


def canonical(table: pa.Table, schema: Schema, time: str | None) -> pa.Table:
    """The declared columns of `table` in the one form all equal frames share.

    Rows are ordered by the time column, if the stream has it, then by all columns
    as declared. A column that is missing or does not fit its type is an error.
    """
    arrays = {field.name: _sorted_maps(plain(_cast(table, field), field.type)) for field in schema.arrow}
    first = [time] if time in arrays else []
    rest = [name for name in arrays if name != time]
    order = total_order([arrays[name] for name in first + rest])
    if order is not None:
        places = pa.array(order)
        arrays = {name: plain(array.take(places)) for name, array in arrays.items()}
    return pa.Table.from_arrays(list(arrays.values()), schema=schema.arrow)


def checksum(table: pa.Table, *, n: int, boundary_us: int, kind: Kind) -> str:
    """128 bits over canonical content, as hex. Trusts the order of rows, not their layout."""
    declared = Schema.of(table.schema)
    # Several Arrow types stand for one declared type (a timestamp has four units); equal
    # bytes mean equal values only if it is always the same one.
    invariant(
        declared.arrow.equals(table.schema),
        f"a table with the columns {table.schema.to_string()!r} is not canonical",
    )
    head = [_FORM, n, boundary_us, Kind(kind).value, table.num_rows]
    head += [[column.name, column.type] for column in declared.columns]
    digest = xxhash.xxh3_128(json.dumps(head).encode())
    for column in table.columns:
        for buffer in buffers(plain(one_chunk(column))):
            digest.update(struct.pack("<q", buffer.size))
            digest.update(buffer)
    return digest.hexdigest()


def _cast(table: pa.Table, field: pa.Field) -> pa.Array:
    places = table.schema.get_all_field_indices(field.name)
    if len(places) != 1:
        how_often = "is missing" if not places else f"stands there {len(places)} times"
        raise _misfit(field, f"the column {how_often}; found {', '.join(table.column_names)}")
    column = table.column(places[0])
    try:
        if column.type != field.type:
            # Spark's timestamps end at microseconds; pandas brings nanoseconds.
            options = pc.CastOptions(target_type=field.type, allow_time_truncate=True)
            column = pc.cast(column, options=options)
        return one_chunk(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError) as error:
        raise _misfit(field, f"{column.type} does not become {field.type}: {error}") from error


def _sorted_maps(array: pa.Array) -> pa.Array:
    """Maps have no order of their own: entries go by key, at any depth."""
    kind = array.type
    if pa.types.is_struct(kind) and _has_map(kind):
        children = [_sorted_maps(array.field(i)) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, 0, children)
    if pa.types.is_list(kind) and _has_map(kind):
        return pa.Array.from_buffers(
            kind,
            len(array),
            array.buffers()[:2],
            array.null_count,
            0,
            [_sorted_maps(array.values)],
        )
    if not pa.types.is_map(kind):
        return array
    keys, items = _sorted_maps(array.keys), _sorted_maps(array.items)
    offsets = np.frombuffer(array.buffers()[1], dtype="<i4", count=len(array) + 1)
    owner = plain(pa.array(np.repeat(np.arange(len(array)), np.diff(offsets))))
    order = total_order([owner, keys, items])
    if order is not None:
        places = pa.array(order)
        keys, items = plain(keys.take(places)), plain(items.take(places))
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, 0, [entries])


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


def _misfit(field: pa.Field, why: str) -> UnitError:
    return UnitError(
        "HF-F003",
        "FrameDoesNotFit",
        f"the rows of a frame do not fit the declared column {field.name!r} ({field.type}).",
        why=why,
        effect="the frame was not sealed; frames before it are as they were",
        do="make the operator or reader give the declared columns, or declare what it gives",
    )
