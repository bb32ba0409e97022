"""A table takes columns of any name, keys among them, and gives every value back under its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import duckdb
import psycopg
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from holdfast.graph.schemas import Column, Schema
from holdfast.quoting import quoted_sql as quoted
from holdfast.sinks import write
from holdfast.sinks.postgres import NAME_BYTES_MAX, marked
from holdfast.sinks.writer import SinkContext
from tests.names import NASTY, lists_of_names, names

from .conftest import make_frame

CONNECT = {"sqlite": sqlite3.connect, "duckdb": duckdb.connect, "postgres": psycopg.connect}
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(kind, writer, folder, schema, frames, keys=()):
    context = SinkContext("kiln", "average", schema, None, folder, 1)
    with closing(getattr(write, kind)(writer, "average", list(keys), shared=True).open(context)) as sink:
        sink.write(frames)


def cleared(kind, address):
    with closing(CONNECT[kind](address)) as connection:
        for table in ("average", "_holdfast_ledger", "_holdfast_epoch"):
            connection.execute(f"drop table if exists {table}")
        connection.commit()


def one_by_one(kind, address, folder, found):
    """Every column is written with values of its own, replaced by key, and read alone by its name."""
    schema = Schema(tuple(Column(name, "bigint") for name in found))
    rows = [[10 * at + row for at in range(len(found))] for row in range(2)]
    frames = [
        make_frame(1, rows, schema=schema),
        make_frame(2, [[value + 1000 * (at > 0) for at, value in enumerate(rows[0])]], schema=schema),
    ]
    for keys, expected in (((), [0, 1, 0]), (found[:1], [0, 1])):
        cleared(kind, address)
        written(kind, address if kind == "postgres" else address.name, folder, schema, frames, keys)
        with closing(CONNECT[kind](address)) as connection:
            for at, name in enumerate(found):
                got = connection.execute(
                    f'select {quoted(name)} from average order by "_frame", {quoted(found[0])}'
                ).fetchall()
                values = [10 * at + row for row in expected]
                if keys:  # the row of the second frame has replaced that of the first
                    values = [10 * at + 1, 10 * at + 1000 * (at > 0)]
                elif at:
                    values[-1] += 1000
                assert [value for (value,) in got] == values, name


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_takes_any_name(kind, tmp_path):
    @settings(UNHURRIED, max_examples=40 if kind == "sqlite" else 20)
    @given(lists_of_names())
    def prove(found):
        one_by_one(kind, tmp_path / "out.db", tmp_path, found)

    prove()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_the_nastiest_stand_beside_each_other(kind, request, tmp_path):
    address = request.getfixturevalue("postgres").url if kind == "postgres" else tmp_path / "out.db"
    one_by_one(kind, address, tmp_path, list(NASTY))


def test_a_server_takes_any_name(postgres, tmp_path):
    """Names longer than the server keeps are refused by check (HF-K001)."""

    @settings(UNHURRIED, max_examples=20)
    @given(lists_of_names().filter(lambda found: all(len(name.encode()) <= NAME_BYTES_MAX for name in found)))
    def prove(found):
        one_by_one("postgres", postgres.url, tmp_path, found)

    prove()


@given(names(), names())
def test_marks_in_names_are_no_places_for_values(one, other):
    sql = f"select {quoted(one)} from {quoted(other)} where {quoted(one)} = ? and x = ?"
    assert (
        marked(sql).replace("%%", "%")
        == f"select {quoted(one)} from {quoted(other)} where {quoted(one)} = %s and x = %s"
    )


@settings(UNHURRIED, max_examples=20)
@given(lists_of_names())
def test_a_folder_of_parquet_takes_any_name(tmp_path_factory, found):
    folder = tmp_path_factory.mktemp("out")
    schema = Schema(tuple(Column(name, "bigint") for name in found))
    with closing(write.parquet("average").open(SinkContext("kiln", "average", schema, None, folder, 1))) as sink:
        sink.write([make_frame(1, [list(range(len(found)))], schema=schema)])
    table = pq.read_table(next((folder / "average").glob("frame-*.parquet")))
    assert table.to_pylist() == [dict(zip(found, range(len(found)), strict=True))]


@pytest.mark.parametrize("kind", ["array<double>", "struct<a: int, b: array<float>>"])
def test_a_nested_key_of_floats_is_refused_where_it_becomes_json(kind):
    """[NaN] and [null] were one key."""
    schema = Schema.of(f"k {kind}, v int")
    for writer in (write.sqlite("o.db", "t", keys=["k"]), write.postgres("postgresql://localhost/x", "t", keys=["k"])):
        assert "HF-K001" in [finding.code for finding in writer.check(schema)]
        assert writer.check(Schema.of("k array<int>, v int")) == []
    assert write.duckdb("o.duckdb", "t", keys=["k"]).check(schema) == []
