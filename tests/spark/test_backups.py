"""A unit whose state Spark keeps comes back from a base and the changelogs since, whatever snapshots Spark made meanwhile."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.engine.unit import state_files as statefiles
from holdfast.faults.plans import Fault
from holdfast.hosts import containers
from holdfast.hosts.changelogs import version_of
from tests.spark import hosted

KEYS, TOUCHED, FRAMES = 5_000, 50, 30


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    draw = np.random.default_rng(3)
    for n in range(FRAMES):
        keys = np.arange(KEYS) if n == 0 else draw.choice(KEYS, TOUCHED, replace=False)
        ts = n * 1_000_000 + np.linspace(0, 999_999, len(keys)).astype("int64")
        columns = {"key": keys, "value": draw.integers(0, 1_000_000, len(keys))}
        pq.write_table(
            pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), **columns}), folder / f"{n:03d}.parquet"
        )
    return folder


@pytest.fixture
def busy(spark):
    """Spark looks after its state stores five times a second, and makes a snapshot every third version."""
    store = spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    settings = {
        "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    }
    store.stopMaintenanceTask()  # the next one begins with what is set then
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield spark
    for key in settings:
        spark.conf.unset(key)
    store.stopMaintenanceTask()


def totals(folder: Path, rows: Path, **settings) -> hf.StreamProcess:
    made = hf.StreamProcess("totals", frame="1 second", time="ts", **settings)
    made.source("rows", hf.read.files(str(rows)), schema="ts timestamp, key bigint, value bigint")

    @made.operator(over="stream", mode="update")
    def total(rows):
        return rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))

    made.sink("total", hf.write.sqlite(str(folder / "out.db"), "total", keys=["key"]))
    return made


def content(folder: Path) -> list:
    with sqlite3.connect(folder / "out.db") as connection:
        return connection.execute("select * from total order by key").fetchall()


def test_spark_state_comes_back_from_a_base_older_than_its_snapshots(busy, rows, tmp_path, monkeypatch):
    """Spark looks for the snapshot its last lineage begins with, and that one was never shipped."""
    pinned, restored = [], []
    pin, unpack = statefiles.pin_spark, containers.unpack
    monkeypatch.setattr(statefiles, "pin_spark", lambda *given: pinned.append(pin(*given)) or pinned[-1])
    monkeypatch.setattr(containers, "unpack", lambda *given: restored.append(unpack(*given)) or restored[-1])
    for name in ("calm", "hurt"):
        (tmp_path / name).mkdir()
    totals(tmp_path / "calm", rows).run(state=tmp_path / "calm" / "state", spark=busy)

    process = totals(tmp_path / "hurt", rows, hosts=("h1", "h2"))
    process.protect(hf.ecoc(hf.frames(1)))
    lost = [Fault("lose host", "total", frame, "state committed", at="h1") for frame in (17, 26)]
    hosted.run(tmp_path / "hurt", busy, process, *lost)

    assert content(tmp_path / "hurt") == content(tmp_path / "calm")
    made = {version_of(name)[0] for each in pinned for name in each.files if name.endswith(".zip")}
    assert len(restored) == 2
    for each in restored:
        bases = {version_of(name)[0] for name in each.files if name.endswith(".zip")}
        newest = max(version_of(name)[0] for name in each.files if name.endswith(".changelog"))
        assert any(max(bases, default=0) < version < newest for version in made), (
            "Spark made no snapshot since the base"
        )
