"""What Holdfast costs beside plain Structured Streaming: filter + running aggregate per key.

Both sides read the same Parquet files, one file a frame, and end when the rows can
be read in SQLite. Ours seals, checksums, keeps ledger and records; the rival is what
a careful user writes (foreachBatch with an upsert in one transaction, WAL).

Each side is a process of its own with one warm session; the parent lets them take
turns. A turn is a new query over all files; its frame time is the time between two
frames becoming visible, without the start of the query. Sides:

    ours          filter and aggregate built in, one frame a batch
    ours_stream   the same as an over="stream" operator with Spark's own state
    plain         Spark's defaults, but RocksDB and 2 shuffle partitions
    tuned         plain with our session's settings
    plain_again   a second process like plain: how much a rival differs from itself

    make bench-overhead            all sides, 7 alternations
    python -m bench.overhead --alternations 3 --sides ours,plain
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import finish, median, say, spread

SCHEMA = "ts timestamp, key bigint, value bigint"
KEYS = 1000
SIZES = {"large": (1_000_000, 6), "small": (1_000, 40)}  # rows a frame, frames
UPSERT = "insert into total values (?, ?, ?) on conflict (key) do update set n = excluded.n, total = excluded.total"


def make_files(folder: Path, rows: int, frames: int) -> None:
    folder.mkdir(parents=True)
    draw = np.random.default_rng(7)
    for n in range(frames):
        ts = n * 1_000_000 + np.sort(draw.integers(0, 1_000_000, rows))
        ts[0], ts[-1] = n * 1_000_000, n * 1_000_000 + 999_999
        table = pa.table(
            {
                "ts": pa.array(ts, pa.timestamp("us", "UTC")),
                "key": pa.array(draw.integers(0, KEYS, rows)),
                "value": pa.array(draw.integers(0, 1000, rows)),
            }
        )
        pq.write_table(table, folder / f"{n:05d}.parquet", row_group_size=max(1, rows // 4))


# ---- one side, in a process of its own ----


def ours(spark, data: Path, work: Path, frames: int, *, stream: bool, protection=None) -> list[float]:
    import holdfast as hf
    from holdfast.engine.run.run import start_graph

    p = hf.StreamProcess("overhead", frame="1 second", time="ts")
    if protection is not None:
        p.protect(protection)
    p.source("rows", hf.read.files(str(data)), schema=SCHEMA)
    if stream:
        from pyspark.sql import functions as F

        @p.operator(over="stream", mode="update")
        def total(rows):
            kept = rows.where("value >= 100").groupBy("key")
            return kept.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    else:
        p.filter("kept", of="rows", where="value >= 100")
        p.aggregate("total", of="kept", by="key", emits={"n": "count(*)", "total": "sum(value)"})
    writer = TimedWriter(hf.write.sqlite(str(work / "out.db"), "total", keys=["key"]))
    p.sink("total", writer)
    run = start_graph(p.graph(), state=work / "state", spark=spark, frames_at_once=1)
    run.wait()
    return [at for n, at in writer.seen if n <= frames]


@dataclass(frozen=True)
class TimedWriter:
    """The real writer, and when each frame could be read."""

    inner: object
    seen: list = field(default_factory=list)
    idempotent: bool = True

    def describe(self):
        return self.inner.describe()

    def check(self, schema, *, sink=""):
        return self.inner.check(schema, sink=sink)

    def open(self, context):
        return _TimedSink(self.inner.open(context), self.seen)


class _TimedSink:
    def __init__(self, inner, seen: list) -> None:
        self._inner, self._seen = inner, seen
        self.last, self.close = inner.last, inner.close

    def write(self, batch):
        written = self._inner.write(batch)
        now = time.monotonic()
        self._seen += [(record.n, now) for record, _ in batch]
        return written


def rival(spark, data: Path, work: Path, frames: int) -> list[float]:
    from pyspark.sql import functions as F

    seen: list[float] = []
    work.mkdir(parents=True)
    db = sqlite3.connect(work / "out.db", check_same_thread=False)
    db.execute("pragma journal_mode=wal")
    db.execute("create table total (key integer primary key, n integer, total integer)")

    def write(df, batch_id):
        rows = [tuple(row) for row in df.collect()]
        with db:
            db.executemany(UPSERT, rows)
        seen.append(time.monotonic())

    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(data))
        .where("value >= 100")
        .groupBy("key")
        .agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(work / "checkpoint"))
        .foreachBatch(write)
        .start()
    )
    while len(seen) < frames and query.isActive:
        query.awaitTermination(0.05)
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    query.stop()
    db.close()
    return seen


def side(name: str) -> None:
    from holdfast.engine.session.session import open_session

    scratch = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    if name.startswith("plain"):
        spark = _plain_session()
    else:
        spark = open_session(scratch / "session")
        if name == "tuned":
            spark.conf.set("spark.sql.shuffle.partitions", "2")
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        data, work = Path(order["data"]), scratch / f"turn-{number}"
        if name.startswith("ours"):
            seen = ours(spark, data, work, order["frames"], stream=name == "ours_stream")
        else:
            seen = rival(spark, data, work, order["frames"])
        with sqlite3.connect(work / "out.db") as db:
            sums = db.execute("select count(*), sum(n), sum(total) from total").fetchone()
        print(json.dumps({"seen": seen, "sums": sums}), flush=True)


def _plain_session():
    """What a user has who sets nothing but a state store that scales and a small shuffle."""
    import os

    from pyspark.sql import SparkSession

    from holdfast.engine.session.java import find_java

    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


# ---- the parent ----


class Side:
    def __init__(self, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.overhead", "--side", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.times: dict[str, list[float]] = {size: [] for size in SIZES}

    def wait(self) -> None:
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"side {self.name!r} did not start")

    def turn(self, size: str, data: Path, frames: int) -> tuple[float, list]:
        self._process.stdin.write(json.dumps({"data": str(data), "frames": frames}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"side {self.name!r} died")
        answer = json.loads(line)
        seen = answer["seen"]
        return (seen[-1] - seen[0]) / (len(seen) - 1), answer["sums"]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)


def study(names: list[str], alternations: int, folder: Path) -> dict:
    for size, (rows, frames) in SIZES.items():
        say(f"making {frames} files of {rows:,} rows")
        make_files(folder / size, rows, frames)
    sides = [Side(name) for name in names]
    for each in sides:
        each.wait()
    expected: dict[str, list] = {}
    for turn in range(-1, alternations):  # the first turn warms up and is not counted
        order = sides if turn % 2 else sides[::-1]
        for size, (_, frames) in SIZES.items():
            for each in order:
                seconds, sums = each.turn(size, folder / size, frames)
                if expected.setdefault(size, sums) != sums:
                    raise RuntimeError(f"{each.name} has other rows: {sums} against {expected[size]}")
                if turn >= 0:
                    each.times[size].append(seconds)
                say(f"  turn {turn + 1} of {alternations}  {size:<6} {each.name:<12} {seconds * 1000:8.1f} ms a frame")
    for each in sides:
        each.close()
    return figures(sides, alternations)


def figures(sides: list[Side], alternations: int) -> dict:
    found: dict = {"alternations": alternations, "ms_per_frame": {}, "spread": {}}
    for each in sides:
        found["ms_per_frame"][each.name] = {s: round(median(t) * 1000, 1) for s, t in each.times.items()}
        found["spread"][each.name] = {s: round(spread(t), 3) for s, t in each.times.items()}
    times = {each.name: each.times for each in sides}

    def ratio(size: str, one: str, other: str) -> float | None:
        """Median over the alternations of one side's time by another's in the same turn."""
        if one not in times or other not in times:
            return None
        return round(median([a / b for a, b in zip(times[one][size], times[other][size], strict=True)]), 3)

    for mine in ("ours", "ours_stream"):
        mark = "" if mine == "ours" else "_stream"
        for other, tail in (("plain", ""), ("tuned", "_tuned")):
            found[f"throughput_ratio{tail}{mark}"] = ratio("large", other, mine)
            found[f"frame_time_ratio{tail}{mark}"] = ratio("small", mine, other)
    found["plain_against_itself"] = {size: ratio(size, "plain_again", "plain") for size in SIZES}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--side")
    parser.add_argument("--sides", default="ours,plain,tuned,ours_stream,plain_again")
    parser.add_argument("--alternations", type=int, default=7)
    given = parser.parse_args()
    if given.side:
        side(given.side)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        finish("overhead", study(given.sides.split(","), given.alternations, Path(folder)))


if __name__ == "__main__":
    main()
