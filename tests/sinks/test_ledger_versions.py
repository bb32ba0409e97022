"""Ledgers made by an earlier version are taken over in place: their frames stay known, new columns are there."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import duckdb
import psycopg
import pytest

import holdfast as hf
from holdfast.sinks import write

from .conftest import make_frame

OLD = (
    """create table _holdfast_ledger (
    process varchar(255) not null, sink varchar(255) not null, frame bigint not null,
    kind varchar(16) not null, checksum varchar(64) not null, epoch bigint not null,
    "rows" bigint not null, primary key (process, sink, frame))""",
    """create table _holdfast_epoch (
    process varchar(255) not null, sink varchar(255) not null, epoch bigint not null,
    frame bigint not null, target varchar(255) not null, primary key (process, sink))""",
    "insert into _holdfast_ledger values ('kiln', 'average', 1, 'stable', 'c1', 1, 1)",
    "insert into _holdfast_epoch values ('kiln', 'average', 1, 1, 'average')",
)
ROWS = 'create table average (zone integer, ts {time}, mean {real}, "_frame" bigint, "_i" bigint)'
LEDGER = "select frame, kind, checksum, rows, mark, left_out from _holdfast_ledger order by frame"
EPOCH = "select frame, folder, base, total from _holdfast_epoch"


def marked(frame):
    record, table = frame
    return replace(record, mark="tainted"), table


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def database(request, tmp_path):
    """A function that connects, and the writer of the table `average`; the ledger is an old one with frame 1."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url
        connect, writer = lambda: psycopg.connect(url, autocommit=True), write.postgres(url, "average")
        row = ROWS.format(time="timestamp with time zone", real="double precision")
    elif request.param == "duckdb":
        connect, writer = lambda: closing(duckdb.connect(str(tmp_path / "o.db"))), write.duckdb("o.db", "average")
        row = ROWS.format(time="timestamp with time zone", real="double")
    else:
        path = tmp_path / "o.db"
        connect, writer = lambda: closing(sqlite3.connect(path, isolation_level=None)), write.sqlite("o.db", "average")
        row = ROWS.format(time="text", real="real")
    with connect() as connection:
        for statement in (*OLD, row, "insert into average (zone, _frame, _i) values (7, 1, 0)"):
            connection.execute(statement)
    return connect, writer


def test_an_old_ledger_gets_the_columns_it_lacks_and_keeps_its_frames(database, context):
    connect, writer = database
    first, second = make_frame(1, [(7, 1, 1.0)], checksum="c1"), make_frame(2, [(8, 2, 2.0)], checksum="c2")
    for expected in ([False, True], [False, False]):  # and a second time, with nothing left to add
        with closing(writer.open(context(epoch=2))) as sink:
            assert sink.write([first, marked(second)]) == expected
    with connect() as connection:
        assert connection.execute(LEDGER).fetchall() == [
            (1, "stable", "c1", 1, "", 0),
            (2, "stable", "c2", 1, "tainted", 0),
        ]
        assert [row[0] for row in connection.execute(EPOCH).fetchall()] == [2]
        assert connection.execute("select zone from average order by _frame").fetchall() == [(7,), (8,)]


def test_once_takes_over_an_old_ledger(database):
    connect, _ = database
    with connect() as connection:
        with hf.once(connection, 1, process="kiln", sink="average", epoch=1) as fresh:
            assert not fresh
        with hf.once(connection, 2, process="kiln", sink="average", epoch=1) as fresh:
            assert fresh
        assert [row[0] for row in connection.execute(LEDGER).fetchall()] == [1, 2]


def test_who_may_only_write_is_told_what_to_add(postgres, context):
    """An old ledger of another user: the columns are its owner's to add, and the error says which."""
    with psycopg.connect(postgres.url, autocommit=True) as owner:
        for statement in (*OLD, ROWS.format(time="timestamp with time zone", real="double precision")):
            owner.execute(statement)
        owner.execute("drop role if exists clerk")
        owner.execute("create role clerk login password 'pw'")
        owner.execute("grant usage on schema public to clerk")
        owner.execute("grant all on all tables in schema public to clerk")
        owner.execute("insert into average (_frame, _i) values (1, 0)")
        address = postgres.url.replace("postgres:correct-horse", "clerk:pw")
        with pytest.raises(hf.HoldfastError) as caught:
            write.postgres(address, "average").open(context(epoch=2))
        assert caught.value.code == "HF-K005" and "nothing was written" in caught.value.effect
        for statement in caught.value.do.splitlines()[1:]:
            owner.execute(statement)
        with closing(write.postgres(address, "average").open(context(epoch=2))) as sink:
            assert sink.write([make_frame(2, [(8, 2, 2.0)])]) == [True]
        owner.execute("drop owned by clerk")
        owner.execute("drop role clerk")


def test_an_old_manifest_gets_the_fields_it_lacks(tmp_path, context):
    with closing(write.parquet("out").open(context())) as sink:
        sink.write([make_frame(1, [(7, 1, 1.0)], checksum="c1")])
    manifest = tmp_path / "out" / "_holdfast" / "ledger.jsonl"
    head, *lines = map(json.loads, manifest.read_text().splitlines())
    for name in ("folder", "start_id", "base", "check"):
        del head[name]
    head["lines"] = head["lines"][:5]
    manifest.write_text("".join(json.dumps(each) + "\n" for each in [head, *(line[:5] for line in lines)]))
    for expected in ([False, True], [False, False]):
        with closing(write.parquet("out").open(context(epoch=2))) as sink:
            second = marked(make_frame(2, [(8, 2, 2.0)], checksum="c2"))
            assert sink.write([make_frame(1, [(7, 1, 1.0)], checksum="c1"), second]) == expected
    head, *lines = map(json.loads, manifest.read_text().splitlines())
    lines = [dict(zip(head["lines"], line, strict=True)) for line in lines]
    assert [(line["frame"], line["mark"], line["left_out"]) for line in lines] == [(1, "", 0), (2, "tainted", 0)]
    assert (
        lines[0]["bytes"] is None and lines[1]["bytes"] == (tmp_path / "out" / "frame-00000002.parquet").stat().st_size
    )
