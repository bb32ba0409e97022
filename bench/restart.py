"""How long a job is away that was killed: kill -9 of driver, JVM and workers to the first new row in SQLite.

Both sides read the same Parquet files, a file a frame, filter, aggregate per key with state, and upsert into SQLite:
Holdfast as its users run it (`holdfast run`), and plain Structured Streaming as a careful user writes it (foreachBatch,
one transaction, RocksDB state, two shuffle partitions). A turn starts a side, lets it write some frames, kills its
whole process group and starts the same command again at once; the time ends when a row of a later frame can be read.
Sides take turns; each has state folders of its own per turn.

    make bench-restart             python -m bench.restart --turns 3
    --archive                      with the class archive (`holdfast doctor --prepare`) for ours

Where our seconds go is read from the run's own log: until the command is at work, the session open, the run active,
and the first frame written.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from bench.overhead import SCHEMA, make_files
from bench.report import finish, median, say, spread

ROWS, FRAMES = 1_000, 400
BEFORE_KILL = 5  # frames that are written before the kill
LONGEST_S = 180.0
POLL_S = 0.01

OURS = '''"""The job of the study."""
import holdfast as hf

job = hf.StreamProcess("restart", frame="1 second", time="ts")
job.source("rows", hf.read.files("{data}"), schema="{schema}")
job.filter("kept", of="rows", where="value >= 100")
job.aggregate("total", of="kept", by="key", emits={{"n": "count(*)", "total": "sum(value)"}})
job.sink("total", hf.write.sqlite("out.db", "total", keys=["key"]))
'''

PLAIN = '''"""The same job in plain Structured Streaming."""
import sqlite3
from bench.overhead import UPSERT, _plain_session
from pyspark.sql import functions as F

spark = _plain_session()
db = sqlite3.connect("out.db", check_same_thread=False)
db.execute("pragma journal_mode=wal")
db.execute("create table if not exists total (key integer primary key, n integer, total integer)")
db.execute("create table if not exists batches (n integer)")

def write(df, batch_id):
    rows = [tuple(row) for row in df.collect()]
    with db:
        db.executemany(UPSERT, rows)
        db.execute("insert into batches values (?)", (batch_id,))

(spark.readStream.schema("{schema}").option("maxFilesPerTrigger", 1).parquet("{data}")
    .where("value >= 100").groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    .writeStream.outputMode("update").option("checkpointLocation", "checkpoint").foreachBatch(write).start()
    .awaitTermination())
'''

NEWEST = {"ours": "select max(_frame) from total", "plain": "select max(n) from batches"}


def newest(side: str, folder: Path) -> int:
    """The newest frame (batch) of which a row can be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder / 'out.db'}?mode=ro", uri=True, timeout=1)) as db:
            return db.execute(NEWEST[side]).fetchone()[0] or 0
    except sqlite3.Error:  # not there yet, or being made
        return 0


def start(side: str, folder: Path, environment: dict[str, str]) -> subprocess.Popen:
    command = [sys.executable, "job.py"]
    if side == "ours":
        command = [
            sys.executable,
            "-c",
            "from holdfast.cli.main import main; main()",
            "run",
            "job.py",
            "--rate",
            "fast",
        ]
    with open(folder / "said", "ab") as said:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True)


def wait_for(side: str, folder: Path, beyond: int, job: subprocess.Popen) -> float:
    """The moment at which a row of a frame beyond this one can be read."""
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        if newest(side, folder) > beyond:
            return time.monotonic()
        if job.poll() is not None:
            raise RuntimeError(f"{side} ended: {(folder / 'said').read_text()[-2000:]}")
        time.sleep(POLL_S)
    raise RuntimeError(f"{side} wrote nothing for {LONGEST_S:.0f} s: {(folder / 'said').read_text()[-2000:]}")


def kill(job: subprocess.Popen) -> None:
    """All of it: sessions of their own (the JVM, its workers) are found by their parents."""
    family, grown = {job.pid}, True
    while grown:
        grown = False
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int(entry.read_text().rpartition(")")[2].split()[1])
                if parent in family and int(entry.parent.name) not in family:
                    family.add(int(entry.parent.name))
                    grown = True
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.wait()


def stages(folder: Path, began_wall: float, ended_wall: float) -> dict[str, float]:
    """Seconds of ours, by the run's log: until it is at work, the session is open, the run is active, the row is there."""
    marks = {"at work": 0.0, "active": 0.0}
    for line in (folder / ".holdfast" / "restart" / "logs" / "holdfast.log").read_text().splitlines():
        found = re.match(r"(\S+[ T]\S+?)(?:Z|\s)", line)
        with contextlib.suppress(ValueError, TypeError):
            at = datetime.fromisoformat(found[1] + ("+00:00" if "+" not in found[1] else "")).timestamp()
            if at >= began_wall:
                marks["at work"] = marks["at work"] or at
                if "running" in line:
                    marks["active"] = marks["active"] or at
    names = [*(name for name, at in marks.items() if at), "first row"]
    places = [began_wall, *(at for at in marks.values() if at), ended_wall]
    return {name: round(b - a, 2) for name, (a, b) in zip(names, itertools.pairwise(places), strict=True)}


def turn(side: str, folder: Path, data: Path, environment: dict[str, str]) -> tuple[float, dict[str, float]]:
    folder.mkdir(parents=True)
    text = (OURS if side == "ours" else PLAIN).format(data=data, schema=SCHEMA)
    (folder / "job.py").write_text(text)
    job = start(side, folder, environment)
    try:
        wait_for(side, folder, BEFORE_KILL, job)
    finally:
        kill(job)
    before, killed, killed_wall = newest(side, folder), time.monotonic(), time.time()
    job = start(side, folder, environment)
    try:
        there = wait_for(side, folder, before, job)
    finally:
        kill(job)
    return there - killed, stages(folder, killed_wall, killed_wall + there - killed) if side == "ours" else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--archive", action="store_true")
    said = parser.parse_args()
    bar = 0.5 if said.archive else 0.7
    times: dict[str, list[float]] = {"ours": [], "plain": []}
    where: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch:
        folder = Path(scratch)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
        if not said.archive:
            environment["XDG_CACHE_HOME"] = str(folder / "cache")  # none is there
        make_files(folder / "data", ROWS, FRAMES)
        for number in range(said.turns):
            for side in ("ours", "plain") if number % 2 else ("plain", "ours"):
                seconds, parts = turn(side, folder / f"{side}-{number}", folder / "data", environment)
                times[side].append(seconds)
                where += [parts] if parts else []
                say(f"  turn {number + 1} of {said.turns}  {side:<6} {seconds:5.1f} s  {parts or ''}")
    ratio = median(times["ours"]) / median(times["plain"])
    figures = {
        "turns": said.turns,
        "archive": said.archive,
        "seconds": {side: round(median(each), 2) for side, each in times.items()},
        "spread": {side: round(spread(each), 3) for side, each in times.items()},
        "ratio": round(ratio, 3),
        "goal": bar,
        "holds": ratio <= bar,
        "stages": {name: round(median([each[name] for each in where if name in each]), 2) for name in (where[0] if where else {})},
    }  # fmt: skip
    finish("restart", figures)
    raise SystemExit(0 if figures["holds"] else 1)


if __name__ == "__main__":
    main()
