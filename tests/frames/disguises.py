"""Tables that hold the same rows and look different in memory, for property tests."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from holdfast.graph.schemas import Schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Small alphabets, so that ties and near misses are common.
_FLOATS = st.sampled_from([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 5e-324])
_TEXTS = st.sampled_from(["", "a", "aa", "b", "ä", "😀", "a\0", "\0"])
VALUES: dict[str, st.SearchStrategy] = {
    "bigint": st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 256]),
    "tinyint": st.sampled_from([0, 1, -1, 127, -128]),
    "double": _FLOATS,
    "float": st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.inf]),
    "boolean": st.booleans(),
    "string": _TEXTS,
    "binary": st.sampled_from([b"", b"\0", b"a", b"\xff", b"a\0"]),
    "date": st.sampled_from([date(1970, 1, 1), date(2024, 2, 29), date(1900, 1, 1)]),
    "timestamp": st.integers(-2, 2).map(lambda us: EPOCH + timedelta(microseconds=us)),
    "decimal(20,2)": st.sampled_from(
        [
            Decimal("0.00"),
            Decimal("-0.01"),
            Decimal("1.00"),
            Decimal("92233720368547758.08"),  # 2**63 and 2**64 hundredths: the edges of the words
            Decimal("184467440737095516.16"),
        ]
    ),
    "array<int>": st.lists(st.none() | st.integers(0, 2), max_size=3),
    "array<string>": st.lists(st.none() | _TEXTS, max_size=3),
    "array<array<boolean>>": st.lists(st.none() | st.lists(st.booleans(), max_size=2), max_size=2),
    "struct<a:int,b:string>": st.fixed_dictionaries({"a": st.none() | st.integers(0, 1), "b": st.none() | _TEXTS}),
    "map<string,double>": st.dictionaries(_TEXTS, st.none() | _FLOATS, max_size=3).map(
        lambda entries: list(entries.items())
    ),
    "array<map<int,int>>": st.lists(
        st.dictionaries(st.integers(0, 3), st.integers(0, 1), max_size=2).map(lambda entries: list(entries.items())),
        max_size=2,
    ),
}

# One value of each type that leaves bytes behind when a null is laid over it.
EXAMPLES: dict[str, object] = {
    "bigint": 7,
    "tinyint": 7,
    "double": 1.5,
    "float": 1.5,
    "boolean": True,
    "string": "abc",
    "binary": b"abc",
    "date": date(2024, 2, 29),
    "timestamp": EPOCH + timedelta(microseconds=7),
    "decimal(20,2)": Decimal("1.00"),
    "array<int>": [7, None],
    "array<string>": ["abc", None],
    "array<array<boolean>>": [[True], None],
    "struct<a:int,b:string>": {"a": 7, "b": "abc"},
    "map<string,double>": [("b", 1.5), ("a", None)],
    "array<map<int,int>>": [[(2, 1), (1, 1)]],
}


def schemas() -> st.SearchStrategy[Schema]:
    kinds = st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3)
    return kinds.map(lambda found: Schema.of(", ".join(f"c{i} {k}" for i, k in enumerate(found))))


def rows_of(schema: Schema, size: int = 6, least: int = 0) -> st.SearchStrategy[list[tuple]]:
    cells = [st.none() | VALUES[column.type] for column in schema.columns]
    return st.lists(st.tuples(*cells), min_size=least, max_size=size)


def table_of(rows: list[tuple], schema: Schema) -> pa.Table:
    columns = [pa.array([row[i] for row in rows], type=field.type) for i, field in enumerate(schema.arrow)]
    return pa.Table.from_arrays(columns, schema=schema.arrow)


@st.composite
def disguised(draw: st.DrawFn, rows: list[tuple], schema: Schema) -> pa.Table:
    """The rows in another order, chunking, encoding and memory."""
    shuffled = draw(st.permutations(rows))
    around = draw(rows_of(schema, size=3))
    columns = []
    for i, field in enumerate(schema.arrow):
        cells, filler = [row[i] for row in shuffled], [row[i] for row in around]
        chunks, at = [], 0
        while at < len(cells) or not chunks:
            size = draw(st.integers(1, max(1, len(cells) - at)))
            part = cells[at : at + size]
            array = dirty(filler + part + filler, field.type, draw(st.integers(0, 9)))
            chunks.append(array.slice(len(filler), len(part)))
            at += size
        columns.append(_encoded(pa.chunked_array(chunks, type=field.type), draw(st.integers(0, 2))))
    table = pa.table(dict(zip(schema.names, columns, strict=True)))
    if draw(st.booleans()):
        table = table.append_column("undeclared", pa.nulls(len(rows)))
    if draw(st.booleans()):
        table = table.select(table.column_names[::-1])
    if draw(st.booleans()):
        table = table.replace_schema_metadata({"pandas": "{}"})
    return table


def _encoded(column: pa.ChunkedArray, how: int) -> pa.ChunkedArray:
    kind = column.type
    if how == 1 and (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return column.dictionary_encode()
    if how == 2 and pa.types.is_string(kind):
        return column.cast(pa.large_string())
    if how == 2 and pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("ns", tz="Europe/Berlin"))
    return column


def dirty(cells: list, kind: pa.DataType, seed: int) -> pa.Array:
    """Null slots that hold something, and NaNs with strange bits."""
    clean = pa.array(cells, type=kind)
    filled = [cell for cell in cells if cell is not None]
    if not filled:
        return clean
    full = pa.array([filled[seed % len(filled)] if c is None else c for c in cells], type=kind)
    if pa.types.is_floating(kind):
        full = _strange_nans(full)
    if clean.null_count == 0:
        return full
    mask = np.array([cell is None for cell in cells])
    bitmap = pa.py_buffer(np.packbits(~mask, bitorder="little"))
    if pa.types.is_struct(kind):
        children = [full.field(i) for i in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        children = [pa.StructArray.from_arrays([full.keys, full.items], names=["key", "value"])]
        children = [children[0].cast(pa.struct([kind.key_field, kind.item_field]))]
    elif pa.types.is_list(kind):
        children = [full.values]
    else:
        return pa.Array.from_buffers(kind, len(cells), [bitmap, *full.buffers()[1:]])
    own = full.buffers()[1:2] if not pa.types.is_struct(kind) else []
    return pa.Array.from_buffers(kind, len(cells), [bitmap, *own], children=children)


def _strange_nans(array: pa.Array) -> pa.Array:
    width = array.type.bit_width // 8
    values = np.array(array.to_numpy(), copy=True)
    payload = {8: struct.pack("<Q", 0xFFF8_0000_0000_0007), 4: struct.pack("<I", 0xFFC0_0007)}
    values[np.isnan(values)] = np.frombuffer(payload[width], dtype=values.dtype)[0]
    return pa.Array.from_buffers(array.type, len(array), [None, pa.py_buffer(values)])


def sort_key(row: tuple, schema: Schema) -> tuple:
    """The total order as said in words; slow, and the oracle for the fast one."""
    return tuple(_cell_key(c, k.type) for c, k in zip(row, schema.arrow, strict=True))


def _cell_key(cell: object, kind: pa.DataType) -> tuple:
    if cell is None:
        return (0,)
    if pa.types.is_floating(kind):
        if math.isnan(cell):
            return (1, 1, 0.0, 0)
        return (1, 0, cell, math.copysign(1, cell))
    if pa.types.is_string(kind):
        return (1, cell.encode())
    if pa.types.is_map(kind):
        entries = [(_cell_key(k, kind.key_type), _cell_key(v, kind.item_type)) for k, v in cell]
        return (1, tuple(sorted(entries)))
    if pa.types.is_list(kind):
        return (1, tuple(_cell_key(element, kind.value_type) for element in cell))
    if pa.types.is_struct(kind):
        return (1, tuple(_cell_key(cell[field.name], field.type) for field in kind))
    return (1, cell)
