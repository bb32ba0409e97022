"""A run under watch: metrics and health while it goes on, log and trace when it has failed, and nothing told too much.

One run for all of it. The process hides its values and opens a secret; in frame 6 its
operator raises, quoting a row.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.live.runs import ROOT, environ

SECRET = "swordfish-8127-swordfish"
HOT = 451.7317
FRAME = 6


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    (folder / "watched.py").write_text((ROOT / "tests" / "live" / "watched.py").read_text())
    (folder / "readings").mkdir()
    begin = datetime(2026, 1, 5, 6, tzinfo=UTC)
    rows = [
        {
            "ts": begin + timedelta(milliseconds=100 * i),
            "zone": i % 3,
            "celsius": HOT if i == 10 * FRAME - 5 else 70.0 + i,
        }
        for i in range(100)
    ]
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("zone", pa.int32()), ("celsius", pa.float64())])
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "readings" / "0.parquet")
    env = {**environ(), "WARD_TOKEN": SECRET, "NO_COLOR": "1"}
    run = subprocess.Popen(
        [sys.executable, "-c", "from holdfast.cli.main import main; main()", "run", "watched.py", "--metrics", "127.0.0.1:0"],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    said, seen = [], {}
    try:
        for line in run.stdout:
            said.append(line)
            if found := re.search(r"metrics (http://\S+)/metrics", line):
                seen["metrics"] = urllib.request.urlopen(f"{found[1]}/metrics", timeout=30).read().decode()
                try:
                    seen["health"] = json.load(urllib.request.urlopen(f"{found[1]}/healthz", timeout=30))
                except urllib.error.HTTPError as error:
                    seen["health"] = json.load(error)
        code = run.wait(240)
    finally:
        run.kill()
        run.wait()
    return folder, "".join(said), code, seen


def shell(folder, *words):
    command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", *words]
    return subprocess.run(command, cwd=folder, env=environ(), capture_output=True, text=True)


def test_the_failure_is_told_without_the_row(watched):
    _, said, code, _ = watched

    assert code == 5, said
    assert "HF-O001 OperatorRaised" in said
    assert f"operator 'counted', frame {FRAME}, watched.py:" in said
    assert str(HOT) not in said


def test_it_could_be_watched_while_it_ran(watched):
    *_, said, _, seen = watched

    assert 'holdfast_frames_sealed_total{process="watched",source="readings"}' in seen["metrics"], said
    assert 'holdfast_running{process="watched"} 1.0' in seen["metrics"]
    assert (seen["health"]["process"], seen["health"]["healthy"]) == ("watched", True)


def test_the_log_tells_the_story(watched):
    folder, *_ = watched
    log = (folder / ".holdfast/watched/logs/holdfast.log").read_text()

    assert "watched is running" in log
    assert "HF-O001 OperatorRaised" in log


def test_the_failed_frame_is_traced_to_its_file(watched):
    folder, *_ = watched
    answer = shell(folder, "trace", "counted", str(FRAME), "--json")
    found = json.loads(answer.stdout)

    assert found["state"] in ("in work", "not sealed"), answer.stdout
    assert found["errors"][-1]["code"] == "HF-O001"
    source = json.loads(shell(folder, "trace", "readings", str(FRAME), "--json", "--rows").stdout)
    assert source["references"][0]["ranges"] == [[50, 60]]
    assert source["rows_shown"][0] == {"ts": "<time>", "zone": "<int>", "celsius": "<float>"}
    first = json.loads(shell(folder, "trace", "counted", "1", "--json").stdout)
    assert first["inputs"][0]["references"][0]["ranges"] == [[0, 10]]
    assert {sink["sink"]: sink["has"] for sink in first["sinks"]}["counted"] is True


def test_no_file_of_the_run_holds_the_secret_and_no_record_the_row(watched):
    """Rows lie in queues, state and the source's own files; nowhere else."""
    folder, said, *_ = watched
    state = folder / ".holdfast" / "watched"

    holding = [path for path in state.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert holding == []
    assert SECRET not in said
    records = [path for name in ("logs", "records") for path in (state / name).rglob("*") if path.is_file()]
    records += [*state.glob("*.json"), *state.glob("units/*/*.jsonl"), *state.glob("sources/*/*.jsonl")]
    assert len(records) > 4
    assert [path for path in records if str(HOT).encode() in path.read_bytes()] == []


def test_the_state_folder_is_its_owners(watched):
    folder, *_ = watched

    assert (folder / ".holdfast" / "watched").stat().st_mode & 0o777 == 0o700
    assert "Spark checkpoint" in shell(folder, "du").stdout
    assert "--yes removes it" in shell(folder, "clean").stdout
