"""A ledger belongs to one state folder; who takes it over gets numbers above those that are there."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import duckdb
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import SinkError
from holdfast.sinks import write
from holdfast.sinks.ledger import KEPT_FRAMES
from holdfast.sinks.owners import Claim, Owner, Taking, judge_owner, taken

from .conftest import make_frame


class Target:
    """One place that takes frames, and what is in it."""

    def __init__(self, kind, writer, rows):
        self.kind, self.writer, self.rows = kind, writer, rows


@pytest.fixture(params=["sqlite", "duckdb", "postgres", "parquet"])
def target(request, tmp_path):
    """`rows()`: (number, zone) of every row there."""
    sql, kind = "select _frame, zone from average order by 1, 2", request.param
    if kind == "postgres":
        url = request.getfixturevalue("postgres").url

        def asked():
            with psycopg.connect(url) as connection:
                return connection.execute(sql).fetchall()

        return Target(kind, write.postgres(url, "average"), asked)
    if kind == "parquet":
        import pyarrow.parquet as pq

        def read():
            return [
                (int(path.stem[6:]), zone)
                for path in sorted((tmp_path / "out").glob("*.parquet"))
                for zone in pq.read_table(path)["zone"].to_pylist()
            ]

        return Target(kind, write.parquet("out"), read)
    module, writer = {"sqlite": (sqlite3, write.sqlite), "duckdb": (duckdb, write.duckdb)}[kind]

    def look():
        with closing(module.connect(str(tmp_path / "o.db"))) as connection:
            return connection.execute(sql).fetchall()

    return Target(kind, writer("o.db", "average"), look)


def started(root, *, ran=()):
    """A start of the state folder: its owner and its epoch. `ran`: sinks it has written to before."""
    folder = StateFolder(root)
    epoch = folder.acquire("kiln")
    owner = folder.owner()
    folder.release()
    return replace(owner, sinks=frozenset(ran)), epoch


def frame(n, zone=None):
    return make_frame(n, [(zone if zone is not None else n, n, 1.0)], checksum=f"c{n}-{zone}")


def opened(target, context, owner, epoch, **more):
    return closing(target.writer.open(replace(context(epoch=epoch), owner=owner, **more)))


def test_another_state_folder_is_refused_however_often_it_tries(target, context, tmp_path):
    """With its own small epochs it was refused once, then let in, and its first frames counted as written."""
    for _ in range(2):
        owner, epoch = started(tmp_path / "state")
        with opened(target, context, owner, epoch) as sink:
            sink.write([frame(n) for n in (1, 2, 3)])
    shutil.rmtree(tmp_path / "state")
    before = target.rows()
    for _ in range(4):
        owner, epoch = started(tmp_path / "state")
        with pytest.raises(SinkError) as caught:
            opened(target, context, owner, epoch)
        assert caught.value.code == "HF-K030" and "holdfast adopt-table" in caught.value.do
    assert target.rows() == before == [(1, 1), (2, 2), (3, 3)]


def test_who_takes_over_writes_above_what_is_there(target, context, tmp_path):
    owner, epoch = started(tmp_path / "old")
    with opened(target, context, owner, epoch) as sink:
        sink.write([frame(n) for n in (1, 2, 3)])
    owner, epoch = started(tmp_path / "new")
    with opened(target, context, owner, epoch, taking=Taking(lambda checksum: 0)) as sink:
        assert (sink.taken.last, sink.taken.base, sink.taken.written) == (3, 3, 0)
    for _ in range(2):
        owner, epoch = started(tmp_path / "new", ran=["average"])
        with opened(target, context, owner, epoch) as sink:
            sink.write([frame(1, 11), frame(2, 12)])
            assert sink.last() == 2
    assert target.rows() == [(1, 1), (2, 2), (3, 3), (4, 11), (5, 12)]
    old, epoch = started(tmp_path / "old", ran=["average"])
    with pytest.raises(SinkError) as caught:
        opened(target, context, old, epoch)
    assert caught.value.code == "HF-K030"


def test_a_copy_of_a_state_folder_that_runs_beside_it_is_recognised(target, context, tmp_path):
    """Both have the same identity, and their epochs grow alike."""
    owner, epoch = started(tmp_path / "state")
    with opened(target, context, owner, epoch) as sink:
        sink.write([frame(1)])
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    owner, epoch = started(tmp_path / "state", ran=["average"])
    with opened(target, context, owner, epoch) as sink:
        sink.write([frame(2)])
    for _ in range(4):
        copy, epoch = started(tmp_path / "copy", ran=["average"])
        with pytest.raises(SinkError) as caught:
            opened(target, context, copy, epoch)
        assert caught.value.code == "HF-K031"
    # The copy knows frame 1 as written, by its checksum; what it makes now comes after frame 2 of the other.
    with opened(
        target, context, copy, epoch, taking=Taking(lambda checksum: 1 if checksum(1) == "c1-None" else 0)
    ) as sink:
        assert sink.taken.written == 1
    copy, epoch = started(tmp_path / "copy", ran=["average"])
    with opened(target, context, copy, epoch) as sink:
        assert sink.last() == 1
        sink.write([frame(2, 22)])
    assert target.rows() == [(1, 1), (2, 2), (3, 22)]


def test_an_orphan_of_the_same_folder_is_fenced(target, context, tmp_path):
    owner, epoch = started(tmp_path / "state")
    with opened(target, context, owner, epoch) as orphan:
        orphan.write([frame(1)])
        if target.kind == "duckdb":
            return  # one program holds the file: nobody else comes in
        newer, later = started(tmp_path / "state", ran=["average"])
        with opened(target, context, newer, later) as sink:
            with pytest.raises(SinkError) as caught:
                orphan.write([frame(2)])
            assert caught.value.code == "HF-K003"
            assert sink.write([frame(2)]) == [True]


def test_a_ledger_that_says_no_folder_belongs_to_who_has_written_there(target, context, tmp_path):
    """Made by an earlier version: a folder that knows the sink goes on, a new one is refused."""
    with closing(target.writer.open(context(epoch=1))) as sink:
        sink.write([frame(1)])
    new, _ = started(tmp_path / "new")
    with pytest.raises(SinkError) as caught:
        opened(target, context, new, 9)
    assert caught.value.code == "HF-K030"
    known, epoch = started(tmp_path / "known", ran=["average"])
    with opened(target, context, known, epoch) as sink:
        assert sink.write([frame(1), frame(2)]) == [False, True]
    with pytest.raises(SinkError):
        opened(target, context, *started(tmp_path / "other", ran=["average"]))


def test_once_in_a_function_of_a_run_belongs_to_its_state_folder(tmp_path, context):
    """A callback has numbers of frames too; after the folder is lost they begin anew."""
    rows = sqlite3.connect(tmp_path / "own.db", isolation_level=None, check_same_thread=False)
    rows.execute("create table mine (n integer)")

    def put(table, n):
        with hf.once(rows, n) as fresh:
            if fresh:
                rows.execute("insert into mine values (?)", (n,))

    def sink(root, ran=()):
        owner, epoch = started(root, ran=ran)
        return closing(write.callback(put).open(replace(context(epoch=epoch), owner=owner)))

    with sink(tmp_path / "old") as old:
        old.write([frame(1), frame(2)])
    for _ in range(3):
        with sink(tmp_path / "new") as new, pytest.raises(SinkError) as caught:
            new.write([frame(1, 11)])
        assert caught.value.code == "HF-K010" and "HF-K030" in caught.value.why
    remedy = [line.strip() for line in caught.value.why.splitlines() if line.strip().startswith("delete from")]
    assert len(remedy) == 2
    for statement in remedy:
        rows.execute(statement)
    with sink(tmp_path / "new") as new:
        assert new.write([frame(1, 11)]) == [True]
    assert rows.execute("select n from mine").fetchall() == [(1,), (2,), (1,)]
    rows.close()


def test_numbers_that_begin_anew_far_below_are_refused_by_once(tmp_path):
    """A plain Spark job with a new checkpoint counts its batches from 0 again."""
    with closing(sqlite3.connect(tmp_path / "own.db")) as rows:
        for n in (0, 1, KEPT_FRAMES + 5):
            with hf.once(rows, n):
                pass
        with pytest.raises(SinkError) as caught:
            hf.once(rows, 2)
        assert caught.value.code == "HF-K033"
        with hf.once(rows, 0, sink="anew") as fresh:  # as the error says: another sink=
            assert fresh


def test_the_manifest_says_whose_it_is(tmp_path, context):
    owner, epoch = started(tmp_path / "state")
    with closing(write.parquet("out").open(replace(context(epoch=epoch), owner=owner))):
        pass
    head = json.loads((tmp_path / "out" / "_holdfast" / "ledger.jsonl").read_text().splitlines()[0])
    assert (head["folder"], head["start_id"]) == (owner.folder, owner.start_id) and owner.folder


IDS = st.sampled_from(["", "a", "b", "c"])


@settings(max_examples=300, deadline=None)
@given(
    claim=st.builds(Claim, epoch=st.integers(0, 5), frame=st.integers(0, 50), folder=IDS, start_id=IDS, base=st.integers(0, 40)),
    owner=st.builds(
        Owner, folder=st.sampled_from("abc"), start_id=st.just("me"), starts=st.frozensets(st.sampled_from("abc")).map(lambda s: s | {"me"})
    ),
    known=st.booleans(), newest=st.integers(0, 60), common=st.integers(0, 60), renumber=st.booleans(),
)  # fmt: skip
def test_whatever_was_there_the_next_number_is_above_it(claim, owner, known, newest, common, renumber):
    """No frame of the new owner may get a number that is taken, and none that is written may come again."""
    taking = Taking(lambda checksum: common, renumber)
    found = taken(claim, owner, taking, is_known=known, newest=newest, checksum=lambda n: None)
    assert found.written + 1 + found.base == found.last + 1 > max(claim.frame, newest)
    after = Claim(9, found.last, "", owner.folder, owner.start_id, found.base)
    assert after.last == found.written
    judge_owner(after, owner, is_known=False, where="")  # and it is the owner's now
    if claim.folder not in ("", owner.folder):
        assert found.written == 0
        with pytest.raises(SinkError):
            judge_owner(claim, owner, is_known=known, where="")
