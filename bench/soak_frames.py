"""A hundred thousand tiny frames: disk, file count and memory stay flat.

A recording of 100,000 seconds with three rows a second runs through a filter and a
running aggregate (whose state is that of every keyed operator) into SQLite. Every 5,000 frames the study
looks at the state folder (bytes, files) and at the memory of the driver, the JVM and
the workers. Flat means: the median of the last quarter is at most a fifth above the
median of the second quarter (the first is warm-up), and no frame is missing.

    make soak-frames          python -m bench.soak_frames --frames 5000 for a short one
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import finish, median, say

ROWS = 3
FRAMES_A_FILE = 5_000
GROWTH_MAX = 1.2


def make_recording(folder: Path, frames: int) -> None:
    folder.mkdir(parents=True)
    draw = np.random.default_rng(3)
    for first in range(0, frames, FRAMES_A_FILE):
        count = min(FRAMES_A_FILE, frames - first)
        ts = np.sort(
            np.repeat(np.arange(first, first + count), ROWS) * 1_000_000 + draw.integers(0, 900_000, count * ROWS)
        )
        table = pa.table(
            {
                "ts": pa.array(ts, pa.timestamp("us", "UTC")),
                "key": pa.array(draw.integers(0, 100, len(ts))),
                "value": pa.array(draw.integers(0, 1000, len(ts))),
            }
        )
        pq.write_table(table, folder / f"{first:07d}.parquet", row_group_size=1_500)


def process(data: Path, work: Path):
    import holdfast as hf

    p = hf.StreamProcess("soak", frame="1 second", time="ts")
    p.source("rows", hf.read.files(str(data)), schema="ts timestamp, key bigint, value bigint")
    p.filter("kept", of="rows", where="value >= 100")
    p.aggregate("total", of="kept", by="key", emits={"n": "count(*)", "total": "sum(value)"})
    p.sink("total", hf.write.sqlite(str(work / "out.db"), "total", keys=["key"]))
    return p


class Looks(threading.Thread):
    """Looks at disk and memory each time the run has come so many frames further."""

    def __init__(self, run, state: Path, every: int) -> None:
        super().__init__(daemon=True)
        self._run, self._state, self._every = run, state, every
        self.taken: list[dict] = []

    def run(self) -> None:
        following, started = self._every, time.monotonic()
        while not self._run.finished:
            frame = self._run.status().frame
            if frame >= following:
                self.taken.append({"frame": frame, **disk(self._state), **memory()})
                say(f"  frame {frame:>7,}  {frame / (time.monotonic() - started):7.0f} frames/s  {self.taken[-1]}")
                following = frame - frame % self._every + self._every
            threading.Event().wait(0.2)


def disk(state: Path) -> dict[str, int]:
    sizes = []
    for folder, _, files in os.walk(state):
        for name in files:
            try:
                sizes.append(os.stat(os.path.join(folder, name)).st_size)
            except OSError:
                continue
    return {"bytes": sum(sizes), "files": len(sizes)}


def memory() -> dict[str, int]:
    """Resident megabytes of this process, its JVM and its Python workers."""
    from holdfast.failpoints import descendants

    found = {"driver_mb": _rss(os.getpid()), "jvm_mb": 0, "python_mb": 0}
    for pid, command in descendants(os.getpid()):
        found["jvm_mb" if "java" in command.split(" ")[0] else "python_mb"] += _rss(pid)
    return found


def _rss(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def growth(taken: list[dict], what: str) -> float:
    quarter = max(1, len(taken) // 4)
    before = median([look[what] for look in taken[quarter : 2 * quarter]] or [taken[0][what]])
    return round(median([look[what] for look in taken[-quarter:]]) / max(1, before), 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder:
        work = Path(folder)
        say(f"making a recording of {given.frames:,} frames")
        make_recording(work / "data", given.frames)
        began = time.monotonic()
        run = process(work / "data", work).start(state=work / "state")
        looks = Looks(run, work / "state", max(100, given.frames // 20))
        looks.start()
        run.wait()
        looks.join()
        seconds = time.monotonic() - began
        with sqlite3.connect(work / "out.db") as db:
            ledger = db.execute("select sink, frame from _holdfast_epoch order by sink").fetchall()
            sums = db.execute("select sum(n) from total").fetchone()[0]
        expected = sum(
            int((pq.read_table(file, columns=["value"])["value"].to_numpy() >= 100).sum())
            for file in sorted((work / "data").iterdir())
        )
    grown = {what: growth(looks.taken, what) for what in ("bytes", "files", "driver_mb", "jvm_mb", "python_mb")}
    flat = all(value <= GROWTH_MAX for value in grown.values())
    finish(
        "soak-frames",
        {
            "frames": given.frames,
            "frames_written": dict(ledger),
            "rows_counted": sums,
            "rows_expected": expected,
            "nothing_lost": sums == expected,
            "frames_per_s": round(given.frames / seconds, 1),
            "growth": grown,
            "flat": flat,
            "last_look": looks.taken[-1] if looks.taken else {},
        },
    )
    if not flat or sums != expected:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
