"""Every type a stream carries comes out of SQLite and DuckDB as documented."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pyarrow as pa

from holdfast.graph.schemas import Schema
from holdfast.sinks import write
from holdfast.sinks.values import sql_columns

from .conftest import make_frame, make_table

DDL = (
    "b boolean, t tinyint, i int, l bigint, f float, d double, s string, raw binary, day date, ts timestamp,"
    " local timestamp_ntz, price decimal(12,2), fine decimal(38,18), list array<int>,"
    " nested struct<a:int,when:timestamp,x:array<double>>, tags map<string,int>, codes map<int,string>"
)
MOMENT = datetime(2026, 11, 15, 10, 31, 6, 42, tzinfo=UTC)
ROW = (
    True, -3, 7, 2**62, 0.5, -0.25, "Größe \N{SNOWMAN}", b"\x00\xff", date(1969, 7, 20), MOMENT,
    MOMENT.replace(tzinfo=None), Decimal("12.30"), Decimal("0.000000000000000001"), [1, None],
    {"a": 1, "when": MOMENT, "x": [float("nan"), float("inf"), 1.5]}, [("k", 1)], [(1, "v")],
)  # fmt: skip


def test_sqlite_holds_every_type_as_documented(tmp_path, context):
    schema = Schema.of(DDL)
    frame = make_frame(1, [ROW, (None,) * len(ROW)], schema=schema, checksum="x")
    with closing(write.sqlite("a.db", "t").open(context(schema=schema))) as sink:
        sink.write([frame])
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        full, empty = connection.execute("select * from t order by _i").fetchall()
    moment = "2026-11-15T10:31:06.000042"
    assert full[:13] == (
        1, -3, 7, 2**62, 0.5, -0.25, "Größe \N{SNOWMAN}", b"\x00\xff", "1969-07-20", moment + "Z", moment,
        "12.30", "0.000000000000000001",
    )  # fmt: skip
    assert [json.loads(value) for value in full[13:17]] == [
        [1, None],
        {"a": 1, "when": moment + "Z", "x": [None, "inf", 1.5]},
        {"k": 1},
        [[1, "v"]],
    ]
    assert empty == (None,) * len(ROW) + (1, 1)


def test_duckdb_holds_every_type_as_itself(tmp_path, context):
    schema = Schema.of(DDL)
    frame = make_frame(1, [ROW, (None,) * len(ROW)], schema=schema, checksum="x")
    with closing(write.duckdb("a.db", "t").open(context(schema=schema))) as sink:
        sink.write([frame])
    with closing(write.duckdb("a.db", "t").open(context(schema=schema, epoch=2))) as sink:
        assert sink.last() == 1  # the table it made fits on the second day, too
    with closing(duckdb.connect(str(tmp_path / "a.db"))) as connection:
        actual = connection.sql("select * exclude (_frame, _i) from t order by _i").to_arrow_table()
    without_nan = [name for name in schema.names if name != "nested"]
    assert actual.select(without_nan).cast(pa.schema([schema.arrow.field(n) for n in without_nan])).to_pylist() == (
        make_table([ROW, (None,) * len(ROW)], schema).select(without_nan).to_pylist()
    )


def test_text_order_of_times_is_time_order():
    schema = Schema.of("ts timestamp")
    micros = [-62_135_596_800_000_000, -1, 0, 1, 999_999, 1_000_000, 7_258_118_400_000_000, 253_402_300_799_999_999]
    [texts] = sql_columns(make_table([(value,) for value in micros], schema))
    assert texts == sorted(texts)
    assert texts[1] == "1969-12-31T23:59:59.999999Z"
    assert {len(text) for text in texts} == {27}


def test_chunks_do_not_show():
    schema = Schema.of("i int, s string, ts timestamp")
    one = make_table([(1, "a", 1), (2, None, 2)], schema)
    assert sql_columns(pa.concat_tables([one.slice(0, 1), one.slice(1)])) == sql_columns(one)


def test_nan_becomes_null_in_sqlite_and_infinity_stays(tmp_path, context):
    with closing(write.sqlite("a.db", "t").open(context())) as sink:
        sink.write([make_frame(1, [(1, 1, float("nan")), (2, 1, float("-inf"))])])
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("select mean from t order by _i").fetchall() == [(None,), (float("-inf"),)]


FAR = [327_403_382_400_000_000, -62_198_755_200_000_001, 253_402_300_799_999_999, -62_135_596_800_000_000]
WRITTEN = [
    "12345-01-01T00:00:00.000000",
    "-0002-12-31T23:59:59.999999",
    "9999-12-31T23:59:59.999999",
    "0001-01-01T00:00:00.000000",
]


def test_times_of_any_year_are_stored_as_they_are(tmp_path, context):
    """12345-01-01 became '12345-01-0T 00:00:00': the text was cut at a fixed place. Nested, it raised."""
    schema = Schema.of(
        "ts timestamp, local timestamp_ntz, list array<timestamp>, day struct<d:date>, at map<string,timestamp>"
    )
    moments = pa.array(FAR, pa.timestamp("us", "UTC"))
    days = pa.array([3_789_391, -719_894, 2_932_896, -719_162], pa.date32())
    ones = pa.array(range(5), pa.int32())
    table = pa.table(
        [
            moments,
            moments.cast(pa.timestamp("us")),
            pa.ListArray.from_arrays(ones, moments),
            pa.StructArray.from_arrays([days], ["d"]),
            pa.MapArray.from_arrays(ones, pa.array(["k"] * 4), moments),
        ],
        schema=schema.arrow,
    )
    record, _ = make_frame(1, [], schema=schema, checksum="x")
    with closing(write.sqlite("a.db", "t").open(context(schema=schema))) as sink:
        sink.write([(replace(record, rows=4), table)])
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        rows = connection.execute("select ts, local, list, day, at from t order by _i").fetchall()
    for row, text in zip(rows, WRITTEN, strict=True):
        assert row[:2] == (text + "Z", text)
        assert [json.loads(value) for value in row[2:]] == [
            [text + "Z"],
            {"d": text[: text.index("T")]},
            {"k": text + "Z"},
        ]


def test_sqlite_stores_minus_zero_as_zero(tmp_path, context):
    """Said in docs/platforms-and-limits.md: REAL keeps whole numbers as integers, which have no such zero."""
    schema = Schema.of("x double, list array<double>")
    with closing(write.sqlite("a.db", "t").open(context(schema=schema))) as sink:
        sink.write([make_frame(1, [(-0.0, [-0.0])], schema=schema, checksum="x")])
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        [(plain, nested)] = connection.execute("select x, list from t").fetchall()
    assert str(plain) == "0.0" and nested == "[-0.0]"
