"""`hf.session()` serves many runs; a session that is open is not closed, nor is a second one opened beside it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import holdfast as hf
from pathlib import Path

Path("a.csv").write_text("ts,n\\n" + "".join(f"2026-01-05T06:00:{i:02}Z,{i}\\n" for i in range(20)))

def counted(name):
    p = hf.StreamProcess(name, frame="1 second", time="ts")
    p.source("a", hf.read.files("a.csv"), schema="ts timestamp, n int")
    p.aggregate("seen", of="a", emits={"n": "count(*)"})
    p.sink("seen", hf.write.sqlite("out.db", name))
    return p

if __name__ == "__main__":
    with hf.session("spark_logs") as spark:
        first = counted("first")
        print(first.run(spark=spark, until=5).status().frame)
        print(first.run(spark=spark, until="2026-01-05T06:00:09.5Z").status().frame)  # frame 10 covers it
        print(counted("second").run(spark=spark).status().state)
        again = first.replay("again", until=7, spark=spark)
        print(again.status().frame, first.status().frame, first.status().state)
        print(spark.range(3).count())
    from pyspark import SparkContext
    print(SparkContext._active_spark_context, Path("spark_logs/logs").is_dir())
"""


def test_one_session_serves_several_runs_and_ends_with_its_block(tmp_path):
    """Each JVM costs seconds, and a run that closed a shared one would break the next."""
    (tmp_path / "program.py").write_text(PROGRAM)
    answer = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert answer.stdout.splitlines() == ["5", "10", "finished", "7 10 stopped", "3", "None True"], answer.stderr
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("select max(n) from first").fetchone() == (10,)
        assert db.execute("select max(n), max(_frame) from again").fetchone() == (7, 7)


def test_a_second_session_is_refused_and_the_first_stays(spark):
    """HF-E003."""
    with pytest.raises(UsageError, match="HF-E003"), hf.session():
        pass
    assert spark.range(2).count() == 2
