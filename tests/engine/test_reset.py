"""Starting over removes what a run keeps and nothing else; the next run may write, above what is there."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.engine.run import reset as module
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import SinkError, StateRefused
from holdfast.frames.files import read_frame
from holdfast.hosts.hosts import Homes, identity_of
from holdfast.loading import load
from holdfast.sinks import write
from holdfast.sinks.writer import SinkContext
from tests.records.conftest import SCHEMA, folder, make_folder  # noqa: F401  fixtures

KILN = """
import holdfast as hf
kiln = hf.StreamProcess("kiln", frame="1 second", time="ts", {more})
kiln.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, zone int, celsius double")
kiln.filter("hot", of="probes", where="celsius > 0")
kiln.sink("hot", hf.write.{sink})
if "hosts" in {more!r}:
    kiln.protect(hf.ecoc(every="5 seconds"))
"""


class Kiln:
    """A state folder that a run left, and a sink that its starts wrote to."""

    def __init__(self, folder, sink: str = "sqlite('kiln.db', 'hot')", more: str = "") -> None:
        self.root, self._folder, self._sink, self._more = folder.root, folder, sink, more
        self.frames = {n: read_frame(folder.queue(n)) for n in (2, 3)}

    @property
    def process(self):
        Path("kiln.py").write_text(KILN.format(sink=self._sink, more=self._more))
        return load("kiln.py")

    def write(self, *numbers: int, as_n: int = 0) -> list[bool]:
        """As a start of the folder does."""
        state = StateFolder(self.root)
        epoch = state.acquire("kiln")
        try:
            [declared] = self.process.graph().sinks
            sink = declared.writer.open(
                SinkContext("kiln", "hot", SCHEMA, "ts", self._folder.base, epoch, owner=state.owner())
            )
            try:
                return sink.write([(_numbered(self.frames[n][0], as_n or n), self.frames[n][1]) for n in numbers])
            finally:
                sink.close()
        finally:
            state.release()


def _numbered(record, n: int):
    from dataclasses import replace

    return replace(record, n=n)


@pytest.fixture
def kiln(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kiln.db").unlink()
    return Kiln(folder)


def rows() -> list[tuple[int, int]]:
    with closing(sqlite3.connect("kiln.db")) as db:
        return db.execute('select "_frame", count(*) from hot group by 1 order by 1').fetchall()


def test_what_would_go_is_only_said_until_it_is_meant(kiln):
    before = sorted(kiln.root.rglob("*"))
    found = kiln.process.reset()

    assert not found.removed and sorted(kiln.root.rglob("*")) == before
    assert [each for each in found.goes if str(kiln.root) in each]
    assert any("kiln.db" in each and "all rows" in each for each in found.stays)


def test_the_state_goes_and_the_rows_stay_and_the_next_run_numbers_above_them(kiln):
    """Frame 1 of the new folder is not the frame 1 that is there: without the hand-over it would be refused for good."""
    kiln.write(2, 3)
    old = identity_of(kiln.root)
    found = kiln.process.reset(remove=True)

    assert found.removed and found.failed == ()
    assert not (kiln.root / "units").exists() and not (kiln.root / "deployment.json").exists()
    assert identity_of(kiln.root) != old
    assert rows() == [(2, 4), (3, 4)]
    assert kiln.write(2, as_n=1) == [True]
    assert rows() == [(2, 4), (3, 4), (4, 4)]


def test_without_it_a_new_folder_is_refused(kiln):
    """HF-K030: what `reset` spares its user."""
    import shutil

    kiln.write(2)
    shutil.rmtree(kiln.root)
    with pytest.raises(SinkError, match="HF-K030"):
        kiln.write(3)


def test_a_table_that_was_dropped_begins_with_frame_1(kiln):
    """Who wants to be rid of the rows too drops the table first."""
    kiln.write(2, 3)
    with closing(sqlite3.connect("kiln.db")) as db:
        db.execute("drop table hot")
        db.commit()
    assert kiln.process.reset(remove=True).failed == ()

    assert kiln.write(2, as_n=1) == [True]
    assert rows() == [(1, 4)]


@pytest.mark.parametrize("written", [(2, 3), ()], ids=["written", "claimed only"])
def test_a_parquet_folder_is_handed_over_too(folder, tmp_path, monkeypatch, written):
    monkeypatch.chdir(tmp_path)
    kiln = Kiln(folder, "parquet('out')")
    kiln.write(*written)
    assert kiln.process.reset(remove=True).failed == ()

    assert kiln.write(2, as_n=1) == [True]
    assert len(list(Path("out").glob("*.parquet"))) == len(written) + 1


def test_what_is_not_ours_stays(kiln):
    """A folder may have been used for more than state; a table in it is the user's."""
    kiln.write(2)
    (kiln.root / "notes.txt").write_text("mine")
    found = kiln.process.reset(remove=True)

    assert (kiln.root / "notes.txt").read_text() == "mine"
    assert any("notes.txt" in each for each in found.stays)
    assert kiln.write(2, as_n=1) == [True]


def test_a_table_where_a_run_keeps_its_own_things_is_not_risked(folder, tmp_path, monkeypatch):
    """HF-R065."""
    monkeypatch.chdir(tmp_path)
    kiln = Kiln(folder, "sqlite('.holdfast/kiln/records/kiln.db', 'hot')")
    with pytest.raises(StateRefused, match="HF-R065"):
        kiln.process.reset(remove=True)
    assert (kiln.root / "deployment.json").exists()


def test_the_folder_of_another_process_is_not_removed(kiln):
    """HF-R065: --state points anywhere."""
    deployment = json.loads((kiln.root / "deployment.json").read_text())
    (kiln.root / "deployment.json").write_text(json.dumps(deployment | {"process": "oven"}))
    with pytest.raises(StateRefused, match="HF-R065") as refused:
        kiln.process.reset(remove=True)
    assert "--state DIR" in refused.value.do and (kiln.root / "units").is_dir()

    (kiln.root.parent / "elsewhere").mkdir()
    (kiln.root.parent / "elsewhere" / "thesis.tex").write_text("")
    with pytest.raises(StateRefused, match="HF-R065"):
        kiln.process.reset(state=kiln.root.parent / "elsewhere", remove=True)


def test_a_running_process_is_left_alone(kiln):
    """HF-R007."""
    held = StateFolder(kiln.root)
    held.acquire("kiln")
    try:
        for remove in (False, True):
            with pytest.raises(StateRefused, match="HF-R007"):
                kiln.process.reset(remove=remove)
        assert (kiln.root / "deployment.json").exists()
    finally:
        held.release()


@pytest.mark.parametrize("after", range(1, 12))
def test_broken_off_anywhere_no_run_takes_the_rest_for_its_own(kiln, monkeypatch, after):
    """Half a folder must not go on where the whole one was, nor begin with frame 1 under the old name."""
    kiln.write(2, 3)
    done, delete = [], module._delete

    class Killed(BaseException):
        pass

    def some(path):
        if len(done) == after:
            raise Killed
        done.append(path)
        delete(path)

    monkeypatch.setattr(module, "_delete", some)
    with pytest.raises(Killed):
        kiln.process.reset(remove=True)
    state = StateFolder(kiln.root)
    try:
        with pytest.raises(StateRefused):
            state.acquire("kiln")
            state.deployment()
    finally:
        state.release()
    monkeypatch.undo()
    monkeypatch.chdir(kiln.root.parent.parent)

    assert kiln.process.reset(remove=True).failed == ()
    assert kiln.write(2, as_n=1) == [True] and rows() == [(2, 4), (3, 4), (4, 4)]


def test_folders_of_hosts_elsewhere_go_if_they_are_its_own(folder, tmp_path, monkeypatch):
    """A host's folder of another state folder, and what is not ours in its own, is nobody's to remove."""
    monkeypatch.chdir(tmp_path)
    hosts = ", ".join(f'"{name}": "{tmp_path / name}"' for name in ("own", "shared", "others"))
    kiln = Kiln(folder, more=f"hosts={{{hosts}}}")
    graph = kiln.process.graph()
    assert [host.name for host in graph.homes] == ["own", "shared", "others"]
    Homes(kiln.root, [host for host in graph.homes if host.name != "others"], None, []).open()
    Homes(tmp_path / "other", [host for host in graph.homes if host.name == "others"], None, []).open()
    (tmp_path / "shared" / "mine.txt").write_text("mine")
    said = kiln.process.reset().goes
    assert [name for name in ("own", "shared", "others") if any(f"host {name} " in each for each in said)] == [
        "own",
        "shared",
    ]
    kiln.process.reset(remove=True)

    assert not (tmp_path / "own").exists()
    assert [each.name for each in (tmp_path / "shared").iterdir()] == ["mine.txt"]
    assert (tmp_path / "others" / "host.json").exists()


def test_a_sink_that_cannot_be_opened_is_named_and_the_same_command_tries_again(kiln, monkeypatch):
    kiln.write(2)
    opened = write.SqliteWriter.open

    def away(self, context):
        raise SinkError("HF-K004", "SinkNotOpened", "the file is locked.", why="somebody writes")

    monkeypatch.setattr(write.SqliteWriter, "open", away)
    found = kiln.process.reset(remove=True)
    assert len(found.failed) == 1 and "sink hot" in found.failed[0]
    monkeypatch.setattr(write.SqliteWriter, "open", opened)

    assert kiln.process.reset(remove=True).failed == ()
    assert kiln.write(3, as_n=1) == [True]


def test_the_shell_asks_and_without_a_terminal_wants_yes(kiln):
    """HF-E063: nothing is removed by a script that did not say so."""
    kiln.write(2)
    assert kiln.process.name == "kiln"
    runner = CliRunner()
    asked = runner.invoke(app, ["reset", "kiln.py"])
    assert asked.exit_code == 2 and "HF-E063" in asked.output and (kiln.root / "units").is_dir()
    assert "holdfast reset kiln.py --yes" in asked.output and "stays" in asked.stdout

    done = runner.invoke(app, ["reset", "kiln.py", "--yes"])
    assert done.exit_code == 0 and "went" in done.stdout, done.output
    assert not (kiln.root / "units").exists()
    told = json.loads(runner.invoke(app, ["reset", "kiln.py", "--yes", "--json"]).stdout)
    assert told["removed"] is True and told["failed"] == []
