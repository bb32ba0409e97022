"""hf.once: the ledger row commits with the user's rows, or neither does."""

from __future__ import annotations

import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import duckdb
import psycopg
import pyarrow as pa
import pytest

from holdfast.errors import FrameDiffers, SinkError, UsageError
from holdfast.sinks import write
from holdfast.sinks.once import once

from .conftest import make_frame


class Database:
    def __init__(self, module, path):
        self.module, self.path = module, path

    def connect(self, **options):
        return closing(self.module.connect(str(self.path), **options))

    def rows(self):
        with self.connect() as connection:
            return [x for (x,) in connection.execute("select x from sales order by x").fetchall()]


class Server(Database):
    def __init__(self, url):
        self.url = url

    def connect(self, **options):
        return closing(psycopg.connect(self.url, **options))


@pytest.fixture(params=[sqlite3, duckdb, psycopg], ids=["sqlite", "duckdb", "postgres"])
def database(request, tmp_path):
    if request.param is psycopg:
        made = Server(request.getfixturevalue("postgres").url)
    else:
        made = Database(request.param, tmp_path / "own.db")
    with made.connect() as connection:
        connection.execute("create table sales (x integer)")
        connection.commit()
    return made


def add(connection, x):
    mark = "%s" if isinstance(connection, psycopg.Connection) else "?"
    connection.execute(f"insert into sales values ({mark})", [x])


def test_a_frame_that_comes_again_is_not_fresh(database):
    for _ in range(2):
        with database.connect() as connection:
            for frame in (0, 1, 2):  # Spark's batch_id begins at 0
                with once(connection, frame) as fresh:
                    if fresh:
                        add(connection, frame)
    assert database.rows() == [0, 1, 2]


def test_an_error_takes_back_rows_and_ledger_row(database):
    with database.connect() as connection:
        with pytest.raises(ZeroDivisionError), once(connection, 1) as fresh:
            add(connection, 1 / (not fresh))
        with once(connection, 1) as fresh:
            assert fresh
            add(connection, 5)
    assert database.rows() == [5]


def test_an_open_transaction_stays_the_callers(database):
    """Its earlier statements must not be committed behind its back."""
    with database.connect() as connection:
        connection.execute("begin")
        add(connection, 1)
        with once(connection, 1) as fresh:
            assert fresh
            add(connection, 2)
        connection.rollback()
        with once(connection, 1) as fresh:
            assert fresh
    assert database.rows() == []


def test_without_with_the_commit_is_the_callers(database):
    with database.connect() as connection:
        assert once(connection, 1)
        add(connection, 1)
        connection.rollback()
        assert once(connection, 1)
        add(connection, 2)
        connection.commit()
        assert not once(connection, 1)
        connection.rollback()
    assert database.rows() == [2]


def test_processes_and_sinks_have_frames_of_their_own(database):
    with database.connect() as connection:
        for process, sink in [("a", "x"), ("a", "y"), ("b", "x")]:
            with once(connection, 1, process=process, sink=sink) as fresh:
                assert fresh


def test_other_content_is_refused_when_checksums_are_given(database):
    with database.connect() as connection:
        with once(connection, 1, checksum="a"):
            pass
        with once(connection, 1, checksum="a") as fresh:
            assert not fresh
        with once(connection, 1) as fresh:
            assert not fresh
        with pytest.raises(FrameDiffers), once(connection, 1, checksum="b"):
            pass
        with once(connection, 2) as fresh:  # the refused call left no transaction open
            assert fresh


def test_an_old_epoch_is_refused(database):
    with database.connect() as connection:
        with once(connection, 1, epoch=2):
            pass
        with pytest.raises(SinkError) as caught, once(connection, 2, epoch=1):
            pass
        assert caught.value.code == "HF-K003"


@pytest.mark.parametrize("options", [{"isolation_level": None}, {"isolation_level": "DEFERRED"}])
def test_sqlite_in_every_manner_of_transactions(tmp_path, options):
    database = Database(sqlite3, tmp_path / "own.db")
    with database.connect(**options) as connection:
        connection.execute("create table sales (x integer)")
        with once(connection, 1) as fresh:
            add(connection, 1)
        assert fresh and not connection.in_transaction
    assert database.rows() == [1]


def test_psycopg_that_commits_by_itself(postgres):
    database = Server(postgres.url)
    with database.connect(autocommit=True) as connection:
        connection.execute("create table sales (x integer)")
        with pytest.raises(ZeroDivisionError), once(connection, 1) as fresh:
            add(connection, 1 / (not fresh))
        with once(connection, 1) as fresh:
            assert fresh
            add(connection, 1)
    assert database.rows() == [1]


def test_two_that_write_the_same_frame_at_once_on_a_server(postgres):
    """An old driver of the job still lives: one of the two gets the frame, the other none of it."""
    database = Server(postgres.url)
    with database.connect(autocommit=True) as connection:
        connection.execute("create table sales (x integer)")
    barrier, errors = threading.Barrier(2), []

    def write():
        with database.connect() as connection:
            barrier.wait()
            try:
                with once(connection, 7) as fresh:
                    if fresh:
                        add(connection, 7)
            except psycopg.Error as error:
                errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.rows() == [7]


def test_on_a_server_who_may_write_need_not_be_allowed_to_create(postgres):
    with closing(psycopg.connect(postgres.url, autocommit=True)) as admin:
        admin.execute("drop role if exists writer")
        admin.execute("create role writer login password 'writer-pw'")
        admin.execute("grant usage on schema public to writer")
        with once(admin, 1):
            pass
        admin.execute("grant select, insert, update, delete on all tables in schema public to writer")
    url = postgres.url.replace("postgres:correct-horse", "writer:writer-pw")
    with closing(psycopg.connect(url)) as connection, once(connection, 2) as fresh:
        assert fresh


@pytest.mark.parametrize("frame", [-1, True, "1", 1.0, None])
def test_a_frame_is_a_whole_number(tmp_path, frame):
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, pytest.raises(UsageError) as caught:
        once(connection, frame)
    assert caught.value.code == "HF-K012"


def test_what_is_no_connection_is_refused():
    with pytest.raises(UsageError) as caught:
        once(object(), 1)
    assert caught.value.code == "HF-K012"


def test_the_example_of_the_howto_runs(tmp_path, monkeypatch):
    """docs/howto/once.md, the function as printed; the process around it is the engine's to test."""
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "howto" / "once.md").read_text()
    [function] = re.findall(r"```python\nimport sqlite3.*?(def store.*?)\n\n", text, re.DOTALL)
    names = {"sqlite3": sqlite3, "hf": SimpleNamespace(once=once)}
    exec(function, names)
    database = Database(sqlite3, tmp_path / "sales.db")
    with database.connect() as connection:
        connection.execute("create table sales (x integer, y text)")
    for frame in (1, 2, 1):
        names["store"](pa.table({"x": [frame, 10 * frame], "y": ["a", "b"]}), frame)
    assert database.rows() == [1, 2, 10, 20]


def test_two_functions_of_a_run_under_one_name_are_told(tmp_path, context):
    """Frame 1 of the first would be taken for frame 1 of the second: its rows would never be written."""
    written = []

    def store(name, **names):
        def function(table, frame):
            with closing(sqlite3.connect(tmp_path / "out.db")) as connection, once(connection, frame, **names) as fresh:
                if fresh:
                    written.append((name, frame))

        return write.callback(function).open(context(sink=name))

    store("a").write([make_frame(1, [(1, 1, 1.0)])])
    with pytest.raises(SinkError, match="HF-K010") as told:
        store("b").write([make_frame(1, [(1, 1, 1.0)])])
    assert "HF-K006" in told.value.why and "hf.once(connection, frame, sink='b')" in told.value.why
    store("b", sink="b").write([make_frame(1, [(1, 1, 1.0)])])
    assert written == [("a", 1), ("b", 1)]

    # A sink that was renamed goes on as the message says.
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        connection.execute(re.search(r"update .*;", told.value.why)[0])
        connection.commit()
    store("b").write([make_frame(1, [(1, 1, 1.0)]), make_frame(2, [(1, 1, 1.0)])])
    assert written == [("a", 1), ("b", 1), ("b", 2)]
