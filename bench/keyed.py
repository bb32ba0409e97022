"""A running sum per key in Python state: 200,000 rows a frame over 100,000 keys.

    ours         a keyed operator, vectorised pandas, through Holdfast with everything on
    per_key      plain Spark: one transformWithState call per key (Row API), on fewer rows
    bytewax      the same rows through bytewax (`pip install bytewax` in an environment of its own)

Rows a second are those between the first and the last frame becoming visible; both
rivals keep state in memory or RocksDB and write nothing but the result.

    make bench-keyed
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.overhead import TimedWriter
from bench.report import finish, median, say, spread

ROWS, KEYS, FRAMES = 200_000, 100_000, 8
PER_KEY_ROWS, PER_KEY_KEYS = 4_000, 2_000  # the same two rows a key; more would take minutes


def make_files(folder: Path, rows: int, keys: int, frames: int) -> None:
    folder.mkdir(parents=True)
    draw = np.random.default_rng(11)
    for n in range(frames):
        ts = n * 1_000_000 + np.sort(draw.integers(0, 1_000_000, rows))
        ts[0], ts[-1] = n * 1_000_000, n * 1_000_000 + 999_999
        columns = {"key": draw.integers(0, keys, rows), "value": draw.integers(0, 1000, rows)}
        table = pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), **columns})
        pq.write_table(table, folder / f"{n:05d}.parquet")


def ours(spark, data: Path, work: Path) -> tuple[list[float], int]:
    import holdfast as hf
    from holdfast.engine.run.run import start_graph

    p = hf.StreamProcess("keyed", frame="1 second", time="ts")
    p.source("rows", hf.read.files(str(data)), schema="ts timestamp, key bigint, value bigint")

    @p.keyed("key", state="total bigint", emits="key bigint, total bigint")
    def total(state, rows):
        more = rows.groupby("key", as_index=False, sort=False).value.sum()
        both = more.merge(state, on="key", how="left")
        both["total"] = both.value + both.total.fillna(0).astype("int64")
        out = both[["key", "total"]]
        return out, out

    kept: list[pa.Table] = []
    writer = TimedWriter(hf.write.callback(lambda table, frame: kept.append(table.slice(0, 1))))
    p.sink("total", writer)
    with start_graph(p.graph(), state=work / "state", spark=spark) as run:
        run.wait()
    return [at for n, at in writer.seen if n <= FRAMES], len(kept)


def per_key(spark, data: Path, work: Path) -> list[float]:
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Total(StatefulProcessor):
        def init(self, handle) -> None:
            self.total = handle.getValueState("total", "total long")

        def handleInputRows(self, key, rows, timerValues):
            before = self.total.get()[0] if self.total.exists() else 0
            total = before + sum(row.value for row in rows)
            self.total.update((total,))
            yield Row(key=key[0], total=total)

        def close(self) -> None:
            pass

    seen: list[float] = []

    def write(df, batch_id):
        df.collect()
        seen.append(time.monotonic())

    query = (
        spark.readStream.schema("ts timestamp, key bigint, value bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(data))
        .groupBy("key")
        .transformWithState(Total(), "key long, total long", "update", "none")
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(work / "checkpoint"))
        .foreachBatch(write)
        .start()
    )
    while len(seen) < FRAMES and query.isActive:
        query.awaitTermination(0.05)
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    query.stop()
    return seen


BYTEWAX = """
import json, sys, time
from pathlib import Path
import pyarrow.parquet as pq
import bytewax.operators as op
from bytewax.connectors.demo import RandomMetricSource  # noqa: F401 (proves the install)
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

files = sorted(Path(sys.argv[1]).iterdir())
seen = {"rows": 0, "first": None, "last": None}

class Part(StatelessSourcePartition):
    def __init__(self): self.left = list(files)
    def next_batch(self):
        if not self.left: raise StopIteration()
        t = pq.read_table(self.left.pop(0))
        return list(zip(map(str, t["key"].to_pylist()), t["value"].to_pylist()))

class Source(DynamicSource):
    def build(self, step_id, worker_index, worker_count): return Part()

class Out(StatelessSinkPartition):
    def write_batch(self, items):
        now = time.monotonic()
        seen["first"] = seen["first"] or now
        seen["last"] = now
        seen["rows"] += len(items)

class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count): return Out()

flow = Dataflow("total")
rows = op.input("in", flow, Source())
total = op.stateful_map("total", rows, lambda state, value: ((state or 0) + value,) * 2)
op.output("out", total, Sink())
began = time.monotonic()
run_main(flow)
print(json.dumps({"rows": seen["rows"], "seconds": seen["last"] - began}))
"""


def bytewax(data: Path, work: Path) -> float | None:
    """Rows a second; None where bytewax cannot be installed."""
    work.mkdir(parents=True)
    venv.create(work / "env", with_pip=True)
    python = work / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "bytewax", "pyarrow"]
    made = subprocess.run(install, capture_output=True, text=True)
    if made.returncode:
        say("  bytewax could not be installed")
        return None
    (work / "flow.py").write_text(BYTEWAX)
    found = subprocess.run([python, work / "flow.py", data], capture_output=True, text=True)
    if found.returncode:
        say(f"  bytewax failed: {found.stderr.strip().splitlines()[-1] if found.stderr else '?'}")
        return None
    answer = json.loads(found.stdout.splitlines()[-1])
    return answer["rows"] / answer["seconds"]


def rate(seen: list[float], rows: int) -> float:
    return rows * (len(seen) - 1) / (seen[-1] - seen[0])


def main() -> None:
    from holdfast.engine.session.session import close_session, open_session

    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        work = Path(folder)
        make_files(work / "data", ROWS, KEYS, FRAMES)
        make_files(work / "few", PER_KEY_ROWS, PER_KEY_KEYS, FRAMES)
        spark = open_session(work / "session")
        mine, each, other = [], [], []
        for turn in range(-1, given.turns):
            found = {
                "ours": rate(ours(spark, work / "data", work / f"ours-{turn}")[0], ROWS),
                "per_key": rate(per_key(spark, work / "few", work / f"per-key-{turn}"), PER_KEY_ROWS),
            }
            say(f"  turn {turn + 1} of {given.turns}  " + "  ".join(f"{k} {v:,.0f} rows/s" for k, v in found.items()))
            if turn >= 0:
                mine.append(found["ours"])
                each.append(found["per_key"])
        close_session(spark)
        fast = bytewax(work / "data", work / "bytewax")
        if fast is not None:
            other.append(fast)
            say(f"  bytewax {fast:,.0f} rows/s")
    finish(
        "keyed",
        {
            "rows_per_s": round(median(mine)),
            "spread": round(spread(mine), 3),
            "per_key_rows_per_s": round(median(each)),
            "bytewax_rows_per_s": round(other[0]) if other else None,
            "rows_a_frame": ROWS,
            "keys": KEYS,
            "turns": given.turns,
        },
    )


if __name__ == "__main__":
    main()
