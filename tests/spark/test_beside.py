"""Protections beside the declared one: real checkpoints, and a run that does not notice them."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.engine.protect.shadow import Beside
from holdfast.engine.run.run import start_graph
from holdfast.hosts.stores import OpenStore

FRAMES, STOPPED_AT = 14, 10
IDENTITY = "0123456789ab"
TRIED = {
    "uncoordinated": hf.uncoordinated(hf.frames(4)),
    "extended": hf.ecoc(hf.frames(3), extended=True),
}


def rows() -> pd.DataFrame:
    draw = np.random.default_rng(7)
    times = np.sort(draw.integers(0, FRAMES * 1_000_000, FRAMES * 10))
    ts = pd.to_datetime(1_700_000_000_000_000 + times, unit="us", utc=True)
    return pd.DataFrame(
        {"ts": ts, "k": draw.integers(0, 3, len(ts)).astype("int32"), "value": draw.integers(0, 100, len(ts))}
    )


def expected(upto: int) -> list[tuple]:
    """What the table holds after so many frames: an element lost or doubled shifts every row after it."""
    first = pd.Timestamp(1_700_000_000, unit="s", tz="UTC")
    x = rows()
    x = x[(x.ts - first.floor("1s")) < pd.Timedelta(seconds=upto)]
    x = x.assign(seen=x.groupby("k").cumcount() + 1, total=x.groupby("k").value.cumsum())
    return sorted(zip(x.k, x.seen, x.total, strict=True))


def chain(folder: Path, protection, **settings) -> hf.StreamProcess:
    made = hf.StreamProcess("chain", frame="1 second", time="ts", **settings)
    made.protect(protection)
    made.source("came", hf.read.files(str(folder / "came.parquet")), schema="ts timestamp, k int, value bigint")

    @made.keyed("k", state="seen bigint", emits="ts timestamp, k int, value bigint, seen bigint", apart=True)
    def counted(state, came):
        x = came.merge(state, on="k", how="left")
        x = x.assign(seen=(x.groupby("k").cumcount() + 1 + x.seen.fillna(0)).astype("int64"))
        return x.groupby("k", as_index=False)[["seen"]].last(), x[["ts", "k", "value", "seen"]]

    @made.keyed("k", state="total bigint", emits="ts timestamp, k int, seen bigint, total bigint", apart=True)
    def summed(state, counted):
        x = counted.merge(state, on="k", how="left")
        x = x.assign(total=(x.groupby("k").value.cumsum() + x.total.fillna(0)).astype("int64"))
        return x.groupby("k", as_index=False)[["total"]].last(), x[["ts", "k", "seen", "total"]]

    made.sink("summed", hf.write.sqlite(str(folder / "out.db"), "summed"))
    return made


def content(folder: Path) -> list[tuple]:
    with sqlite3.connect(folder / "out.db") as connection:
        return sorted(connection.execute("select k, seen, total from summed").fetchall())


def test_a_process_goes_on_from_a_protection_beside_the_declared_one(spark, tmp_path):
    """A checkpoint that only looks like one would make every figure measured on it worthless.

    All that the first run knew is lost but who it was, its table and one of the backups; the second run goes on from these.
    """
    table, heard = pa.Table.from_pandas(rows(), preserve_index=False), {name: set() for name in TRIED}
    for name in ("first", *TRIED):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "came.parquet")
    beside = [
        Beside(
            name, protection, OpenStore("copy1", str(tmp_path / "stores" / name / f"state-{IDENTITY}")), phases={"counted": 1},
            heard=lambda unit, event, words, name=name: heard[name].update(type(each).__name__ for each in words),
        )
        for name, protection in TRIED.items()
    ]  # fmt: skip
    first = tmp_path / "first"
    (first / "state").mkdir()
    (first / "state" / "identity").write_text(IDENTITY)
    graph = chain(first, hf.none, hosts=("h1", "h2")).graph()
    with start_graph(
        graph, state=first / "state", until_frame=STOPPED_AT, spark=spark, beside=beside, frames_at_once=1
    ) as run:
        run.wait()

    assert content(first) == expected(STOPPED_AT)
    assert "SendRequest" in heard["extended"] and "SendRequest" not in heard["uncoordinated"]
    for name, protection in TRIED.items():
        again = tmp_path / name
        shutil.copy(first / "out.db", again / "out.db")
        (again / "state").mkdir()
        for tag in ("identity", "starts"):  # whose backup it is, and whose table
            shutil.copy(first / "state" / tag, again / "state")
        process = chain(again, protection, hosts=("h1", "h2"), backup=hf.backup(str(tmp_path / "stores" / name)))
        with process.start(state=again / "state", spark=spark) as run:
            run.wait()
        assert len([note for note in run.notes if "was put back to frame" in note]) == 2, run.notes
        assert content(again) == expected(FRAMES)
