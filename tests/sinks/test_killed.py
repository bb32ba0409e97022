"""kill -9 in the middle of a write: the next run leaves every frame in the target once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import psycopg
import pyarrow.parquet as pq
import pytest

from .killed_child import FRAMES, frames, open_sink

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def address(request, monkeypatch):
    """For PostgreSQL: a clean server with a schema for the killed run and one for its twin."""
    if request.node.callspec.params["kind"] == "postgres":
        server = request.getfixturevalue("postgres")
        with psycopg.connect(server.url, autocommit=True) as connection:
            for name in ("killed", "twin"):
                connection.execute(f"drop schema if exists {name} cascade")
                connection.execute(f"create schema {name}")
        monkeypatch.setenv("HOLDFAST_TEST_PG", server.url)


def child(kind, folder, point, frame, keyed):
    command = [sys.executable, "-m", "tests.sinks.killed_child", kind, str(folder), point, str(frame), keyed]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def content(kind, folder):
    if kind == "parquet":
        files = sorted((folder / "out").glob("*.parquet"))
        return [(file.name, pq.read_table(file).to_pylist()) for file in files]
    if kind == "postgres":
        connect = psycopg.connect(os.environ["HOLDFAST_TEST_PG"], options=f"-c search_path={folder.name}")
    else:
        connect = {"sqlite": sqlite3, "duckdb": duckdb}[kind].connect(str(folder / "out.db"))
    with closing(connect) as connection:
        rows = connection.execute("select * from average order by _frame, zone, ts").fetchall()
        ledger = connection.execute("select frame, kind, checksum, rows from _holdfast_ledger order by 1").fetchall()
    return rows, ledger


def undisturbed(kind, folder, keyed):
    folder.mkdir()
    with closing(open_sink(kind, folder, 1, keyed == "keyed")) as sink:
        assert all(sink.write(frames()))
    return content(kind, folder)


def go_on(kind, folder, keyed, *, last):
    """The next run sends all frames again; those before `last` are there, those after are not."""
    with closing(open_sink(kind, folder, 2, keyed == "keyed")) as sink:
        assert sink.last() == last
        assert sink.write(frames()) == [n > last for n in range(1, FRAMES + 1)]
        assert sink.last() == FRAMES
    return content(kind, folder)


POINTS = [
    *((kind, "append", *point) for kind in ("sqlite", "duckdb", "postgres") for point in
      [("rows inserted", 6), ("ledger entered", 6), ("committed", 7)]),
    ("sqlite", "keyed", "rows inserted", 6),
    ("duckdb", "keyed", "ledger entered", 6),
    ("postgres", "keyed", "rows inserted", 6),
    ("postgres", "keyed", "committed", 7),
    ("parquet", "append", "before rename", 6),
    ("parquet", "append", "renamed", 6),
    ("parquet", "append", "before ledger line", 6),
    ("parquet", "append", "after ledger line", 7),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keyed", "point", "last"), POINTS)
def test_a_kill_at_a_named_point_leaves_the_frame_whole_or_absent(tmp_path, kind, keyed, point, last):
    folder = tmp_path / "killed"
    folder.mkdir()
    process = child(kind, folder, point, 7, keyed)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert go_on(kind, folder, keyed, last=last) == undisturbed(kind, tmp_path / "twin", keyed)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "parquet", "postgres"])
def test_a_kill_at_any_moment_leaves_every_frame_once(tmp_path, kind):
    """The parent chooses the moment: right after the child reported a frame, while it writes the next."""
    folder = tmp_path / "killed"
    folder.mkdir()
    process = child(kind, folder, "none", 0, "append")
    reported = random.Random(kind).randrange(1, FRAMES)
    for _ in range(reported):
        process.stdout.readline()
    process.kill()
    process.communicate()
    with closing(open_sink(kind, folder, 2, False)) as sink:
        last = sink.last()
    assert last >= reported
    assert go_on(kind, folder, "append", last=last) == undisturbed(kind, tmp_path / "twin", "append")
