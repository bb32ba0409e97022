"""`holdfast demo telemonitoring --score-qrs` as a shell runs it: a whole record, and one that is killed on the way."""

from __future__ import annotations

import json
import subprocess
import sys

from holdfast.apps.telemonitoring import records, scoring
from tests.apps.whole import beats_us
from tests.live.runs import ROOT, environ

RECORD = ROOT / "examples" / "records" / "100"


def score(*words: str) -> dict:
    command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "demo", "telemonitoring"]
    done = subprocess.run([*command, *words], env=environ(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_whole_record(tmp_path):
    result = score("--score-qrs", str(RECORD), "--work", str(tmp_path / "work"), "--json")

    assert min(result["sensitivity"], result["precision"]) >= 0.99
    assert (result["frame_seconds"], result["restarts"]) == (10.0, 0)
    found = scoring.found_us(tmp_path / "work")
    assert len(found) == result["beats"]
    assert found.tolist() == beats_us(records.read(RECORD))


def test_a_run_killed_in_the_middle_finds_the_same_beats(tmp_path):
    words = (
        "--score-qrs",
        str(RECORD),
        "--minutes",
        "2",
        "--frame",
        "5s",
        "--restart-at",
        "9",
        "--work",
        str(tmp_path / "work"),
    )
    result = score(*words)

    assert result["restarts"] == 1
    assert scoring.found_us(tmp_path / "work").tolist() == beats_us(records.read(RECORD), minutes=2)
