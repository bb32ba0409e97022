"""Make the class archive: run a small stream process once, and let its JVM write down what it loaded.

What is not loaded here is not in the archive and is loaded from the jars, as without
one. So the process has what most have: a frame operator, a keyed one, one with Spark's
state, rows that come back to the driver, and sinks. It runs in a temporary folder.

The JVM writes the archive when it ends, and where it stays: one that builds on a base
names it by its path. It counts as there once the record of its files lies beside them,
which is written if the JVM ended well. One process makes it at a time; who comes second
finds it made. Driven by `holdfast doctor --prepare`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from holdfast.atomic import sync_file, write_whole
from holdfast.declare.process import StreamProcess
from holdfast.engine.run.run import start_graph
from holdfast.engine.session.class_archive import MADE, ClassArchive, class_archive
from holdfast.engine.session.java import Java, cache_dir, find_java
from holdfast.engine.session.session import close_session, open_session
from holdfast.errors import EnvironmentRefused
from holdfast.sinks import write
from holdfast.sources import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Prepared", "prepare_classes"]

# The dump takes five seconds here; the time is for a machine ten times slower and loaded.
DUMP_SECONDS = 300
ROWS, FRAMES = 60, 6
BEGIN_US = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """What came of it. Without an archive sessions open as before, only slower."""

    archive: ClassArchive
    made: bool
    seconds: float = 0.0
    reason: str = ""  # why there is none


def prepare_classes() -> Prepared:
    """Make the archive for this Java and this Spark, unless a whole one is there."""
    java, cache = find_java(), cache_dir()
    archive = class_archive(java, cache)
    begin = time.perf_counter()
    with _alone(cache):
        if archive.is_whole():
            return Prepared(archive, made=False)
        shutil.rmtree(archive.folder, ignore_errors=True)
        archive.folder.mkdir(parents=True)
        reason = _dump(java, archive)
        if reason:
            shutil.rmtree(archive.folder, ignore_errors=True)
            return Prepared(archive, made=False, seconds=time.perf_counter() - begin, reason=reason)
        _declare_whole(archive)
        for folder in archive.earlier():
            shutil.rmtree(folder, ignore_errors=True)
    return Prepared(archive, made=True, seconds=time.perf_counter() - begin)


@contextlib.contextmanager
def _alone(cache: Path) -> Iterator[None]:
    with open(cache / "classes.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _dump(java: Java, archive: ClassArchive) -> str:
    """Write the archive's files; the reason, if this Java does not write them."""
    options = [f"-XX:ArchiveClassesAtExit={archive.classes}", "-Xlog:cds*=off"]
    if archive.base is not None:
        dump = [str(java.home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={archive.base}"]
        answer = subprocess.run(dump, capture_output=True, text=True, errors="replace")
        if answer.returncode or not archive.base.exists():
            said = (answer.stderr or answer.stdout).strip().splitlines()
            return f"{java} has no archive of its own classes and makes none: {said[-1] if said else 'no answer'}"
        options.append(f"-XX:SharedArchiveFile={archive.base}")
    with tempfile.TemporaryDirectory(prefix="holdfast-prepare-") as folder:
        conf = {"spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in options)}
        try:
            session = open_session(folder, conf=conf)
        except EnvironmentRefused as error:
            return f"a session that writes one did not start: {error.why}"
        jvm = session.sparkContext._gateway.proc
        try:
            _work(session, Path(folder))
        finally:
            close_session(session, exit_seconds=DUMP_SECONDS)
    if jvm.returncode or not archive.classes.exists():
        return f"{java} wrote no archive when it ended (exit code {jvm.returncode})"
    return ""


def _declare_whole(archive: ClassArchive) -> None:
    """The record comes last, when the files are on disk: a power cut leaves no archive with holes."""
    for path in archive.files:
        sync_file(path)
    write_whole(archive.folder / MADE, json.dumps(archive.look()), sync=True)


def _work(session: SparkSession, folder: Path) -> None:
    at = [BEGIN_US + row * FRAMES * 1_000_000 // ROWS for row in range(ROWS)]
    readings = {"ts": pa.array(at, pa.timestamp("us", "UTC")), "zone": [row % 2 for row in range(ROWS)],
                "celsius": [float(row) for row in range(ROWS)]}  # fmt: skip
    (folder / "readings").mkdir()
    pq.write_table(pa.table(readings), folder / "readings" / "0.parquet")
    with start_graph(_process(folder).graph(), state=folder / "state", spark=session) as run:
        run.wait()


def _process(folder: Path) -> StreamProcess:
    process = StreamProcess("preparing", frame="1 second", time="ts")
    schema = "ts timestamp, zone bigint, celsius double"
    process.source("readings", read.files(str(folder / "readings" / "*.parquet")), schema=schema)
    process.operator(over="frame")(warm)
    process.keyed("zone", state="seen bigint", emits="ts timestamp, zone bigint, seen bigint")(counted)
    process.operator(over="stream", mode="append")(per_window)
    process.sink("warm", write.foreach_batch(collect))
    process.sink("counted", write.sqlite(folder / "counted.db", "counted"))
    process.sink("per_window", write.parquet(folder / "per_window"))
    return process


def warm(readings: DataFrame) -> DataFrame:
    return readings.where("celsius > 5")


def counted(state: pd.DataFrame, warm: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    x = warm.merge(state, on="zone", how="left")
    x["seen"] = (x.groupby("zone").cumcount() + 1 + x.seen.fillna(0)).astype("int64")
    return x.groupby("zone", as_index=False).agg(seen=("seen", "last")), x[["ts", "zone", "seen"]]


def per_window(counted: DataFrame) -> DataFrame:
    per = counted.groupBy(F.window("ts", "2 seconds"), "zone").agg(F.count("*").alias("n"))
    return per.select(F.col("window.start").alias("ts"), "zone", "n")


def collect(df: DataFrame, batch_id: int) -> None:
    df.collect()
