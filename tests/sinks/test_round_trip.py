"""Random rows, written to each kind of target and read back as anybody would: equal, or refused with a code."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count

import psycopg
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import SinkError
from holdfast.graph.schemas import Schema
from holdfast.sinks import write
from tests.frames.disguises import VALUES

from .conftest import make_frame

TYPES = [
    "bigint", "tinyint", "double", "boolean", "string", "binary", "date", "timestamp", "decimal(20,2)", "array<int>",
    "array<string>", "struct<a:int,b:string>",
]  # fmt: skip
NAMES = [f"c{at}" for at in range(len(TYPES))]
SCHEMA = Schema.of(", ".join(f"{name} {kind}" for name, kind in zip(NAMES, TYPES, strict=True)))
ROWS = st.lists(st.tuples(*(st.none() | VALUES[kind] for kind in TYPES)), min_size=1, max_size=6)


def bits(value):
    """Values that compare as what they are: -0.0 is not 0.0, NaN is itself."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dict):
        return {name: bits(each) for name, each in value.items()}
    return [bits(each) for each in value] if isinstance(value, list | tuple) else value


def no_sign(value):
    """What SQLite keeps of a number: neither NaN nor the sign of zero."""
    return (
        None if isinstance(value, float) and math.isnan(value) else value + 0.0 if isinstance(value, float) else value
    )


FROM_TEXT = {
    "boolean": bool,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "decimal(20,2)": Decimal,
    "array<int>": json.loads,
    "array<string>": json.loads,
    "struct<a:int,b:string>": json.loads,
}


def from_sqlite(row):
    return [
        None if value is None else FROM_TEXT.get(kind, lambda same: same)(value)
        for kind, value in zip(TYPES, row, strict=True)
    ]


@pytest.fixture(params=["sqlite", "duckdb", "postgres", "parquet"])
def target(request, tmp_path):
    """The writer, how rows of a frame are read back from another connection, and what it keeps of a row."""
    kind, columns = request.param, ", ".join(NAMES)
    sql = f"select {columns} from t where _frame = {{}} order by _i"
    if kind == "postgres":
        url = request.getfixturevalue("postgres").url

        def asked(n):
            with psycopg.connect(url) as connection:
                connection.execute("set timezone = 'UTC'")
                return [list(row) for row in connection.execute(sql.format(n)).fetchall()]

        return write.postgres(url, "t"), asked, list
    if kind == "parquet":
        return (
            write.parquet("out"),
            lambda n: [
                list(row.values()) for row in pq.read_table(tmp_path / "out" / f"frame-{n:08d}.parquet").to_pylist()
            ],
            list,
        )
    if kind == "duckdb":
        return write.duckdb("o.db", "t"), None, list

    def look(n):
        with closing(sqlite3.connect(tmp_path / "o.db")) as connection:
            return [from_sqlite(row) for row in connection.execute(sql.format(n)).fetchall()]

    return write.sqlite("o.db", "t"), look, lambda row: [no_sign(value) for value in row]


def test_random_rows_come_back_as_they_went_in_or_are_refused(target, context):
    writer, read, kept = target
    numbers = count(1)
    with closing(writer.open(context(schema=SCHEMA))) as sink:
        if read is None:  # DuckDB lets one program hold the file: a cursor of it reads

            def read(n):
                names = ", ".join(NAMES)
                rows = (
                    sink._connection.cursor()
                    .execute(f"select {names} from t where _frame = {n} order by _i")
                    .fetchall()
                )
                return [[each.astimezone(UTC) if isinstance(each, datetime) else each for each in row] for row in rows]

        @settings(max_examples=60, deadline=None)
        @given(rows=ROWS)
        def comes_back(rows):
            n = next(numbers)
            frame = make_frame(n, rows, schema=SCHEMA, checksum=f"c{n}")
            try:
                assert sink.write([frame]) == [True]
            except SinkError as error:
                assert error.code == "HF-K005" and isinstance(writer, write.PostgresWriter)
                assert any(
                    "\0" in json.dumps(row, default=str, ensure_ascii=True).replace("\\u0000", "\0") for row in rows
                )
                return
            expected = [bits(kept(list(row.values()))) for row in frame[1].to_pylist()]
            assert [bits(row) for row in read(n)] == expected

        comes_back()
