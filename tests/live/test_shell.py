"""The command with a real run behind it: run, status, set, stop, and on again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.cli.reaching import ask
from holdfast.errors import HoldfastError
from tests.live.runs import environ

PROGRAM = """
import holdfast as hf
kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")
kiln.param("limit", 80.0, between=(20, 120))
kiln.source("probes", hf.read.files("probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

@kiln.operator(over="frame")
def hot(probes, *, limit):
    return probes.where(probes.celsius > limit)

kiln.sink("hot", hf.write.sqlite("kiln.db", "hot"))
"""
SECONDS = 40


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "probes").mkdir()
    (tmp_path / "kiln.py").write_text(PROGRAM)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=i / 10) for i in range(SECONDS * 10)]
    table = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "zone": pa.array([i % 4 for i in range(len(times))], pa.int32()),
            "celsius": [100.0] * len(times),
        }
    )
    pq.write_table(table, tmp_path / "probes" / "0.parquet")
    return tmp_path


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-c", "from holdfast.cli.main import main; main()", *words]


def holdfast(folder: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(command(folder, *words), cwd=folder, env=environ(), capture_output=True, text=True)


def running_at(folder: Path, frame: int, run: subprocess.Popen) -> dict:
    """Ask the run until the frame is written, then ask as a user's script would."""
    pause = threading.Event()
    while run.poll() is None:
        with contextlib.suppress(HoldfastError):
            if ask(folder / ".holdfast" / "kiln", {"do": "status"})["frame"] >= frame:
                answer = holdfast(folder, "status", "kiln", "--json")
                assert answer.returncode in (0, 1), answer.stderr
                return json.loads(answer.stdout)
        pause.wait(0.1)
    raise AssertionError(f"the run ended before frame {frame}: {run.communicate()}")


def test_a_run_is_watched_changed_stopped_and_resumed_from_the_shell(folder):
    """Everything a shell can ask of a run, and Ctrl-C to the whole group: no frame twice, none missing."""
    run = subprocess.Popen(
        command(folder, "run", "kiln.py", "--rate", "20"),
        cwd=folder, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    running_at(folder, 2, run)
    second = holdfast(folder, "run", "kiln.py")
    changed = holdfast(folder, "set", "kiln.py", "limit=110", "--note", "night", "--json")
    running_at(folder, json.loads(changed.stdout)["frame"], run)
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate()

    assert (second.returncode, second.stderr.split()[0]) == (6, "HF-R001")
    assert run.returncode == 0, err
    assert out.startswith("kiln  stopped")
    assert "go on: holdfast run kiln.py" in out
    assert "Traceback" not in err
    log = holdfast(folder, "set", "kiln.py", "--log").stdout
    assert "limit = 110" in log
    assert "night" in log

    rest = holdfast(folder, "run", "kiln.py", "--json")

    assert rest.returncode == 0, rest.stderr
    assert json.loads(rest.stdout)["state"] == "finished"
    frame = json.loads(changed.stdout)["frame"]
    rows = sqlite3.connect(folder / "kiln.db").execute("select count(*) from hot").fetchone()[0]
    assert rows == (frame - 1) * 10
    left = sorted(path.name for path in folder.iterdir() if not path.name.startswith("kiln.db-"))
    assert set(left) - {"__pycache__"} == {".holdfast", "kiln.db", "kiln.py", "probes"}
