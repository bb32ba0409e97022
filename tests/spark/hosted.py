"""Processes whose units live on logical hosts, and runs of them in which hosts are lost."""

from __future__ import annotations

import faulthandler
import shutil
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

import holdfast as hf
from holdfast import failpoints as points
from holdfast.faults.plans import Fault, environment, homes_of
from holdfast.journals.incidents import incidents_of

HOSTS = ("h1", "h2", "h3")
FRAMES = 20
# A run takes seconds; a minute or two under load. One that takes this long hangs.
HANGS_S = 300


def readings(folder: Path) -> None:
    """Twenty seconds of four zones, about ten rows a second."""
    draw = np.random.default_rng(7)
    times = np.sort(draw.integers(0, FRAMES * 1_000_000, FRAMES * 10))
    table = pa.table(
        {
            "ts": pa.array(1_700_000_000_000_000 + times, pa.timestamp("us", "UTC")),
            "zone": pa.array(draw.integers(0, 4, len(times)), pa.int32()),
            "celsius": pa.array(draw.normal(70, 15, len(times)).round(3)),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "0.parquet")


def rises(state: pd.DataFrame, warm: pd.DataFrame):
    """An element lost or doubled shifts `seen` for the rest of the run."""
    x = warm.merge(state, on="zone", how="left")
    before = x.groupby("zone").celsius.shift().fillna(x["last"]).fillna(0.0)
    seen = (x.groupby("zone").cumcount() + 1 + x.seen.fillna(0)).astype("int64")
    out = x.assign(rise=x.celsius - before, seen=seen)
    after = out.groupby("zone", as_index=False).agg(last=("celsius", "last"), seen=("seen", "last"))
    return after, out[["ts", "zone", "rise", "seen"]]


def counted(state: pd.DataFrame, warm: pd.DataFrame):
    x = warm.merge(state, on="zone", how="left")
    n = (x.groupby("zone").cumcount() + 1 + x.n.fillna(0)).astype("int64")
    out = x.assign(n=n)
    return out.groupby("zone", as_index=False).agg(n=("n", "last")), out[["ts", "zone", "n"]]


def plant(
    folder: Path, protection, *, hosts=HOSTS, backup=None, spark_state: bool = False, **settings
) -> hf.StreamProcess:
    """A diamond of three keyed units: rises and counted read warm, joined reads both."""
    made = hf.StreamProcess("plant", frame="1 second", time="ts", hosts=hosts, backup=backup, **settings)
    made.protect(protection)
    made.source(
        "readings",
        hf.read.files(str(folder / "readings" / "*.parquet")),
        schema="ts timestamp, zone int, celsius double",
    )

    @made.operator(over="frame", apart=True)
    def warm(readings):
        return readings.where("celsius > 50")

    made.keyed("zone", state="last double, seen bigint", emits="ts timestamp, zone int, rise double, seen bigint")(
        rises
    )
    made.keyed("zone", state="n bigint", emits="ts timestamp, zone int, n bigint")(counted)
    if spark_state:

        @made.operator(over="stream", mode="append")
        def joined(rises):
            return (
                rises.groupBy(F.window("ts", "5 seconds"), "zone")
                .agg(F.sum("seen").alias("seen"), F.count("*").alias("n"))
                .select(F.col("window.start").alias("ts"), "zone", "seen", "n")
            )
    else:
        made.join(
            "joined", left="rises", right="counted", on="zone", within="100 ms", emits=["ts", "zone", "seen", "n"]
        )
    made.sink("joined", hf.write.sqlite(str(folder / "out.db"), "joined"))
    made.sink("counted", hf.write.sqlite(str(folder / "counted.db"), "counted"))
    return made


def content(folder: Path) -> dict:
    found = {}
    for file, table in (("out.db", "joined"), ("counted.db", "counted")):
        with sqlite3.connect(folder / file) as connection:
            found[table] = connection.execute(f"select * from {table}").fetchall()
    return found


def kinds(folder: Path, file: str) -> dict[int, str]:
    """How each frame in the sink's ledger was sealed."""
    with sqlite3.connect(folder / file) as connection:
        return dict(connection.execute("select frame, kind from _holdfast_ledger order by frame").fetchall())


def marks(folder: Path, file: str) -> dict[int, str]:
    """What each frame in the sink's ledger was marked with."""
    with sqlite3.connect(folder / file) as connection:
        return dict(connection.execute("select frame, mark from _holdfast_ledger order by frame").fetchall())


def run(folder: Path, spark, process, *faults: Fault, watch=lambda run: None, until_frame: int | None = None) -> object:
    """Run to the end with these faults, each of which has to strike."""
    state = folder / "state"
    marks = [folder / f"hit-{at}" for at in range(len(faults))]
    with points.arming(environment(faults, marks, homes_of(process.graph(), state))):
        with process.start(state=state, spark=spark, until_frame=until_frame) as done:
            hangs = threading.Timer(HANGS_S, _give_up, [done])
            hangs.start()
            try:
                while not done.finished:
                    watch(done)
                    with done._board.changed:
                        done._board.changed.wait(timeout=0.2)
                done.wait()
            finally:
                hangs.cancel()
    left = [query.name for query in spark.streams.active]
    assert not left, f"still at work after the run: {left}"
    missed = [str(fault) for fault, mark in zip(faults, marks, strict=True) if not mark.exists()]
    assert not missed, f"never reached: {missed}"
    return done


def _give_up(run) -> None:
    """With all there is to know: a test that hangs tells nothing."""
    faulthandler.dump_traceback(all_threads=True)
    run.parts.board.fail(AssertionError(f"the run hangs: {run.status()}"))


def said(folder: Path) -> list[str]:
    """What was noted while it ran, and since."""
    return [f"{incident.unit}: {incident.what} {incident.text}" for incident in incidents_of(folder / "state")]


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    readings(folder / "readings")
    return folder
