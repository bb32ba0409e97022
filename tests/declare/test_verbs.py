"""The verbs of a process: named words, typed answers, the same as the shell's."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.engine.observe.control import ControlServer
from holdfast.engine.observe.folder_status import from_json
from holdfast.engine.profile import KEYS
from holdfast.engine.run.frame_or_time import frame_at, read_until
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import UsageError
from holdfast.frames.clock import FrameClock
from holdfast.loading import load
from tests.records.conftest import SIX, folder, make_folder  # noqa: F401  fixtures

KILN = """
import holdfast as hf
kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")
kiln.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, zone int, celsius double")
kiln.filter("hot", of="probes", where="celsius > 0")
kiln.sink("hot", hf.write.sqlite("kiln.db", "hot"))
"""


@pytest.fixture
def kiln(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("kiln.py").write_text(KILN)
    return load("kiln.py")


def test_a_run_is_started_with_named_words_and_a_misspelt_one_names_the_nearest(kiln):
    """HF-C003: a setting that silently does not hold would be found out when it matters."""
    for verb in (kiln.start, kiln.run):
        parameters = inspect.signature(verb).parameters
        assert not [name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD]
        assert set(KEYS) <= set(parameters)  # what a profile may say, an argument may
        with pytest.raises(UsageError) as refused:
            verb(stat="elsewhere")
        assert (refused.value.code, refused.value.do) == ("HF-C003", "did you mean 'state'?")
        with pytest.raises(UsageError) as refused:
            verb(until_frame=3)
        assert (refused.value.code, "until=3" in refused.value.do) == ("HF-C060", True)
    assert not Path(".holdfast").exists()


def test_start_and_run_take_the_same_words(kiln):
    assert inspect.signature(kiln.start).parameters.keys() == inspect.signature(kiln.run).parameters.keys()


def test_what_a_run_gives_can_be_named_without_spark():
    """An annotation `run: hf.Run` must not cost a session's imports where it stands."""
    code = "import sys, holdfast as hf; before = [m for m in ('pyspark', 'pandas') if m in sys.modules]; print(before, hf.Status.__name__, 'pyspark' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.split() == ["[]", "Status", "False"]
    assert [getattr(hf, name).__name__ for name in ("Run", "Status", "Verified", "FrameTrace", "Change")]


def test_show_is_what_the_shell_draws(kiln, capsys):
    from holdfast.cli.main import app

    with pytest.raises(SystemExit):
        app(["show", "kiln.py"])

    assert kiln.show(svg="kiln.svg") + "\n" == capsys.readouterr().out
    assert Path("kiln.svg").read_text().startswith("<svg")


def test_the_status_of_a_folder_that_no_run_holds_is_what_the_last_one_left(kiln, folder):
    """Whoever looks after a night wants the numbers, not that nobody answers."""
    found = kiln.status()

    assert isinstance(found, hf.Status)
    assert (found.process, found.state, found.frame) == ("kiln", "stopped", 2)
    assert [(each.name, each.sealed, each.rows) for each in found.sources] == [("probes", 3, 12)]
    assert [(each.name, each.state, each.processed) for each in found.units] == [("hot", "STOPPED", 3)]
    assert [(each.name, each.stream, each.written) for each in found.sinks] == [("hot", "hot", 2)]
    folder.write_sink(3)
    assert kiln.status().frame == 3
    (folder.root / "control.json").write_text("{}")  # a clean end takes it away
    assert kiln.status().state == "killed"


def test_the_shell_shows_what_was_left_and_still_says_that_nothing_runs(kiln, folder):
    """HF-U040 and exit 2, as scripts know it; the numbers come with it."""
    from typer.testing import CliRunner

    from holdfast.cli.main import app

    plain = CliRunner().invoke(app, ["status", "kiln"])
    machine = CliRunner().invoke(app, ["status", "kiln.py", "--json"])

    assert (plain.exit_code, machine.exit_code) == (2, 2)
    assert "HF-U040" in plain.stderr and plain.stdout.startswith("kiln  stopped")
    assert from_json(json.loads(machine.stdout)) == kiln.status()


def test_the_status_of_a_running_process_is_what_it_answers(kiln, folder):
    left = kiln.status()
    held = StateFolder(folder.root)
    held.acquire("kiln")
    said = {**left.to_json(), "state": "running", "last_error_at": ["hot", 2], "of_a_later_version": 1}
    server = ControlServer(held.socket_note, lambda request: json.loads(json.dumps(said)))
    server.start()
    try:
        found = kiln.status()
    finally:
        server.close()
        held.release()

    assert (found.state, found.sources, found.last_error_at) == ("running", left.sources, ("hot", 2))
    assert from_json(asdict(left)) == left


def test_a_frame_is_traced_and_rows_are_searched_as_objects(kiln, folder):
    found = kiln.trace("hot", 2)
    rows = kiln.search("hot", "zone = 3", limit=1)

    assert isinstance(found, hf.FrameTrace) and isinstance(rows, hf.Found)
    assert (found.n, found.rows, [each.has for each in found.sinks]) == (2, 4, [True])
    assert [each.stream for each in found.inputs if not each.feedback] == ["probes"]
    assert (rows.frames, len(rows.rows)) == ({2: 1, 3: 1}, 1)


def test_a_process_knows_its_file_as_the_shell_takes_it(kiln, tmp_path, monkeypatch):
    assert kiln.file == "kiln.py:kiln" and load(kiln.file).name == "kiln"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert kiln.file == f"{tmp_path / 'kiln.py'}:kiln" and load(kiln.file).name == "kiln"


def test_a_process_without_a_file_cannot_be_verified():
    """HF-E053: the two runs load the file again."""
    names: dict[str, object] = {}
    exec(compile(KILN, "<prompt>", "exec"), names)

    assert names["kiln"].file == ""
    with pytest.raises(UsageError, match="HF-E053") as refused:
        names["kiln"].verify([{"do": "kill unit", "unit": "hot", "frame": 2}])
    assert "into a .py file" in refused.value.do


def test_a_fault_plan_may_be_given_as_tables(kiln):
    """HF-E050, HF-E051: the same words as in a file, and refused alike."""
    for tables, code in (
        ([], "HF-E050"),
        ([{"do": "kil unit"}], "HF-E051"),
        ([{"do": "kill unit", "unit": "hit"}], "HF-E051"),
    ):
        with pytest.raises(UsageError) as refused:
            kiln.verify(tables)
        assert refused.value.code == code


def test_an_end_is_a_frame_or_a_time():
    """HF-E026: what cannot be read is refused before anything starts."""
    clock = FrameClock.starting(int(SIX.timestamp() * 1e6), 1_000_000)

    assert frame_at(12, clock) == frame_at("12", clock) == frame_at("1,2", clock) == 12
    assert frame_at("2026-01-05T06:00:02.5Z", clock) == frame_at("2026-01-05T06:00:02.5", clock) == 3
    assert frame_at(datetime(2026, 1, 5, 6, 0, 2, 500_000, tzinfo=UTC), clock) == 3
    assert read_until("2026-01-05T08:00:00+02:00") == SIX
    with pytest.raises(UsageError, match="HF-E026"):
        read_until("noon")
