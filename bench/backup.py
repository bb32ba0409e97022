"""What checkpoints of a large state ship: a million keys, one in a hundred touched between two of them.

The first frame touches every key, each later one 10,000 drawn at random, and there is
a checkpoint a frame (ecoc, every=frames(1)) to a store in a folder. Counted are the
bytes the shipper hands to the store, by checkpoint; compaction (a checkpoint that takes
in the whole state again) is among them. The bar is for the worst 50 checkpoints in a
row. A full copy is, in the same run, the container that would be shipped if the store
had nothing, after the last frame.

    keyed     a running sum per key in Python state
    stream    groupBy(key).agg over the stream, Spark's RocksDB state

    make bench-backup            both, 120 checkpoints
    python -m bench.backup --quick
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import finish, say

SCHEMA = "ts timestamp, key bigint, value bigint"
KEYS, SHARE, CHECKPOINTS, IN_A_ROW = 1_000_000, 0.01, 120, 50
BARS = {"keyed": 0.10, "stream": 0.05}


def make_files(folder: Path, keys: int, frames: int) -> None:
    folder.mkdir(parents=True)
    draw = np.random.default_rng(13)
    for n in range(frames):
        touched = np.arange(keys) if n == 0 else draw.choice(keys, int(keys * SHARE), replace=False)
        ts = n * 1_000_000 + np.sort(draw.integers(0, 1_000_000, len(touched)))
        ts[0], ts[-1] = n * 1_000_000, n * 1_000_000 + 999_999
        columns = {"key": draw.permutation(touched), "value": draw.integers(0, 1000, len(touched))}
        table = pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), **columns})
        pq.write_table(table, folder / f"{n:05d}.parquet")


def process(kind: str, data: Path, work: Path):
    import holdfast as hf

    p = hf.StreamProcess("backup", frame="1 second", time="ts", backup=hf.backup(str(work / "store")))
    p.protect(hf.ecoc(every=hf.frames(1)))
    p.source("rows", hf.read.files(str(data)), schema=SCHEMA)
    if kind == "stream":
        from pyspark.sql import functions as F

        @p.operator(over="stream", mode="update")
        def total(rows):
            return rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    else:

        @p.keyed("key", state="n bigint, total bigint", emits="key bigint, n bigint, total bigint")
        def total(state, rows):
            more = rows.groupby("key", as_index=False, sort=False).agg(more=("value", "sum"), rows=("value", "size"))
            both = more.merge(state, on="key", how="left")
            both["total"] = both.more + both.total.fillna(0).astype("int64")
            both["n"] = both.rows + both.n.fillna(0).astype("int64")
            out = both[["key", "n", "total"]]
            return out, out

    p.sink("total", hf.write.callback(lambda table, frame: None))
    return p


def shipped(kind: str, spark, data: Path, work: Path) -> tuple[dict[int, int], int]:
    """Bytes given to the store by checkpoint, and those of a full copy at the end."""
    from holdfast.engine.protect import checkpointer as guards
    from holdfast.engine.run.run import start_graph

    seen: dict[int, int] = defaultdict(int)

    class Counted(guards.Shipper):
        def _counted(self, store: str, name: str) -> bytes:
            content = super()._counted(store, name)
            seen[int(name.split("-")[1])] += len(content)
            return content

    kept, guards.Shipper = guards.Shipper, Counted
    try:
        with start_graph(process(kind, data, work).graph(), state=work / "state", spark=spark, frames_at_once=1) as run:
            run.wait()
            return dict(seen), full_copy(run, work)
    finally:
        guards.Shipper = kept


def full_copy(run, work: Path) -> int:
    """Bytes of one container with all that the unit needs after its last frame."""
    from holdfast.hosts.containers import Packer
    from holdfast.hosts.local_checkpoint import pin_runs, pin_spark
    from holdfast.journals.journal import Journal

    unit = run.folder.unit("total")
    record = Journal(unit, "commits").last()
    epochs = [int(entry.name) for entry in (unit / "spark").glob("*") if entry.name.isdigit()]
    pin = pin_runs(unit, 0, record) if record["state"] else pin_spark(unit, 0, record, max(epochs))
    packer = Packer("total", 1, work / "full")
    packer.pack(1, pin.frame, (), pin.files, record=pin.record)
    return packer.bytes_packed


def study(kind: str, spark, data: Path, work: Path, in_a_row: int) -> dict:
    sizes, full = shipped(kind, spark, data, work)
    first = min(sizes)
    later = [size for serial, size in sorted(sizes.items()) if serial > first]
    rows = [statistics.mean(later[at : at + in_a_row]) for at in range(max(1, len(later) - in_a_row + 1))]
    whole = [at for at, size in enumerate(later) if size > full / 2]
    found = {
        "checkpoints": len(later),
        "full_copy_bytes": full,
        "first_bytes": sizes[first],
        "median_bytes": round(statistics.median(later)),
        "mean_share": round(statistics.mean(later) / full, 4),
        "worst_share": round(max(rows) / full, 4),
        "bar": BARS[kind],
        "whole_again": len(whole),
    }
    say(
        f"  {kind:<6} full copy {full:,} B; median {found['median_bytes']:,} B a checkpoint; whole again {len(whole)} times"
    )
    say(f"  {kind:<6} worst {in_a_row} in a row {found['worst_share']:.2%} of a full copy (bar {BARS[kind]:.0%})")
    return found


def main() -> None:
    from holdfast.engine.session.session import close_session, open_session

    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="100,000 keys")
    parser.add_argument("--checkpoints", type=int, default=CHECKPOINTS)
    parser.add_argument("--kinds", default=",".join(BARS))
    given = parser.parse_args()
    keys = KEYS // 10 if given.quick else KEYS
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        work = Path(folder)
        say(f"making {given.checkpoints + 1} files over {keys:,} keys")
        make_files(work / "data", keys, given.checkpoints + 1)
        spark = open_session(work / "session")
        found = {
            kind: study(kind, spark, work / "data", work / kind, min(IN_A_ROW, given.checkpoints))
            for kind in given.kinds.split(",")
        }
        close_session(spark)
    met = all(found[kind]["worst_share"] < BARS[kind] for kind in found)
    finish("backup", {"keys": keys, "touched": SHARE, "in_a_row": IN_A_ROW, **found, "met": met})


if __name__ == "__main__":
    main()
