"""`holdfast verify` as its user calls it: two faults, an ideal and a faulty run, an oracle, a report, an exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from holdfast.faults.keeping import output_of
from holdfast.levels.measuring import measure
from tests.live.runs import ROOT, environ

PLAN = """
[[fault]]
do = "kill python worker"
unit = "average"
frame = 4
[[fault]]
do = "kill unit"
unit = "damped"
frame = 7
point = "renamed"
"""


def test_two_faults_at_their_frames_break_no_promise_and_touch_nothing_of_the_users(tmp_path):
    """One worker dies in the middle of frame 4, the unit when frame 7 is sealed and not committed."""
    shutil.copy(ROOT / "examples" / "kiln.py", tmp_path)
    shutil.copytree(ROOT / "examples" / "probes", tmp_path / "probes")
    (tmp_path / "two_hits.toml").write_text(PLAN)
    words = [
        "verify",
        "kiln.py",
        "--faults",
        "two_hits.toml",
        "--seed",
        "42",
        "--frames",
        "10",
        "--keep",
        "kept",
        "--json",
    ]

    run = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli.main import main; main()", *words],
        cwd=tmp_path, env=environ(), capture_output=True, text=True, timeout=400,
    )  # fmt: skip

    assert run.returncode == 0, run.stdout + run.stderr
    said = json.loads(run.stdout)
    assert [fault["hit"] for fault in said["faults"]] == [True, True]
    assert said["runs"]["faulty"]["unit_deaths"] == 1  # the worker's death is Spark's to mend
    states = {verdict["what"]: (verdict["state"], verdict["measured"]) for verdict in said["verdicts"]}
    rows = states["lost"][1].removeprefix("0 of ")
    assert int(rows.replace(",", "")) > 0
    assert states == {
        "lost": ("kept", f"0 of {rows}"),
        "wrong": ("kept", "0"),
        "duplicates": ("kept", "0"),
        "delay": ("not measured", "as fast as it goes"),
        "order": ("kept", "0 violations"),
        "oracle": ("agrees", states["oracle"][1]),
    }
    damped, average = said["oracle"]
    assert (said["answer"], said["errors"]) == ("all promises are kept", [])
    assert (damped["output"], damped["stream"], damped["differs"]) == ("damped", "damped", [])
    assert (average["output"], average["stream"], average["differs"]) == (
        "",
        "average",
        [],
    )  # it stays between two units
    assert len(damped["frames"]) == len(average["frames"]) == 8 and damped["rows"] > 0 and average["rows"] > 0
    assert "<svg" in (tmp_path / said["report"]).read_text()
    assert not (tmp_path / "kiln.duckdb").exists()
    assert not (tmp_path / ".holdfast" / "kiln" / "deployment.json").exists()
    assert_sees(tmp_path)
    assert not left_behind(tmp_path)


def assert_sees(folder: Path) -> None:
    """A comparison that finds nothing could be blind: with a row taken out of one frame it finds that row."""
    ideal, faulty = (folder / "kept" / name / "sinks" / "damped" for name in ("ideal", "faulty"))
    frame = sorted(faulty.glob("*.frame"))[4]
    with pa.OSFile(str(frame)) as file:
        table = pa.ipc.open_file(file).read_all()
    assert table.num_rows > 1
    said = {**table.schema.metadata, b"checksum": b"another", b"rows": str(table.num_rows - 1).encode()}
    short = table.slice(1).replace_schema_metadata(said)
    with pa.OSFile(str(frame), "wb") as file, pa.ipc.new_file(file, short.schema) as writer:
        writer.write_table(short)
    found = measure([output_of("damped", ideal)], [output_of("damped", faulty)])[0]

    assert (found.lost, found.wrong, found.duplicates) == ({5: 1}, {}, {})


def left_behind(folder: Path) -> list[str]:
    """Processes that still work in the folder."""
    name, found = os.fsencode(folder), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if name in (entry / "cmdline").read_bytes():
                    found.append((entry / "cmdline").read_text(errors="replace"))
            except OSError:
                continue
    return found
