"""What only PostgreSQL has: schemas, locks, passwords, its own types, a server that may be away."""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.errors import SinkAway, SinkError, UsageError
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.sinks import write
from holdfast.sinks.conninfo import password_in, shown, without_password
from holdfast.sinks.pgtypes import holds
from holdfast.sinks.postgres import marked

from .conftest import make_frame

EVERYTHING = Schema.of(
    "flag boolean, tiny tinyint, whole int, big bigint, small float, mean double, exact decimal(20,6),"
    " name string, raw binary, day date, ts timestamp, wall timestamp_ntz, list array<int>, it struct<a:int,b:string>"
)
ROW = (
    True, -128, 2**31 - 1, -(2**63), 0.1, 1 / 3, Decimal("12345678901234.000001"),
    'it\'s "quoted", with\na line and \\N', b"\x00\xff\\", date(1969, 12, 31),
    datetime(2026, 11, 15, 10, 31, 6, 123456, UTC), datetime(1900, 1, 1, 0, 0, 0, 1), [1, None], {"a": 1, "b": "x"},
)  # fmt: skip


def query(server, sql, *values):
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("set timezone = 'UTC'")
        cursor = connection.execute(sql, values or None)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("keys", [None, ["name"]], ids=["append", "keyed"])
def test_every_type_comes_back_as_it_went_in(postgres, context, keys):
    """An empty text is no null, NaN no zero; a microsecond and the last digit stay."""
    odd = [None] * len(ROW)
    odd[4], odd[5], odd[7], odd[8], odd[12] = float("nan"), float("-inf"), "", b"", []
    with closing(write.postgres(postgres.url, "average", keys).open(context(schema=EVERYTHING))) as sink:
        sink.write([make_frame(1, [ROW, tuple(odd)], schema=EVERYTHING, checksum="c")])
    rows = query(postgres, "select * from average order by flag nulls last")
    assert rows[0][: len(ROW)] == (*ROW[:4], pytest.approx(0.1), *ROW[5:])
    assert rows[1][7] == "" and rows[1][8] == b"" and rows[1][12] == []
    assert str(rows[1][4]) == "nan" and rows[1][5] == float("-inf") and rows[1][0] is None is rows[1][10]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
DOUBLES = st.floats(allow_nan=False) | st.none()


def test_whatever_the_values_are_they_come_back(postgres, context):
    """COPY reads commas, quotes, line ends and backslashes; none may change a value or split a row."""
    schema, numbers = Schema.of("name string, mean double, raw binary"), count(1)
    with (
        closing(write.postgres(postgres.url, "average").open(context(schema=schema))) as sink,
        psycopg.connect(postgres.url, autocommit=True) as reader,
    ):

        @settings(max_examples=40, deadline=None)
        @given(rows=st.lists(st.tuples(st.none() | TEXTS, DOUBLES, st.none() | st.binary(max_size=9)), max_size=20))
        def comes_back(rows):
            n = next(numbers)
            sink.write([make_frame(n, rows, schema=schema, checksum=f"c{n}")])
            there = reader.execute("select name, mean, raw from average where _frame = %s order by _i", (n,))
            assert there.fetchall() == rows

        comes_back()


def test_a_value_the_database_refuses_takes_the_frame_with_it_and_is_no_absence(postgres, context):
    query(
        postgres,
        "create table average (zone smallint check (zone < 5), ts timestamptz, mean float8, _frame int8, _i int8)",
    )
    schema = Schema.of("zone smallint, ts timestamp, mean double")
    with closing(write.postgres(postgres.url, "average").open(context(schema=schema))) as sink:
        with pytest.raises(SinkError) as caught:
            sink.write([make_frame(1, [(1, 1, 1.0), (9, 1, 1.0)], schema=schema)])
        assert caught.value.code == "HF-K005" and not isinstance(caught.value, SinkAway)
        assert sink.last() == 0
        assert sink.write([make_frame(1, [(1, 1, 1.0)], schema=schema)]) == [True]
    assert query(postgres, "select zone from average") == [(1,)]


def test_a_zero_byte_in_a_text_is_refused_and_said_to_be_the_values_fault(postgres, context):
    schema = Schema.of("name string")
    with closing(write.postgres(postgres.url, "average").open(context(schema=schema))) as sink:
        with pytest.raises(SinkError) as caught:
            sink.write([make_frame(1, [("a\0b",)], schema=schema)])
        assert (
            caught.value.code == "HF-K005"
            and "refuses a row" in caught.value.what
            and "on_error='quarantine'" in caught.value.do
        )
        assert sink.last() == 0


def test_text_is_what_it_was_in_a_database_of_another_encoding(postgres, context):
    query(postgres, "drop database if exists old")
    query(postgres, "create database old encoding 'LATIN1' template template0 locale 'C'")
    url, schema = postgres.url.removesuffix("/postgres") + "/old", Schema.of("name string")
    with closing(write.postgres(url, "average").open(context(schema=schema))) as sink:
        sink.write([make_frame(1, [("Größe",)], schema=schema)])
        with pytest.raises(SinkError):
            sink.write([make_frame(2, [("漢",)], schema=schema)])
    with psycopg.connect(url, client_encoding="utf8") as connection:
        assert connection.execute("select name, char_length(name) from average").fetchall() == [("Größe", 5)]
    query(postgres, "drop database old with (force)")


def test_tables_and_ledger_are_in_the_schema_that_is_named(postgres, context):
    with pytest.raises(SinkError, match="create schema") as caught:
        write.postgres(postgres.url, "average", schema="Ward 4").open(context())
    assert caught.value.code == "HF-K001"
    query(postgres, 'create schema "Ward 4"')
    query(postgres, "create table average (other int)")  # in public: not ours to look at
    try:
        with closing(write.postgres(postgres.url, "average", schema="Ward 4").open(context())) as sink:
            sink.write([make_frame(1, [(1, 1, 1.0)])])
        assert query(postgres, 'select zone, _frame from "Ward 4".average') == [(1, 1)]
        assert query(postgres, 'select frame from "Ward 4"._holdfast_epoch') == [(1,)]
        assert query(postgres, "select to_regclass('public._holdfast_epoch')") == [(None,)]
    finally:
        query(postgres, 'drop schema "Ward 4" cascade')


def test_a_run_that_was_let_in_waits_its_turn_and_is_then_refused(postgres, context):
    """The orphan is in the middle of its transaction when the new run opens: the lock orders them."""
    orphan = write.postgres(postgres.url, "average").open(context(epoch=1))
    orphan.begin()
    with psycopg.connect(postgres.url, autocommit=True) as watcher:
        import threading

        opened = []
        opener = threading.Thread(
            target=lambda: opened.append(write.postgres(postgres.url, "average").open(context(epoch=2)))
        )
        opener.start()
        while not watcher.execute("select 1 from pg_locks where locktype = 'advisory' and not granted").fetchall():
            assert opener.is_alive()
        assert not opened
        orphan.run("rollback")
        opener.join()
    with pytest.raises(SinkError) as caught:
        orphan.write([make_frame(1, [(1, 1, 1.0)])])
    assert caught.value.code == "HF-K003"
    assert opened[0].write([make_frame(1, [(2, 2, 2.0)])]) == [True]
    orphan.close(), opened[0].close()


def test_a_commit_is_synced_even_if_the_servers_default_is_not(postgres, context):
    url = postgres.url + "?options=-c%20synchronous_commit%3Doff%20-c%20default_transaction_isolation%3Dserializable"
    with closing(write.postgres(url, "average").open(context())) as sink:
        sink.begin()
        assert sink.run("show synchronous_commit") == [("on",)]
        assert sink.run("show transaction_isolation") == [("read committed",)]
        sink.run("rollback")
        assert sink.write([make_frame(1, [(1, 1, 1.0)])]) == [True]


def test_keys_find_a_users_own_unique_index_and_leave_other_columns_alone(postgres, context):
    query(
        postgres,
        "create table average (id bigint generated always as identity, zone bigint, ts timestamptz not null,"
        " mean float8, seen_by text, _frame bigint, primary key (id))",
    )
    with pytest.raises(SinkError, match="unique"):
        write.postgres(postgres.url, "average", ["zone"]).open(context())
    query(postgres, "create unique index on average (zone) where zone > 3")
    query(postgres, "create unique index on average (lower(seen_by), zone)")
    with pytest.raises(SinkError, match="unique"):
        write.postgres(postgres.url, "average", ["zone"]).open(context())
    query(postgres, "create unique index on average (zone)")
    with closing(write.postgres(postgres.url, "average", ["zone"]).open(context())) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0)])])
        query(postgres, "update average set seen_by = 'nurse'")
        sink.write([make_frame(2, [(1, 2, 2.0), (2, 2, 2.0)])])
    assert query(postgres, "select zone, mean, seen_by from average order by zone") == [
        (1, 2.0, "nurse"),
        (2, 2.0, None),
    ]


def test_a_server_that_is_not_there_is_away_and_a_wrong_password_is_not(postgres, context):
    """Who is not let in will not be let in later; a server may come back."""
    with pytest.raises(SinkAway) as caught:
        write.postgres("postgresql://me:geheim-77@127.0.0.1:1/x", "average").open(context())
    assert caught.value.code == "HF-K013" and "geheim-77" not in str(caught.value)
    wrong = postgres.url.replace(postgres.password, "geheim-77")
    with pytest.raises(SinkError) as caught:
        write.postgres(wrong, "average").open(context())
    assert caught.value.code == "HF-K004" and not isinstance(caught.value, SinkAway)
    assert "password authentication failed" in caught.value.why and "geheim-77" not in str(caught.value)


def test_a_lock_of_somebody_elses_is_waited_for_later(postgres, context, monkeypatch):
    monkeypatch.setattr("holdfast.sinks.postgres._LOCK_S_MAX", 0.1)
    with closing(write.postgres(postgres.url, "average").open(context())) as sink:
        with psycopg.connect(postgres.url) as other:
            other.execute("lock table average in exclusive mode")
            with pytest.raises(SinkAway):
                sink.write([make_frame(1, [(1, 1, 1.0)])])
        assert sink.write([make_frame(1, [(1, 1, 1.0)])]) == [True]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:geheim-77@db.example:5433/clinic?sslmode=require",
        "postgresql://me@db.example:5433/clinic?password=geheim-77",
        "host=db.example port=5433 dbname=clinic user=me password='geheim-77'",
    ],
)
def test_a_password_is_shown_nowhere(url, context, caplog):
    caplog.set_level(logging.DEBUG)
    writer = write.postgres(url, "alarms")
    [finding] = writer.check(context().schema, sink="alarms")
    assert finding.code == "HF-K014" and finding.warning
    with pytest.raises(SinkError) as caught:
        writer.open(context())
    from holdfast.sinks.ledger_reader import target_of

    said = [writer.describe(), repr(writer), str(finding), str(caught.value), str(target_of(writer, "/"))]
    assert all("geheim" not in text for text in [*said, caplog.text])
    assert writer.describe() == 'PostgreSQL clinic at db.example:5433, table "alarms"'


def test_an_address_nobody_can_read_is_refused_without_being_repeated(context):
    """libpq quotes what it could not read, and that may be the password."""
    for url in (
        "postgresql://me:geheim-77@[::1:5432/x", "me geheim-77", "postgresql://me@h:geheim-77/x",
        "postgresql://me:a@geheim-77@h/x", "postgresql://me:geheim/77@h/x", "postgresql://me:geheim%77%@h/x",
    ):  # fmt: skip
        with pytest.raises(SinkError) as caught:
            write.postgres(url, "average").open(context())
        assert caught.value.code == "HF-K004" and "geheim" not in str(caught.value), caught.value


def test_a_secret_is_read_when_the_sink_is_opened(postgres, context, monkeypatch):
    writer = write.postgres(hf.secret("WARD_PG"), "average")
    assert writer.check(context().schema) == []
    assert writer.describe() == "PostgreSQL hf.secret('WARD_PG'), table \"average\""
    with pytest.raises(UsageError) as caught:
        writer.open(context())
    assert caught.value.code == "HF-C009"
    monkeypatch.setenv("WARD_PG", postgres.url)
    with closing(writer.open(context())) as sink:
        assert sink.write([make_frame(1, [(1, 1, 1.0)])]) == [True]


def test_stable_replaces_tentative_in_a_schema(postgres, context):
    query(postgres, "create schema ward")
    try:
        with closing(write.postgres(postgres.url, "average", schema="ward").open(context())) as sink:
            sink.write([make_frame(1, [(1, 1, 1.0), (2, 2, 2.0)], kind=Kind.TENTATIVE)])
            assert sink.write([make_frame(1, [(3, 3, 3.0)])]) == [True]
        assert query(postgres, "select zone from ward.average") == [(3,)]
    finally:
        query(postgres, "drop schema ward cascade")


def test_a_user_who_may_not_create_is_told_what_to_grant(postgres, context):
    query(postgres, "drop role if exists clerk")
    query(postgres, "create role clerk login password 'clerk-pw'")
    query(postgres, "grant usage on schema public to clerk")
    url = postgres.url.replace("postgres:correct-horse", "clerk:clerk-pw")
    with pytest.raises(SinkError) as caught:
        write.postgres(url, "average").open(context())
    assert "grant usage, create on schema public" in caught.value.do
    # Once the tables are there, writing needs no right to create any.
    with closing(write.postgres(postgres.url, "average").open(context())):
        pass
    query(postgres, "grant select, insert, update, delete on all tables in schema public to clerk")
    with closing(write.postgres(url, "average").open(context())) as sink:
        assert sink.write([make_frame(1, [(1, 1, 1.0)])]) == [True]


@pytest.mark.parametrize(
    ("declared", "wanted", "fits"),
    [
        ("bigint", "integer", True), ("integer", "bigint", False), ("double precision", "real", True),
        ("numeric", "numeric(12,2)", True), ("numeric(14,2)", "numeric(12,2)", True),
        ("numeric(14,4)", "numeric(12,2)", True), ("numeric(13,4)", "numeric(12,2)", False),
        ("character varying(20)", "text", True), ("character(20)", "text", False), ("integer", "text", False),
        ("timestamp without time zone", "timestamp with time zone", False), ("json", "jsonb", True),
        ("double precision", "numeric(12,2)", False),
    ],
)  # fmt: skip
def test_which_columns_keep_our_values(declared, wanted, fits):
    assert holds(declared, wanted) is fits


def test_marks_are_replaced_outside_of_names_only():
    assert marked('update "a?b""%s" set x = ? where y % 2 = ?') == 'update "a?b""%%s" set x = %s where y %% 2 = %s'


def test_addresses_in_both_forms():
    assert shown("postgresql:///clinic") == "PostgreSQL clinic"
    assert shown("postgresql://a:1,b:2/clinic") == "PostgreSQL clinic at a:1,b:2"
    assert shown("service=ward") == "PostgreSQL"
    assert not password_in("postgresql://me@db/clinic") and password_in("host=db password=x")
    assert without_password("bad: p%40ss or p@ss", "postgresql://me:p%40ss@db/x") == "bad: p%40ss or ***"


@pytest.mark.parametrize(
    ("url", "table", "schema"), [("", "a", None), (5, "a", None), ("x", "ä" * 32, None), ("x", "a", "")]
)
def test_what_makes_no_sink_is_refused_when_it_is_declared(url, table, schema):
    with pytest.raises(UsageError) as caught:
        write.postgres(url, table, schema=schema)
    assert caught.value.code == "HF-K011"
