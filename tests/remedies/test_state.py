"""What an error about frames, a state folder or a store tells a person to do is done here, and the next start goes on."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.run.replay import planned
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import HoldfastError, SinkError
from holdfast.frames.content import canonical
from holdfast.frames.files import read_frame
from holdfast.graph.schemas import Schema
from holdfast.hosts import hosts as homes_module
from holdfast.hosts.spark_checkpoint import fork_checkpoint
from holdfast.journals.asides import read_aside, write_aside
from holdfast.journals.journal import Journal
from holdfast.journals.seals import SealJournal
from holdfast.operators.state import drop_cache, open_store
from holdfast.records.cleaning import clean_folder
from holdfast.records.kept import Kept
from holdfast.records.remaking import remake_frame
from holdfast.sinks.writer import SinkContext
from holdfast.sources.reference import Reference
from tests.engine.test_folder import checkpoint
from tests.hosts.test_homes import homes
from tests.operators.test_state import KEYS, VALUE, VALUES, commit
from tests.records.conftest import SCHEMA, Folder


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path / ".holdfast" / "kiln", tmp_path)
    made.run_unit(made.seal_source())
    made.write_sink(1, 2)
    return made


def refused(code: str, asking) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        asking()
    assert caught.value.code == code, caught.value
    return caught.value


def flip(path, at: int = -30) -> bytes:
    """What was there before."""
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    return whole


def test_rows_that_are_not_as_declared_are_declared_or_made_so():
    """HF-F003."""
    rows = pa.table({"x": [300]})
    error = refused("HF-F003", lambda: canonical(rows, Schema.of("x tinyint"), None))
    assert "or declare what it gives" in error.do
    assert canonical(rows, Schema.of("x smallint"), None).num_rows == 1
    assert canonical(pa.table({"x": [30]}), Schema.of("x tinyint"), None).num_rows == 1


def test_a_frame_that_is_gone_or_damaged_is_restored(folder):
    """HF-F005, HF-F002; under hf.ecoc by itself: tests/spark/test_hosts.py."""
    path, whole = folder.queue(3), folder.queue(3).read_bytes()
    path.unlink()
    assert "Restore it" in refused("HF-F005", lambda: read_frame(path)).do
    path.write_bytes(whole)
    flip(path)
    assert "restore the file from a copy" in refused("HF-F002", lambda: read_frame(path)).do
    path.write_bytes(whole)
    assert read_frame(path)[1].num_rows == 4


def test_a_folder_in_use_is_stopped_or_left_alone(folder, tmp_path):
    """HF-R001, HF-R007."""
    running = StateFolder(folder.root)
    running.acquire("kiln")
    assert "--state DIR" in refused("HF-R001", lambda: StateFolder(folder.root).acquire("kiln")).do
    other = StateFolder(tmp_path / "own")
    assert other.acquire("kiln") == 1
    other.release()
    assert "holdfast stop, then again" in refused("HF-R007", lambda: clean_folder(folder.root, remove=True)).do
    running.release()
    clean_folder(folder.root, remove=True)
    again = StateFolder(folder.root)
    assert again.acquire("kiln") > 2
    again.release()


def test_state_of_sparks_that_is_lost_is_restored_or_begun_anew(tmp_path):
    """HF-R004, HF-R043. `--fresh` begins the unit after its last frame: `begun`."""
    checkpoint(tmp_path / "lost", 1, [1, 2, 3, 4], committed=4)
    commits = tmp_path / "lost" / "1" / "commits"
    commits.rename(tmp_path / "elsewhere")
    commits.mkdir()
    assert "--fresh OPERATOR" in refused("HF-R004", lambda: fork_checkpoint(tmp_path / "lost", 2, committed=4)).do
    assert fork_checkpoint(tmp_path / "lost", 2, committed=4, begun=4) == 4
    shutil.rmtree(tmp_path / "lost")
    checkpoint(tmp_path / "lost", 1, [1, 2, 3, 4], committed=4)  # the folder, restored
    assert fork_checkpoint(tmp_path / "lost", 2, committed=4) == 4

    checkpoint(tmp_path / "rotten", 1, [1, 2, 3], committed=3)
    offset = tmp_path / "rotten" / "1" / "offsets" / "2"
    whole = offset.read_text()
    offset.write_text(whole.replace('"n": 3', '"n": x'))
    assert "from a copy" in refused("HF-R043", lambda: fork_checkpoint(tmp_path / "rotten", 2, committed=3)).do
    offset.write_text(whole)
    assert fork_checkpoint(tmp_path / "rotten", 2, committed=3) == 3


def test_state_of_ours_that_is_damaged_or_of_another_shape_is_restored_or_begun_anew(tmp_path):
    """HF-O010, HF-O011. `--fresh` begins with no runs: `load({})`."""
    drop_cache()
    runs = commit(open_store(tmp_path, KEYS, VALUES), 1, {("a", 1): VALUE})[1]
    [path] = tmp_path.iterdir()
    whole = flip(path)
    drop_cache()
    assert "--fresh OPERATOR" in refused("HF-O010", lambda: open_store(tmp_path, KEYS, VALUES).load(runs)).do
    open_store(tmp_path, KEYS, VALUES).load({})
    path.write_bytes(whole)
    drop_cache()
    open_store(tmp_path, KEYS, VALUES).load(runs)

    other = Schema.of("other string")
    drop_cache()
    assert "or undo the change" in refused("HF-O011", lambda: open_store(tmp_path, KEYS, other).load(runs)).do
    open_store(tmp_path, KEYS, other).load({})
    drop_cache()
    open_store(tmp_path, KEYS, VALUES).load(runs)


def test_a_key_that_cannot_be_compared_is_taken_apart(tmp_path):
    """HF-O012."""
    drop_cache()
    nested = Schema.of("bed struct<ward:string,number:int>")
    error = refused("HF-O012", lambda: open_store(tmp_path, nested, VALUES))
    assert "into columns of their own" in error.do
    assert open_store(tmp_path, Schema.of("ward string, number int"), VALUES)


def test_a_replay_begins_where_frames_are_kept(folder):
    """HF-R010."""
    directory = folder.root / "sources" / "probes"
    shutil.rmtree(directory)
    directory.mkdir()
    seals = SealJournal(directory)
    for n in range(1, 4):
        path = directory / f"{n}.arrow"
        if n > 1:
            path.write_bytes(b"rows")
        lies = Reference(str(path), "arrow", ((0, 1),), 4, 0, "digest")
        seals.note(n, epoch=1, boundary_us=n, rows=1, size=4, checksum="x", late=0, references=[lies], at=0.0)
    seals.close()
    process = hf.StreamProcess("kiln", frame="1 second", time="ts")
    process.source("probes", hf.read.iterator(list, bounded=False), schema=SCHEMA.ddl)
    process.filter("hot", of="probes", where="celsius > 80")
    process.sink("hot", hf.write.sqlite("kiln.db", "hot"))
    error = refused("HF-R010", lambda: planned(process.graph(), Kept(folder.root), into="again", first=1, until=None))
    assert "begin later" in error.do
    assert planned(process.graph(), Kept(folder.root), into="again", first=2, until=None).until == 3


def test_a_hosts_folder_of_another_is_given_up_or_emptied(tmp_path):
    """HF-R014."""
    homes(tmp_path / "one", at=tmp_path / "disks")
    error = refused("HF-R014", lambda: homes(tmp_path / "two", at=tmp_path / "disks"))
    assert "its own folder" in error.do and "to start over empty this one" in error.do
    assert homes(tmp_path / "two", at=tmp_path / "other disks").lost() == []
    for each in (tmp_path / "disks").iterdir():
        shutil.rmtree(each)
    assert homes(tmp_path / "three", at=tmp_path / "disks").lost() == []


def test_a_host_that_cannot_be_made_is_made_once_its_place_can_be_written_or_elsewhere(tmp_path, monkeypatch):
    """HF-R015."""
    monkeypatch.setattr(homes_module, "_PATIENCE_S", 0.0)
    (tmp_path / "disks").write_text("in the way")
    error = refused("HF-R015", lambda: homes(tmp_path / "one", at=tmp_path / "disks"))
    assert "make the place writable again" in error.do
    assert homes(tmp_path / "two", at=tmp_path / "elsewhere").lost() == []
    (tmp_path / "disks").unlink()
    assert homes(tmp_path / "one", at=tmp_path / "disks").lost() == []


def test_entries_that_are_gone_are_given_up_or_put_back(tmp_path):
    """HF-R041; HF-R040 in tests/records/test_journal.py."""
    journal = Journal(tmp_path, "commits", counted=True)
    for n in range(1, 8):
        journal.append({"n": n})
    journal.close()
    [path] = tmp_path.glob("commits.*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    for gone in ((2, 4), (5, 7)):  # in the middle, and at the end
        path.write_bytes(b"".join(lines[: gone[0]] + lines[gone[1] :]))
        error = refused("HF-R041", lambda: list(Journal(tmp_path, "commits", counted=True).entries()))
        assert "write a line '# given up' in their place" in error.do
        path.write_bytes(b"".join([*lines[: gone[0]], b"# given up\n", *lines[gone[1] :]]))
        left = [entry["n"] for entry in Journal(tmp_path, "commits", counted=True).entries()]
        assert left == [n for n in range(1, 8) if not gone[0] < n <= gone[1]]
    path.write_bytes(b"".join(lines))
    assert [entry["n"] for entry in Journal(tmp_path, "commits", counted=True).entries()] == list(range(1, 8))


def test_rows_set_aside_are_put_back_from_a_copy(tmp_path):
    """HF-R045."""
    path = tmp_path / "00000002.parquet"
    write_aside(path, pa.table({"zone": [1, 2]}))
    whole = flip(path, 20)
    assert "restore the file from a copy" in refused("HF-R045", lambda: read_aside(path)).do
    path.write_bytes(whole)
    assert read_aside(path)["zone"].to_pylist() == [1, 2]


def test_a_frame_that_cannot_be_made_again_is_taken_without_the_rows_that_are_refused(folder, tmp_path):
    """HF-R070 to HF-R073: what they name instead of a remake."""
    with closing(sqlite3.connect(tmp_path / "kiln.db", isolation_level=None)) as person:
        person.execute(
            "create trigger t before insert on hot when new.celsius > 80 begin select raise(abort, 'too hot'); end"
        )
    with pytest.raises(SinkError):
        folder.write_sink(3)

    assert "holdfast status" in refused("HF-R070", lambda: remake_frame(folder.root, "hot", 4, who="ann")).do
    assert (
        "with another state folder and another target"
        in refused("HF-R071", lambda: remake_frame(folder.root, "hot", 2, who="ann")).do
    )
    whole = (tmp_path / "probes.parquet").read_bytes()
    (tmp_path / "probes.parquet").write_bytes(b"other")
    inputs = refused("HF-R072", lambda: remake_frame(folder.root, "hot", 3, who="ann"))
    (tmp_path / "probes.parquet").write_bytes(whole)
    deployment = folder.root / "deployment.json"
    deployment.write_text(json.dumps(json.loads(deployment.read_text()) | {"stateful": ["hot"]}))
    state = refused("HF-R073", lambda: remake_frame(folder.root, "hot", 3, who="ann"))
    assert all("on_error='quarantine'" in error.do for error in (inputs, state))
    context = SinkContext(
        "kiln", "hot", SCHEMA, "ts", tmp_path, 1, on_error="quarantine", aside=Exclusions(folder.root / "sinks" / "hot")
    )
    with closing(folder.writer.open(context)) as sink:
        assert sink.write([read_frame(folder.queue(3))]) == [True]
    with closing(sqlite3.connect(tmp_path / "kiln.db")) as person:
        assert person.execute("select count(*) from hot").fetchone() == (11,)
