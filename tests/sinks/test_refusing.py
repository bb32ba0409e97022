"""Rows that a target refuses: found, set aside, left out; the rest of the frame is written, and a replay is the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import duckdb
import psycopg
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.flow.exclusions import Exclusions
from holdfast.errors import SinkError
from holdfast.graph.schemas import Schema
from holdfast.sinks import refusing, write
from holdfast.sinks.refusing import ranges_of, refused_rows, rows_in

from .conftest import make_frame

SCHEMA = Schema.of("id bigint, name string")
TABLE = 'create table people (id bigint {unique}, name {text} check (name <> \'bad\'), "_frame" bigint, "_i" bigint)'


class Tables:
    def __init__(self, kind, make, connect, text):
        self.kind, self.make, self._connect, self._text = kind, make, connect, text

    def run(self, sql):
        with self._connect() as connection:
            found = connection.execute(sql)
            return found.fetchall() if sql.startswith("select") else []

    def create(self, unique=""):
        self.run(TABLE.format(unique=unique, text=self._text))

    def rows(self):
        return self.run("select id, name, _frame, _i from people order by 3, 4")

    def ledger(self):
        return self.run("select frame, rows, left_out from _holdfast_ledger order by 1")


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def tables(request, tmp_path):
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url
        return Tables(
            "postgres",
            lambda keys=None: write.postgres(url, "people", keys),
            lambda: psycopg.connect(url),
            "varchar(9)",
        )
    path = str(tmp_path / "o.db")
    if request.param == "duckdb":
        return Tables(
            "duckdb",
            lambda keys=None: write.duckdb("o.db", "people", keys),
            lambda: closing(duckdb.connect(path)),
            "varchar",
        )
    return Tables(
        "sqlite",
        lambda keys=None: write.sqlite("o.db", "people", keys),
        lambda: closing(sqlite3.connect(path, isolation_level=None)),
        "text",
    )


@pytest.fixture
def opened(context, tmp_path):
    def make(writer, on_error="quarantine"):
        aside = Exclusions(tmp_path / "sinks" / "average") if on_error != "fail" else None
        return closing(writer.open(replace(context(schema=SCHEMA), on_error=on_error, aside=aside, stream="average")))

    return make


def frame(n, *rows):
    return make_frame(n, rows, schema=SCHEMA, checksum=f"c{n}")


def test_rows_that_a_constraint_refuses_are_set_aside_and_the_rest_is_written(tables, opened, tmp_path):
    tables.create()
    poison = frame(2, (1, "a"), (2, "bad"), (3, "b"), (4, "bad"), (5, "c"))
    for expected in ([True, True, True], [False, False, False]):
        with opened(tables.make()) as sink:
            assert sink.write([frame(1, (0, "z")), poison, frame(3, (9, "y"))]) == expected
    assert tables.rows() == [(0, "z", 1, 0), (1, "a", 2, 0), (3, "b", 2, 2), (5, "c", 2, 4), (9, "y", 3, 0)]
    assert tables.ledger() == [(1, 1, 0), (2, 5, 2), (3, 1, 0)]
    kept = tmp_path / "sinks" / "average" / "quarantine" / "00000002-average.parquet"
    assert pq.read_table(kept).to_pylist() == [{"id": 2, "name": "bad"}, {"id": 4, "name": "bad"}]
    assert Exclusions(tmp_path / "sinks" / "average").rows("quarantine") == {"sink average": 2}


def test_the_decision_stands_before_the_frame_is_written(tables, opened, tmp_path, monkeypatch):
    """Killed in between, the next run leaves out the same rows without asking the target again."""
    tables.create()
    with opened(tables.make()) as sink:
        whole, writes = sink._write, []

        def dies(batch):
            writes.append(batch)
            if len(writes) == 2:
                raise KeyboardInterrupt
            return whole(batch)

        monkeypatch.setattr(sink, "_write", dies)
        with pytest.raises(KeyboardInterrupt):
            sink.write([frame(1, (1, "a"), (2, "bad"))])
    assert tables.rows() == []
    with opened(tables.make()) as sink:
        monkeypatch.setattr(sink, "_set_aside", lambda *_: pytest.fail("asked again"))
        assert sink.write([frame(1, (1, "a"), (2, "bad"))]) == [True]
    assert tables.rows() == [(1, "a", 1, 0)] and tables.ledger() == [(1, 2, 1)]


def test_of_two_rows_that_exclude_each_other_the_first_stays(tables, opened):
    """A unique constraint of the user's, within a frame and over frames of one transaction."""
    tables.create(unique="unique")
    with opened(tables.make()) as sink:
        sink.write([frame(1, (1, "a"), (2, "b"), (1, "c")), frame(2, (2, "d"), (3, "e"))])
    assert tables.rows() == [(1, "a", 1, 0), (2, "b", 1, 1), (3, "e", 2, 1)]
    assert tables.ledger() == [(1, 3, 1), (2, 2, 1)]


def test_null_keys_are_set_aside(tables, opened, tmp_path):
    with opened(tables.make("id")) as sink:
        sink.write([frame(1, (None, "x"), (1, "a"), (None, "y"))])
    assert tables.run("select id, name from people") == [(1, "a")] and tables.ledger() == [(1, 3, 2)]


def test_dropped_rows_are_counted_and_not_kept(tables, opened, tmp_path):
    tables.create()
    with opened(tables.make(), "drop") as sink:
        sink.write([frame(1, (1, "bad"), (2, "a"))])
    assert tables.rows() == [(2, "a", 1, 1)]
    aside = Exclusions(tmp_path / "sinks" / "average")
    assert (aside.rows("drop"), aside.rows("quarantine")) == ({"sink average": 1}, {})
    assert not list((tmp_path / "sinks" / "average" / "quarantine").glob("*.parquet"))


def test_without_on_error_the_frame_stays_out_and_the_words_name_what_helps(tables, opened):
    """What the error says is done here: on_error= lets the very frame that was refused through."""
    tables.create()
    with opened(tables.make(), "fail") as sink, pytest.raises(SinkError) as caught:
        sink.write([frame(1, (1, "bad"), (2, "a"))])
    assert caught.value.code == "HF-K005" and "on_error='quarantine'" in caught.value.do
    assert tables.rows() == []
    with opened(tables.make(), "quarantine") as sink:
        sink.write([frame(1, (1, "bad"), (2, "a"))])
    assert tables.rows() == [(2, "a", 1, 1)]


def test_the_remedy_of_a_null_key_lets_the_frame_through(tables, opened):
    """Filtering in the operator does not: the frame is sealed."""
    null = frame(1, (None, "x"), (1, "a"))
    with opened(tables.make("id"), "fail") as sink, pytest.raises(SinkError) as caught:
        sink.write([null])
    assert caught.value.code == "HF-K008" and "on_error='quarantine'" in caught.value.do
    with opened(tables.make("id"), "quarantine") as sink:
        assert sink.write([null]) == [True]


def test_a_zero_byte_that_postgres_cannot_hold_is_set_aside(postgres, opened):
    writer = write.postgres(postgres.url, "people")
    with opened(writer) as sink:
        sink.write([frame(1, (1, "a\0b"), (2, "c"))])
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("select id, name, _i from people").fetchall() == [(2, "c", 1)]


def test_a_target_that_refuses_everything_is_told_as_such(tables, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(refusing, "TRIED_MAX", 3)
    tables.create()
    with opened(tables.make()) as sink, pytest.raises(SinkError) as caught:
        sink.write([frame(1, *((n, "bad") for n in range(9)))])
    assert caught.value.code == "HF-K036"
    assert tables.rows() == [] and not (tmp_path / "sinks" / "average" / "quarantine").exists()


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 60),
    st.sets(st.integers(0, 59), max_size=8),
    st.sets(st.tuples(st.integers(0, 59), st.integers(0, 59)), max_size=5),
)
def test_what_is_left_out_is_enough_and_no_row_of_it_is_innocent(count, bad, pairs):
    """Rows that are bad alone, and pairs that exclude each other."""

    def fits(rows):
        there = set(rows)
        return not there & bad and not any(a != b and {a, b} <= there for a, b in pairs)

    out = refused_rows(count, fits)
    assert fits([row for row in range(count) if row not in out])
    for row in out:
        before = [each for each in range(row) if each not in out]
        assert not fits([*before, row])


@given(st.sets(st.integers(0, 40)))
def test_ranges_hold_the_same_rows(rows):
    assert rows_in(ranges_of(sorted(rows))) == sorted(rows)


def test_rows_of_two_frames_of_the_same_content_keep_their_places(tables, opened):
    """Decided and killed before the frame was written; when it comes again, with one behind it, the table was altered."""
    tables.create()
    rows = [(1, "bad"), (2, "b")]
    first, second = (make_frame(n, rows, schema=SCHEMA, checksum="same") for n in (1, 2))
    with opened(tables.make()) as sink:
        sink._set_aside(*first, SinkError("HF-K005", "SinkFailed", "x"))
    tables.run("drop table people")
    tables.run('create table people (id bigint, name varchar(9), "_frame" bigint, "_i" bigint)')
    with opened(tables.make()) as sink:
        sink.write([first, second])
    assert tables.rows() == [(2, "b", 1, 1), (1, "bad", 2, 0), (2, "b", 2, 1)]


def test_a_row_that_a_trigger_swallows_is_set_aside(tmp_path, opened):
    with closing(sqlite3.connect(tmp_path / "o.db")) as connection:
        connection.execute("create table people (id bigint, name text, _frame bigint, _i bigint)")
        connection.execute("create trigger g before insert on people when new.id = 2 begin select raise(ignore); end")
    with opened(write.sqlite("o.db", "people")) as sink:
        assert sink.write([frame(1, (1, "a"), (2, "b"), (3, "c"))]) == [True]
        assert sink.run("select id, _i from people") == [(1, 0), (3, 2)]
        assert sink.run("select left_out from _holdfast_ledger") == [(1,)]
