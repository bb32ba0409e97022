"""A target that lost or gained rows since the last run is noticed when the next one opens it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import duckdb
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.state_folder import StateFolder
from holdfast.errors import SinkError
from holdfast.sinks import comparing, write
from holdfast.sinks.comparing import differing, newest_frames
from holdfast.sinks.owners import Taking

from .conftest import make_frame


class Tables:
    def __init__(self, make, connect):
        self.make, self._connect = make, connect

    def run(self, sql):
        with self._connect() as connection:
            found = connection.execute(sql)
            return found.fetchall() if sql.startswith("select") else []


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def tables(request, tmp_path):
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url
        return Tables(lambda keys=None, **o: write.postgres(url, "average", keys, **o), lambda: psycopg.connect(url))
    path = str(tmp_path / "o.db")
    if request.param == "duckdb":
        return Tables(
            lambda keys=None, **o: write.duckdb("o.db", "average", keys, **o), lambda: closing(duckdb.connect(path))
        )
    return Tables(
        lambda keys=None, **o: write.sqlite("o.db", "average", keys, **o),
        lambda: closing(sqlite3.connect(path, isolation_level=None)),
    )


@pytest.fixture
def start(context, tmp_path):
    """Opens a writer as the next start of one state folder does."""

    def opened(writer, **more):
        folder = StateFolder(tmp_path / "state")
        epoch = folder.acquire("kiln")
        owner = replace(folder.owner(), sinks=frozenset(["average"]))
        folder.release()
        return closing(writer.open(replace(context(epoch=epoch), owner=owner, **more)))

    return opened


def frames(numbers, zones=3):
    return [make_frame(n, [(zone, n, 1.0) for zone in range(zones)]) for n in numbers]


def refused(start, writer):
    with pytest.raises(SinkError) as caught:
        start(writer)
    assert caught.value.code == "HF-K034"
    return caught.value


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("delete from average where _frame <= 2", "6 rows fewer"),
        ("delete from average where _frame = 3 and _i = 1", "1 row fewer"),
        ("delete from average", "12 rows fewer"),
        ("insert into average (zone, _frame, _i) values (9, 4, 7)", "1 row more"),
        ("insert into average (zone, _frame, _i) values (9, 70, 0)", "1 row more"),
        ("update average set _frame = 77 where _frame = 1", "3 rows fewer and 3 rows more"),
    ],
)
def test_rows_deleted_or_added_by_hand_are_told_until_they_are_accepted(tables, start, statement, told):
    with start(tables.make()) as sink:
        sink.write(frames([1, 2, 3, 4]))
    with start(tables.make()):
        pass  # as it was left
    tables.run(statement)
    before = tables.run("select count(*) from average")
    for _ in range(2):
        assert told in refused(start, tables.make()).what
    with start(tables.make(), taking=Taking(lambda checksum: 4)) as sink:  # what holdfast adopt-table does
        assert sink.taken.accepted and sink.taken.written == 4
    assert tables.run("select count(*) from average") == before
    for _ in range(2):
        with start(tables.make()) as sink:
            assert sink.last() >= 4
            sink.write(frames([5]))
    assert tables.run("select count(*) from average") == [(before[0][0] + 3,)]


def test_a_shared_table_may_lose_and_gain_rows(tables, start):
    """Somebody deletes old rows each night, and says so."""
    with start(tables.make(shared=True)) as sink:
        sink.write(frames([1, 2]))
    tables.run("delete from average where _frame = 1")
    with start(tables.make(shared=True)) as sink:
        assert sink.write(frames([3])) == [True]


def test_a_table_with_keys_is_counted_when_a_run_ends(tables, start):
    with start(tables.make("zone")) as sink:
        sink.write(frames([1, 2], zones=5))
    with start(tables.make("zone")) as sink:
        sink.write(frames([3], zones=7))
    tables.run("delete from average where zone = 6")
    error = refused(start, tables.make("zone"))
    assert "1 row fewer" in error.what and "it has 6 rows, it had 7" in error.why
    with start(tables.make("zone"), taking=Taking(lambda checksum: 3)):
        pass
    with start(tables.make("zone")) as sink:
        assert sink.write(frames([4])) == [True]


def test_after_a_kill_an_empty_table_with_keys_is_still_noticed(tables, start):
    with start(tables.make("zone")) as sink:
        sink.write(frames([1, 2]))
        sink._connection.close()
        sink._connection = None  # as a kill leaves it: nothing was counted
    with start(tables.make("zone")) as sink:
        pass  # what is there counts
    tables.run("update _holdfast_epoch set total = null")
    tables.run("delete from average")
    assert "fewer" in refused(start, tables.make("zone")).what


def test_only_the_newest_rows_of_a_large_table_are_counted(tables, start, monkeypatch):
    """A start must not read a table of years."""
    monkeypatch.setattr(comparing, "ROWS_COUNTED_MAX", 6)
    monkeypatch.setattr(comparing.newest_frames, "__defaults__", (6,))
    with start(tables.make()) as sink:
        sink.write(frames([1, 2, 3, 4]))
    tables.run("delete from average where _frame = 1")
    with start(tables.make()):
        pass
    tables.run("delete from average where _frame = 3 and _i = 0")
    assert "frame 3 has 2 of 3" in refused(start, tables.make()).why


@pytest.mark.parametrize("harm", ["deleted", "shortened", "replaced", "beside"])
def test_a_parquet_folder_whose_files_changed_is_told(tmp_path, start, harm):
    with start(write.parquet("out")) as sink:
        sink.write(frames([1, 2, 3]))
    path = tmp_path / "out" / "frame-00000002.parquet"
    whole = path.read_bytes()
    if harm == "deleted":
        path.unlink()
    elif harm == "shortened":
        path.write_bytes(whole[:-20])
    elif harm == "replaced":
        import pyarrow.parquet as pq

        pq.write_table(pq.read_table(path), path, compression="none")
    else:
        with start(write.parquet("out")) as sink:
            sink.write(frames([4], zones=0))
        (tmp_path / "out" / "frame-00000004.parquet").write_bytes(whole)
    for _ in range(2):
        refused(start, write.parquet("out"))
    with start(write.parquet("out", shared=True)):
        pass
    with start(write.parquet("out"), taking=Taking(lambda checksum: 3)) as sink:
        assert sink.taken.accepted
    with start(write.parquet("out")) as sink:
        assert sink.write(frames([5])) == [True]


@settings(max_examples=200, deadline=None)
@given(
    expected=st.dictionaries(st.integers(1, 9), st.integers(0, 5)),
    there=st.dictionaries(st.integers(1, 9), st.integers(1, 5)),
)
def test_differences_are_exactly_what_would_have_to_change(expected, there):
    """Zero rows and no entry are the same."""
    found = differing(expected, there)
    mended = dict(there)
    for each in found:
        assert each.expected != each.there
        mended[each.frame] = each.expected
    plain = {n: rows for n, rows in expected.items() if rows}
    assert {n: rows for n, rows in mended.items() if rows} == plain
    assert bool(found) == ({n: rows for n, rows in there.items() if rows} != plain)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.integers(0, 9), max_size=12), limit=st.integers(0, 30))
def test_the_newest_frames_hold_no_more_rows_than_may_be_counted(rows, limit):
    newest_first = [(100 - at, count) for at, count in enumerate(rows)]
    found = newest_frames(newest_first, limit)
    assert list(found.items()) == newest_first[: len(found)]
    assert len(found) <= 1 or sum(found.values()) <= limit
    assert len(found) == len(rows) or sum(found.values()) + newest_first[len(found)][1] > limit
