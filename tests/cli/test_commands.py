"""The command without a JVM: answers, exit codes, and where each word goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli import main as subject
from holdfast.cli.main import app
from holdfast.engine.observe.control import ControlServer
from holdfast.errors import UsageError

GOOD = """
import holdfast as hf
kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")
kiln.param("limit", 80.0, between=(20, 120))
kiln.source("probes", hf.read.files("probes/*.parquet"), schema="ts timestamp, zone int, celsius double")
kiln.filter("hot", of="probes", where="celsius > 80")
kiln.sink("hot", hf.write.sqlite("kiln.db", "hot"))
"""
STATUS = {
    "process": "kiln", "state": "running", "frame": 12, "frames_per_s": 1.0, "frame_last": None, "time_us": 12_000_000,
    "seconds": 12.0, "error": "", "notes": [], "delays": [], "params": {"limit": {"value": 80.0, "per": {"z1": 70.0}}},
    "sources": [{"name": "probes", "sealed": 13, "rows": 1300, "late": 2, "waiting": 1, "waiting_bytes": 5_000_000,
                 "bytes_bound": 512_000_000, "ended": False}],
    "units": [{"name": "hot", "state": "RUNNING", "processed": 12, "ms_per_frame": 41.2, "why": ""}],
    "sinks": [{"name": "hot", "stream": "hot", "written": 12, "rows": 37}],
}  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("kiln.py").write_text(GOOD)
    return tmp_path


@pytest.fixture
def invoke():
    runner = CliRunner()
    return lambda *words: runner.invoke(app, list(words))


@pytest.fixture
def running(here):
    """A run as the shell sees it: a socket that answers, named in the state folder."""
    folder = here / ".holdfast" / "kiln"
    folder.mkdir(parents=True)
    (folder / "deployment.json").write_text("{}")
    asked, answers = [], {"status": STATUS, "set": {"frame": 1234, "n": 1}, "stop": {"stopping": True}}

    def answer(request):
        asked.append(request)
        found = answers[request["do"]]
        if isinstance(found, Exception):
            raise found
        return found

    server = ControlServer(folder / "control.json", answer)
    server.start()
    yield asked, answers
    server.close()


def test_a_good_process_is_fine(here, invoke):
    result = invoke("check", "kiln.py", "--no-types")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("kiln.py: stream process 'kiln', 1 source, 1 operator, 1 sink\n")
    assert "structure" in result.stdout.splitlines()[-1]


def test_a_bad_process_is_exit_3_with_its_findings_on_stdout(here, invoke):
    Path("bad.py").write_text(GOOD.replace('of="probes"', 'of="prob"'))

    result = invoke("check", "bad.py", "--no-types")
    machine = invoke("check", "bad.py", "--no-types", "--json")

    assert (result.exit_code, machine.exit_code) == (3, 3)
    assert "HF-" in result.stdout
    assert "probes" in result.stdout
    answer = json.loads(machine.stdout)
    assert answer["fine"] is False
    assert answer["findings"][0]["code"].startswith("HF-")


def test_it_says_its_version(invoke):
    answer = invoke("--version")

    assert answer.exit_code == 0
    assert answer.stdout.startswith("holdfast ") and "pyspark 4." in answer.stdout


def test_a_missing_file_is_usage(here, invoke):
    result = invoke("check", "gone.py")

    assert result.exit_code == 2
    assert "HF-C016" in result.stderr
    assert result.stdout == ""


def test_show_draws_in_the_terminal_and_to_a_file(here, invoke):
    result = invoke("show", "kiln.py", "--svg", "kiln.svg")

    assert result.exit_code == 0, result.output
    assert "hot" in result.stdout
    assert Path("kiln.svg").read_text().startswith("<svg")


def test_show_for_a_machine(here, invoke):
    found = json.loads(invoke("show", "kiln.py", "--json").stdout)

    assert [unit["operators"] for unit in found["units"]] == [["hot"]]
    assert found["sinks"][0]["writes"] == "SQLite kiln.db, table hot"


@pytest.mark.parametrize(
    "words", [["status"], ["status", "kiln"], ["status", "kiln.py"], ["status", "--state", ".holdfast/kiln"]]
)
def test_status_finds_the_process_by_folder_name_and_file(running, invoke, words):
    result = invoke(*words)

    assert result.exit_code == 0, result.output
    head, *rows = result.stdout.splitlines()
    assert head.startswith("kiln  running    frame 12 (00:00:12Z)")
    assert [row.split()[0] for row in rows] == ["source", "unit", "sink", "param"]


def test_status_passes_over_what_does_not_run(running, invoke):
    """Another process of the folder has ended, and a replay lies beside: the one that runs is still shown."""
    for name in ("ended", "kiln.replay-again"):
        other = Path(".holdfast") / name
        other.mkdir()
        (other / "deployment.json").write_text("{}")
    (other / "replay.json").write_text("{}")

    result = invoke("status")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("kiln  running")
    assert invoke("status", "ended").exit_code == 2


def test_status_as_json_is_what_the_run_said(running, invoke):
    assert json.loads(invoke("status", "--json").stdout) == STATUS


def test_a_broken_bound_is_degraded(running, invoke):
    """Scripts that watch must see it without reading."""
    _, answers = running
    answers["status"] = STATUS | {"delays": ["hot took 4 s in frame 12 (bound 2 s)"]}

    result = invoke("status")

    assert result.exit_code == 1
    assert "bound 2 s" in result.stdout


DEGRADED = STATUS | {
    "degraded": "unit hot restarting: Python worker died (signal 9)", "degraded_s": 134.2,
    "units": [
        {"name": "hot", "state": "RESTARTING", "processed": 12, "ms_per_frame": 41.2, "behind": 14, "restarts": 2,
         "why": "Python worker died (signal 9); try 3 of 8, next in 4 s"},
        {"name": "cold", "state": "WAITING", "processed": 12, "ms_per_frame": 9.0, "why": "held back by hot", "behind": 14, "restarts": 0},
    ],
    "promises": [
        {"sink": "hot", "promise": "lossless", "state": "kept", "why": "", "since_s": None, "frames": 0},
        {"sink": "hot", "promise": "within 5 s", "state": "BROKEN", "why": "3 frames late", "since_s": 12.0, "frames": 3},
    ],
    "last_error": "HF-U031 UnitDied", "last_error_at": ["hot", 13],
}  # fmt: skip


def test_a_degraded_run_says_who_why_since_when_and_where_to_look(running, invoke):
    """At night somebody reads this half asleep: what, why, since when, what next."""
    _, answers = running
    answers["status"] = DEGRADED

    result = invoke("status")

    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("kiln  DEGRADED for 2 min   frame 12")
    assert lines[1] == "  why    unit hot restarting: Python worker died (signal 9)"
    assert any(
        "RESTARTING   14 behind   restarted 2 times   Python worker died (signal 9); try 3 of 8" in line
        for line in lines
    )
    assert any("WAITING   14 behind   held back by hot" in line for line in lines)
    assert "  promise hot           lossless kept | within 5 s BROKEN since 12 s (3 frames late)" in lines
    assert lines[-1] == "  last error            HF-U031 UnitDied, holdfast trace hot 13"


@pytest.mark.parametrize(
    "change",
    [
        {"degraded": "disk nearly full"},
        {"units": [STATUS["units"][0] | {"state": "GIVEN_UP"}]},
        {"promises": [{"sink": "hot", "promise": "lossless", "state": "BROKEN", "why": "3 rows dropped by hot"}]},
        {"error": "HF-K005 SinkFailed: x."},
    ],
)
def test_whatever_is_not_as_declared_is_exit_1(running, invoke, change):
    _, answers = running
    answers["status"] = STATUS | change

    assert invoke("status").exit_code == 1
    assert invoke("status", "--json").exit_code == 1


def test_nobody_there_is_said_in_house_format(here, invoke):
    nothing, unknown = invoke("status"), invoke("status", "oven")

    assert (nothing.exit_code, unknown.exit_code) == (2, 2)
    assert nothing.stderr.startswith("HF-E010 NothingHere")
    assert "effect  no run was reached, nothing was changed" in unknown.stderr


def test_set_says_from_which_frame_on(running, invoke):
    asked, _ = running

    result = invoke("set", "kiln.py", "limit=75", "--for", "z1", "--note", "night shift")

    assert result.stdout == "limit = 75 for z1 from frame 1,234 on\n"
    assert asked[-1] == {"do": "set", "values": {"limit": "75"}, "key": "z1", "note": "night shift"}


def test_an_error_of_the_run_keeps_its_code_and_exit(running, invoke):
    _, answers = running
    answers["set"] = UsageError(
        "HF-C010", "ParameterRefused", "limit = 500.0 is out of range.", effect="nothing was changed", do="give less"
    )

    result = invoke("set", "kiln.py", "limit=500")

    assert result.exit_code == 2
    assert (
        result.stderr
        == "HF-C010 ParameterRefused: limit = 500.0 is out of range.\n  effect  nothing was changed\n  do      give less\n"
    )


@pytest.mark.parametrize("words", [[], ["limit"], ["=3"]])
def test_set_without_a_value_changes_nothing(running, invoke, words):
    result = invoke("set", "kiln.py", *words)

    assert result.exit_code == 2
    assert "HF-E011" in result.stderr


def test_stop_asks_the_run(running, invoke):
    asked, _ = running

    assert invoke("stop", "kiln.py").exit_code == 0
    assert asked[-1] == {"do": "stop"}


def test_a_defect_leaves_its_traceback_in_a_file(here, invoke, monkeypatch):
    """A user must never see a traceback of ours, and we must not lose it."""

    def broken(file):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(subject, "_load", broken)
    result = invoke("check", "kiln.py")

    assert result.exit_code == 70
    assert "HF-E012 Defect: ZeroDivisionError: by zero" in result.stderr
    assert "Traceback" not in result.stderr
    file = Path(result.stderr.partition("traceback in ")[2].splitlines()[0])
    assert "in broken" in file.read_text()
    file.unlink()


def test_doctor_names_the_java(here, invoke):
    result = invoke("doctor", "--no-start", "--json")

    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["java"]["origin"] in ("JAVA_HOME", "PATH", "inside the environment")
    assert report["packages"]["pyspark"]


def test_doctor_says_whether_there_is_a_class_archive(here, invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert (
        "no archive; sessions open more quickly after: holdfast doctor --prepare"
        in invoke("doctor", "--no-start").stdout
    )


def test_colour_only_on_a_terminal(here, invoke):
    assert "\x1b" not in invoke("check", "gone.py").stderr


def test_progress_says_when_it_degrades_and_when_it_is_well_again(capsys):
    """In a log of plain lines, ten seconds apart, the moment would be lost."""
    from rich.console import Console

    from holdfast.cli.render import Progress

    class Said:
        def __init__(self, fields):
            self.fields = fields

        def to_json(self):
            return self.fields

    progress = Progress(Console(highlight=False, soft_wrap=True, force_terminal=False))
    for fields in (STATUS, STATUS, DEGRADED, DEGRADED, STATUS):
        progress(Said(fields))

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["running", "DEGRADED", "unit", "running"]
