"""What an error of a sink tells a person to do, done here as it is written; the sink then takes the frame.

HF-K005, HF-K008 and HF-K036 in test_refusing.py, HF-K013 in test_tables.py and tests/live/test_troubles.py, HF-K030 to
HF-K034 in test_owners.py, test_comparing.py and tests/spark/test_ledger_borders.py.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from holdfast.engine.state_folder import StateFolder
from holdfast.errors import SinkError
from holdfast.graph.schemas import Schema
from holdfast.sinks import write

from .conftest import make_frame

FRAME = make_frame(1, [(1, 1, 1.0)])


@pytest.fixture
def run(tmp_path):
    def statement(sql):
        with closing(sqlite3.connect(tmp_path / "o.db", isolation_level=None)) as connection:
            return connection.execute(sql).fetchall()

    return statement


def refused(code, opening):
    with pytest.raises(SinkError) as caught:
        opening()
    assert caught.value.code == code
    return caught.value


def test_a_table_that_lacks_a_column_is_altered_or_the_sink_adds_it(context, run):
    with closing(write.sqlite("o.db", "t").open(context(schema=Schema.of("zone int")))):
        pass
    error = refused("HF-K001", lambda: write.sqlite("o.db", "t").open(context()))
    assert "new_columns='add'" in error.do and "alter this one" in error.do
    run("alter table t add column ts text")
    with closing(write.sqlite("o.db", "t", new_columns="add").open(context())) as sink:
        assert sink.write([FRAME]) == [True]


def test_a_table_of_another_sink_is_dropped_or_left_to_it(context, run):
    with closing(write.sqlite("o.db", "t").open(context(sink="other"))):
        pass
    error = refused("HF-K006", lambda: write.sqlite("o.db", "t").open(context()))
    assert "a table of its own" in error.do and "drop the table" in error.do
    with closing(write.sqlite("o.db", "own").open(context(sink="third"))) as sink:
        assert sink.write([FRAME]) == [True]
    run("drop table t")
    with closing(write.sqlite("o.db", "t").open(context())) as sink:
        assert sink.write([FRAME]) == [True]


def test_a_dropped_table_begins_anew_with_a_fresh_state_folder(context, run, tmp_path):
    def owned(root):
        folder = StateFolder(tmp_path / root)
        epoch = folder.acquire("kiln")
        owner = folder.owner()
        folder.release()
        return replace(context(epoch=epoch), owner=owner)

    with closing(write.sqlite("o.db", "t").open(owned("old"))) as sink:
        sink.write([FRAME])
    run("alter table t rename to elsewhere")
    error = refused("HF-K007", lambda: write.sqlite("o.db", "t").open(owned("old")))
    run("alter table elsewhere rename to t")  # "bring the table back"
    with closing(write.sqlite("o.db", "t").open(owned("old"))) as sink:
        assert sink.write([FRAME]) == [False]
    run("drop table t")
    statements = [line for line in error.do.splitlines() if line.startswith("delete from")]
    assert len(statements) == 2
    for statement in statements:
        run(statement)
    with closing(write.sqlite("o.db", "t").open(owned("fresh"))) as sink:
        assert sink.write([FRAME]) == [True]


def test_a_key_that_is_no_column_is_the_one_that_was_meant(context):
    error = refused("HF-K002", lambda: write.sqlite("o.db", "t", "zon").open(context()))
    assert error.do == "did you mean 'zone'?"
    with closing(write.sqlite("o.db", "t", "zone").open(context())) as sink:
        assert sink.write([FRAME]) == [True]


def test_a_tentative_frame_for_a_table_without_keys(context):
    from holdfast.frames.identity import Kind

    guess = make_frame(1, [(1, 1, 1.0)], kind=Kind.TENTATIVE)
    with closing(write.sqlite("o.db", "t", "zone").open(context())) as sink:
        error = refused("HF-K009", lambda: sink.write([guess]))
    assert "leave out keys=" in error.do
    with closing(write.sqlite("o.db", "plain").open(context(sink="plain"))) as sink:
        assert sink.write([guess]) == [True]
