"""Tables that somebody made before us: what they would leave out, cut or fold is refused, and never taken in silence."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

from holdfast.errors import SinkError
from holdfast.graph.schemas import Schema
from holdfast.sinks import write

from .conftest import make_frame

SCHEMA = Schema.of("k string, v int")
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


@pytest.fixture
def lite(tmp_path):
    def ask(sql):
        with closing(sqlite3.connect(tmp_path / "o.db")) as connection, connection:
            return connection.execute(sql).fetchall()

    return ask


@pytest.fixture
def post(postgres):
    def ask(sql):
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    return ask


def put(writer, context, rows, *, schema=SCHEMA, n=1):
    with closing(writer.open(context(schema=schema))) as sink:
        return sink.write([make_frame(n, rows, schema=schema, checksum=f"c{n}")])


@pytest.mark.parametrize(
    "ddl",
    [
        "create table t (k text collate nocase primary key, v integer, _frame integer)",
        "create table t (k text collate nocase primary key, v integer, _frame integer) without rowid",
        "create table t (k text collate rtrim, v integer, _frame integer, unique (k))",
    ],
)
def test_sqlite_keys_that_a_collation_folds_are_refused_before_a_row_is_written(lite, context, ddl):
    lite(ddl)
    with pytest.raises(SinkError, match="two different keys would be one") as caught:
        put(write.sqlite("o.db", "t", ["k"]), context, [("A", 1), ("a", 2)])
    assert caught.value.code == "HF-K001"


@pytest.mark.parametrize(
    "ddl",
    [
        "create table t (k text unique on conflict ignore, v integer, _frame integer, _i integer)",
        "create table t (k text unique on conflict replace, v integer, _frame integer, _i integer)",
        "create table t (k text, v integer, _frame integer primary key on conflict replace, _i integer)",
    ],
)
def test_sqlite_leaves_no_row_out_where_the_table_says_so_of_conflicts(lite, context, ddl):
    lite(ddl)
    with pytest.raises(SinkError, match="UNIQUE constraint failed") as caught:
        put(write.sqlite("o.db", "t"), context, [("a", 1), ("a", 2)])
    assert caught.value.code == "HF-K005" and lite("select * from t") == []


@pytest.mark.parametrize("keys", [None, ["k"]], ids=["append", "keyed"])
def test_a_row_that_a_trigger_of_sqlite_swallows_is_missed(lite, context, keys):
    lite("create table t (k text primary key, v integer, _frame integer, _i integer)")
    lite("create trigger g before insert on t when new.v = 2 begin select raise(ignore); end")
    with pytest.raises(SinkError, match="it took 1 of 2 rows") as caught:
        put(write.sqlite("o.db", "t", keys), context, [("a", 1), ("b", 2)])
    assert caught.value.code == "HF-K005" and lite("select * from t") == []
    lite("drop trigger g")
    put(write.sqlite("o.db", "t", keys), context, [("a", 1), ("b", 2)])
    assert lite("select k, v from t order by k") == [("a", 1), ("b", 2)]


def test_rows_of_unknown_frames_do_not_keep_new_ones_out_in_silence(lite, context):
    """A table brought from elsewhere without its ledger: its rows have numbers that ours reach only later."""
    lite("create table t (k text primary key, v integer, _frame integer)")
    lite("insert into t values ('a', 1, 500)")
    with pytest.raises(SinkError, match="higher number in _frame"):
        put(write.sqlite("o.db", "t", ["k"]), context, [("a", 2)])
    lite("update t set _frame = 0")
    put(write.sqlite("o.db", "t", ["k"]), context, [("a", 2)])
    assert lite("select k, v, _frame from t") == [("a", 2, 1)]


def test_rows_of_unknown_frames_in_duckdb_do_not_either(tmp_path, context):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "o.duckdb")) as connection:
        connection.execute("create table t (k varchar primary key, v integer, _frame bigint)")
        connection.execute("insert into t values ('a', 1, 500)")
    with pytest.raises(SinkError, match="higher number in _frame"):
        put(write.duckdb("o.duckdb", "t", ["k"]), context, [("a", 2), ("b", 1), ("b", 2)])
    with duckdb.connect(str(tmp_path / "o.duckdb")) as connection:
        connection.execute("update t set _frame = 0")
    put(write.duckdb("o.duckdb", "t", ["k"]), context, [("a", 2), ("b", 1), ("b", 2)])
    with duckdb.connect(str(tmp_path / "o.duckdb")) as connection:
        assert connection.execute("select k, v, _frame from t order by k").fetchall() == [("a", 2, 1), ("b", 2, 1)]


def test_a_frame_behind_newer_ones_leaves_their_rows_as_they_are(lite, context):
    with closing(write.sqlite("o.db", "t", ["k"]).open(context(schema=SCHEMA))) as sink:
        sink.write([make_frame(2, [("a", 2)], schema=SCHEMA)])
        assert sink.write([make_frame(1, [("a", 1)], schema=SCHEMA)]) == [True]
    assert lite("select k, v, _frame from t") == [("a", 2, 2)]


@pytest.mark.parametrize("keys", [None, ["k"]], ids=["append", "keyed"])
@pytest.mark.parametrize("value", [UUID.upper(), "{" + UUID + "}", UUID.replace("-", "")])
def test_a_uuid_that_postgres_would_write_another_way_is_refused(postgres, post, context, keys, value):
    post("create table t (k uuid primary key, v int, _frame bigint, _i bigint)")
    with pytest.raises(SinkError, match="would not keep"):
        put(write.postgres(postgres.url, "t", keys), context, [(value, 1)])
    put(write.postgres(postgres.url, "t", keys), context, [(UUID, 1)])
    assert post("select k::text from t") == [(UUID,)]


@pytest.mark.parametrize("keys", [None, ["k"]], ids=["append", "keyed"])
def test_blanks_that_postgres_would_cut_off_are_refused(postgres, post, context, keys):
    post("create table t (k varchar(3) primary key, v int, _frame bigint, _i bigint)")
    with pytest.raises(SinkError, match="would not keep 'abc  '"):
        put(write.postgres(postgres.url, "t", keys), context, [("abc", 1), ("abc  ", 2)])
    put(write.postgres(postgres.url, "t", keys), context, [("äöü", 1), ("a", 2)])
    assert post("select k from t order by v") == [("äöü",), ("a",)]


@pytest.mark.parametrize(
    "ddl",
    ["create table t (k text collate ci primary key, v int, _frame bigint)",
     "create table t (k text, v int, _frame bigint); create unique index on t (k collate ci)"],
)  # fmt: skip
def test_postgres_keys_that_a_collation_folds_are_refused_before_a_row_is_written(postgres, post, context, ddl):
    post("drop collation if exists ci cascade")
    post("create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    post(ddl)
    with pytest.raises(SinkError, match="two keys would be one") as caught:
        put(write.postgres(postgres.url, "t", ["k"]), context, [("A", 1), ("a", 2)])
    assert caught.value.code == "HF-K001"


@pytest.mark.parametrize("keys", [None, ["k"]], ids=["append", "keyed"])
def test_a_row_that_a_trigger_of_postgres_swallows_is_missed(postgres, post, context, keys):
    post("create table t (k text primary key, v int, _frame bigint, _i bigint)")
    post("create or replace function swallow() returns trigger language plpgsql as"
         " $$begin if new.v = 2 then return null; end if; return new; end$$")  # fmt: skip
    post("create trigger g before insert on t for each row execute function swallow()")
    with pytest.raises(SinkError, match="it took 2 of 3 rows"):
        put(write.postgres(postgres.url, "t", keys), context, [("a", 1), ("b", 2), ("c", 3)])
    assert post("select * from t") == []
    post("drop trigger g on t")
    put(write.postgres(postgres.url, "t", keys), context, [("a", 1), ("b", 2), ("c", 3)])
    assert post("select count(*) from t") == [(3,)]


def test_a_trigger_of_postgres_may_send_rows_to_a_part_of_the_table(postgres, post, context):
    post("create table t (k text, v int, _frame bigint, _i bigint); create table part () inherits (t)")
    post("create or replace function send() returns trigger language plpgsql as"
         " $$begin insert into part select new.*; return null; end$$")  # fmt: skip
    post("create trigger g before insert on t for each row execute function send()")
    assert put(write.postgres(postgres.url, "t"), context, [("a", 1), ("b", 2)]) == [True]
    assert post("select k from t order by k") == [("a",), ("b",)]
    post("drop table part")


def test_a_float_is_the_same_number_in_a_wider_column(postgres, post, context):
    schema = Schema.of("k string, v float")
    post("create table t (k text, v double precision, _frame bigint, _i bigint)")
    put(write.postgres(postgres.url, "t"), context, [("a", 0.1)], schema=schema)
    assert post("select v from t") == [(0.10000000149011612,)]
