"""Scenarios the design was reviewed against: silent ports, fan-outs, full queues and disks, late rows.

Each run is small; what it is compared with is another run, or the rows themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.engine.observe.status import Status
from holdfast.engine.run.run import Run, start_graph
from holdfast.errors import HoldfastError, ProcessRefused
from holdfast.journals.journal import Journal
from holdfast.testing.runs import KeepingWriter, compare, run_frames
from tests.spark.processes import SCHEMA, readings
from tests.spark.test_same_frames import lose_last_entry

# A run that hangs must fail, not stop the suite; nothing here takes a tenth of it.
PATIENCE_S = 120


@dataclass
class Seen:
    """What a run reports about itself; `wait_for` returns once it has reported it."""

    statuses: list[Status] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, status: Status) -> None:
        with self.changed:
            self.statuses.append(status)
            self.changed.notify_all()

    def wait_for(self, holds) -> Status:
        with self.changed:
            found = self.changed.wait_for(lambda: next(filter(holds, self.statuses), None), timeout=PATIENCE_S)
        assert found, f"never reported; last: {self.statuses[-1]}"
        return found


@dataclass(frozen=True)
class Gate(KeepingWriter):
    """A sink that stands still at a frame until it is let go."""

    at: int = 1
    open_gate: threading.Event = field(default_factory=threading.Event)

    def write(self, batch):
        if batch[-1][0].n >= self.at and not self.open_gate.wait(timeout=PATIENCE_S):
            raise TimeoutError("the gate was never opened")
        return super().write(batch)


def process(tmp_path: Path, table: pa.Table | None = None, **settings) -> hf.StreamProcess:
    path = tmp_path / "a.parquet"
    if not path.exists():
        pq.write_table(readings(1) if table is None else table, path)
    p = hf.StreamProcess("scenario", frame="1 second", time="ts", **settings)
    p.source("a", hf.read.files(str(path)), schema=SCHEMA)
    return p


def warm_of(p: hf.StreamProcess, **settings) -> None:
    @p.operator(over="frame", **settings)
    def warm(a):
        return a.where("celsius > 60")


def begin(p: hf.StreamProcess, tmp_path: Path, spark, **settings) -> Run:
    return start_graph(p.graph(), state=tmp_path / "state", spark=spark, **settings)


def whole(writer: KeepingWriter) -> pa.Table:
    return pa.concat_tables([table for _, (_, table) in sorted(writer.kept.items())])


def times(*seconds: float) -> pa.Array:
    return pa.array([1_700_000_000_000_000 + int(s * 1e6) for s in seconds], pa.timestamp("us", "UTC"))


def rows_at(*seconds: float) -> pa.Table:
    """One row per moment, in this order; `count` says which."""
    size = len(seconds)
    return pa.table(
        {
            "ts": times(*seconds),
            "zone": pa.array([1] * size, pa.int32()),
            "celsius": pa.array([70.0] * size),
            "count": pa.array(range(size)),
        }
    )


# ---- A1, A7 ----


def test_a_silent_port_and_a_restart_change_no_window(spark):
    """A1: Spark forgets per-port watermarks at a restart; a window came out three frames late, in silence."""
    p = hf.StreamProcess("silent", frame="10 seconds", time="ts")
    for name in ("a", "b"):
        p.source(name, hf.read.files(f"{name}.parquet"), schema=SCHEMA)

    @p.operator(over="stream", mode="append")
    def both(a, b):
        rows = a.unionByName(b).groupBy(F.window("ts", "10 seconds"))
        return rows.agg(F.count("*").alias("n")).select(F.col("window.start").alias("ts"), "n")

    p.sink("both", hf.write.console())
    inputs = {"a": rows_at(0, 50, 51, 52, 61), "b": rows_at(40)}
    straight = run_frames(p, spark=spark, **inputs)
    stopped = run_frames(p, spark=spark, restarts=[1, 5], **inputs)

    compare(straight, stopped, "restarts after frames 1 and 5")
    counted = {
        (ts.value // 10**9) - 1_700_000_000: n for ts, n in zip(*straight.both.to_pandas().values.T, strict=True)
    }
    assert counted == {0: 1, 40: 1, 50: 3, 60: 1}


@pytest.mark.parametrize("branches", ["consumers", "split"])
def test_a_stateful_fan_out_has_one_state(branches, tmp_path, spark):
    """A7: as a union in one query, Spark would keep the state once per branch and write it twice."""
    p = process(tmp_path)

    @p.operator(over="stream", mode="update")
    def total(a):
        return a.groupBy("zone").agg(F.count("*").alias("n"))

    if branches == "consumers":
        p.filter("large", of="total", where="n > 5")
        writers = {stream: KeepingWriter() for stream in ("total", "large")}
    else:
        p.split("parts", of="total", into={"large": "n > 5", "small": "n <= 5"})
        writers = {stream: KeepingWriter() for stream in ("parts.large", "parts.small")}
    for stream, writer in writers.items():
        p.sink(stream, writer)
    with begin(p, tmp_path, spark, until_frame=6) as run:
        run.wait()
        progress = {unit.unit.name: unit.query.lastProgress for unit in run.parts.units if unit.uses_spark_state}
    assert {name: len(each.stateOperators) for name, each in progress.items()} == {"total": 1}
    logs = [path for path in (tmp_path / "state" / "units").rglob("*.changelog") if not path.name.startswith(".")]
    stores = {(path.parent, path.name.split("_")[0]) for path in logs}
    assert len(stores) == len(logs) >= 6
    tables = {stream: whole(writer) for stream, writer in writers.items()}
    assert all(table.num_rows > 0 for table in tables.values())


# ---- sums, and frames that come out differently ----


def hot_frame(rows: int) -> pa.Table:
    """One frame with floats whose sum depends on the order of addition."""
    draw = np.random.default_rng(5)
    return pa.table(
        {
            "ts": pa.array(1_700_000_000_000_000 + np.sort(draw.integers(0, 900_000, rows)), pa.timestamp("us", "UTC")),
            "zone": pa.array(draw.integers(0, 3, rows), pa.int32()),
            "celsius": pa.array(draw.normal(0, 1, rows) * 10.0 ** draw.integers(-12, 12, rows)),
            "count": pa.array(draw.integers(0, 9, rows)),
        }
    )


def sums(folder: Path, writers: dict[str, KeepingWriter], **settings) -> hf.StreamProcess:
    p = hf.StreamProcess("sums", frame="1 second", time="ts", **settings)
    p.source("a", hf.read.files(str(folder)), schema=SCHEMA)

    def floats(a):
        return a.groupBy("zone").agg(F.sum("celsius").alias("total"))

    def exact(a):
        return a.groupBy("zone").agg(F.sum("count").alias("total"))

    for function in (floats, exact):
        if function.__name__ in writers:
            p.operator(function, over="frame")
            p.sink(function.__name__, writers[function.__name__])
    return p


def test_a_sum_does_not_depend_on_the_chunks_it_is_read_in(tmp_path, spark):
    """A6: three source partitions gave three sums. Floats are pinned to one chunk, or refused; exact sums are not."""
    table = hot_frame(60_000)  # so many that a frame is read in chunks, if it may be
    cuts = {"one": [0, 60_000], "three": [0, 7_000, 30_000, 60_000]}
    for name, cut in cuts.items():
        (tmp_path / name).mkdir()
        for at, (start, stop) in enumerate(zip(cut, cut[1:], strict=False)):
            pq.write_table(table.slice(start, stop - start), tmp_path / name / f"{at}.parquet", row_group_size=9_000)

    found = {}
    for files, chunks, streams in (
        ("one", None, ("floats", "exact")),
        ("three", None, ("floats",)),
        ("three", 4, ("exact",)),
    ):
        writers = {stream: KeepingWriter() for stream in streams}
        graph = sums(tmp_path / files, writers, chunks=chunks).graph()
        with start_graph(graph, state=tmp_path / f"state-{files}-{chunks}", spark=spark) as run:
            run.wait()
        found |= {(stream, files, chunks): whole(writer) for stream, writer in writers.items()}
    assert found["floats", "one", None].equals(found["floats", "three", None])
    assert found["exact", "one", None].equals(found["exact", "three", 4])
    with pytest.raises(ProcessRefused) as refused:
        begin(sums(tmp_path / "three", {"floats": KeepingWriter()}, chunks=4), tmp_path, spark)
    assert refused.value.code == "HF-G023"


@pytest.mark.parametrize("found_by", ["queue", "ledger"])
def test_a_frame_sealed_again_with_other_content_stops_the_run(found_by, tmp_path, spark):
    """An operator that reads a file is no function of its frames: after a restart frame 4 would be another one."""
    limit = tmp_path / "limit.txt"
    limit.write_text("60")

    def declared() -> hf.StreamProcess:
        p = process(tmp_path)

        @p.operator(over="frame")
        def warm(a):
            return a.where(F.col("celsius") > float(limit.read_text()))

        last = "warm"
        if found_by == "queue":  # another unit may still need the frame, so it is still there
            p.filter("kept", of="warm", where="true", apart=True)
            last = "kept"
        p.sink(last, hf.write.sqlite(str(tmp_path / "out.sqlite"), "rows"))
        return p

    with begin(declared(), tmp_path, spark, until_frame=4) as run:
        run.wait()
    before = rows_of(tmp_path / "out.sqlite")
    lose_last_entry(tmp_path / "state", 4)
    limit.write_text("20")
    with pytest.raises(HoldfastError) as stopped, begin(declared(), tmp_path, spark) as run:
        run.wait()
    assert (stopped.value.code, stopped.value.exit_code) == ("HF-F001", 5)
    assert "frame 4" in stopped.value.what
    assert run.status().state == "failed"
    assert rows_of(tmp_path / "out.sqlite") == before


def rows_of(database: Path) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute("select * from rows order by 1, 2, 3, 4").fetchall()


def test_an_operator_may_look_at_its_rows_but_not_choose_its_columns_by_them(tmp_path, spark):
    """A plan made with the data of one frame must not be used for the next; its columns cannot change."""
    p = process(tmp_path)

    @p.operator(over="frame")
    def near_top(a):
        top = a.agg(F.max("celsius")).first()[0]  # runs a job while it is planned
        return a.where(F.col("celsius") >= F.lit(top))

    p.sink("near_top", writer := KeepingWriter())
    with begin(p, tmp_path, spark, until_frame=3) as run:
        run.wait()
    rows = readings(1).to_pandas()
    tops = rows.groupby(rows.ts.dt.floor("s")).celsius.max().head(3)
    assert whole(writer)["celsius"].to_pylist() == list(tops)

    q = process(tmp_path)

    @q.operator(over="frame")
    def wider(a):
        return a.withColumn("seen", F.lit(1)) if a.count() else a

    q.sink("wider", KeepingWriter())
    with pytest.raises(HoldfastError) as stopped, start_graph(q.graph(), state=tmp_path / "other", spark=spark) as run:
        run.wait()
    assert (stopped.value.code, stopped.value.exit_code) == ("HF-G027", 5)


# ---- full queues, full disks ----


def test_a_full_queue_holds_upstream_and_says_who_holds_whom(tmp_path, spark):
    """The bound is below one frame: each waits for the other's frame, nobody for ever."""
    p = process(tmp_path, queue=1)
    warm_of(p)

    @p.operator(over="frame", apart=True)
    def again(warm):
        return warm.where("celsius > 60")

    p.sink("again", gate := Gate(at=2))
    seen = Seen()
    with begin(p, tmp_path, spark, on_progress=seen) as run:

        def both_are_held(status: Status) -> bool:
            units = {unit.name: unit for unit in status.units}
            return bool(units) and units["again"].state == units["warm"].state == "HELD"

        units = {unit.name: unit for unit in seen.wait_for(both_are_held).units}
        assert units["again"].why == "held back by sink again: queue again is at its bound"
        assert units["warm"].why == "held back by again: queue warm is at its bound"
        status = run.status()
        assert (status.sinks[0].written, units["again"].processed, units["warm"].processed) == (1, 2, 3)
        assert status.sources[0].sealed == 4  # the source waits for room, too
        gate.open_gate.set()
        run.wait()
    assert run.status().state == "finished"
    straight = readings(1).to_pandas().query("celsius > 60")
    assert whole(gate)["count"].to_pylist() == straight["count"].tolist()


def test_a_disk_nearly_full_holds_the_sources_until_there_is_room(tmp_path, spark, monkeypatch):
    """Held before it is full: Spark could not commit on a full disk, and nothing would ever be freed."""
    monkeypatch.setenv("HOLDFAST_DISK_RESERVE", str(10**18))
    p = process(tmp_path)
    warm_of(p)
    p.sink("warm", writer := KeepingWriter())
    seen = Seen()
    with begin(p, tmp_path, spark, on_progress=seen) as run:
        held = seen.wait_for(lambda status: any(unit.state == "HELD" for unit in status.units))
        assert "disk nearly full" in held.units[0].why
        assert "nothing is lost" in held.units[0].why
        assert (held.frame, held.sources[0].sealed) == (0, 0)
        run.parts.disk.reserve_bytes = 0  # as if somebody had made room
        run.wait()
    assert run.status().state == "finished"
    assert whole(writer).num_rows == len(readings(1).to_pandas().query("celsius > 60"))


def test_a_reserve_that_is_no_number_is_refused(tmp_path, spark, monkeypatch):
    monkeypatch.setenv("HOLDFAST_DISK_RESERVE", "much")
    p = process(tmp_path)
    warm_of(p)
    p.sink("warm", KeepingWriter())
    with pytest.raises(HoldfastError) as refused:
        begin(p, tmp_path, spark)
    assert (refused.value.code, refused.value.exit_code) == ("HF-E006", 2)


# ---- parameters and delays ----


def limited(tmp_path: Path, writer: KeepingWriter) -> hf.StreamProcess:
    p = process(tmp_path, queue=1)
    p.param("limit", 60.0, between=(0, 100))

    @p.operator(over="frame")
    def warm(a, *, limit):
        return a.where(F.col("celsius") > limit)

    p.sink("warm", writer)
    return p


def test_a_parameter_set_while_running_holds_from_the_frame_that_is_said(tmp_path, spark):
    """And is taken from the log after a restart, when frames after it are made again."""
    gate = Gate(at=3)
    seen = Seen()
    run = begin(limited(tmp_path, gate), tmp_path, spark, on_progress=seen)
    with run:
        seen.wait_for(lambda status: any(unit.state == "HELD" for unit in status.units))
        change = run.set(limit=80.0, note="by hand")
        assert change.frame == max(unit.permitted for unit in run.parts.board.units.values()) + 1
        assert run.status().params["limit"]["value"] in (60.0, 80.0)
        with pytest.raises(HoldfastError, match="out of range"):
            run.set(limit=101.0)
        with pytest.raises(HoldfastError, match="did you mean 'limit'"):
            run.set(limt=50.0)
        gate.open_gate.set()
        run.wait(frame=change.frame + 1)
    last = Journal(tmp_path / "state" / "units" / "warm", "commits").last()["n"]
    assert last > change.frame
    lose_last_entry(tmp_path / "state", last - last % 2)  # the last one or two frames are made again
    again = KeepingWriter(kept=gate.kept)
    with begin(limited(tmp_path, again), tmp_path, spark) as run:
        run.wait()
    rows = readings(1).to_pandas()
    frame = (rows.ts - rows.ts.dt.floor("s").iloc[0]).dt.total_seconds() // 1 + 1
    expected = rows[rows.celsius > np.where(frame < change.frame, 60.0, 80.0)]
    assert whole(again)["count"].to_pylist() == expected["count"].tolist()


def test_delays_longer_than_declared_are_reported(tmp_path, spark):
    p = process(tmp_path)
    warm_of(p, delay_max="1 ms")

    @p.operator(over="frame", apart=True, delay_max="1 hour")
    def again(warm):
        return warm

    p.edge("warm", "again", delay_max="1 ms")
    p.sink("again", KeepingWriter())
    with begin(p, tmp_path, spark, until_frame=4) as run:
        run.wait()
        delays = sorted(run.status().delays)
    assert len(delays) == 2, delays
    assert delays[0].startswith("warm -> again.warm took up to ")
    assert delays[1].startswith("warm took up to ")
    assert all("where 1 ms is declared" in sentence for sentence in delays)


# ---- late rows ----

LATE = rows_at(0.1, 1.2, 0.5, 2.3, 1.9, 2.4)  # rows 2 and 4 come after their frame was closed


@pytest.mark.parametrize(
    ("late", "frames"),
    [
        ("admit", [[0], [1, 2], [3, 4, 5]]),
        ("drop", [[0], [1], [3, 5]]),
        ("quarantine", [[0], [1], [3, 5]]),
    ],
)
def test_late_rows_go_where_it_was_declared(late, frames, tmp_path, spark):
    pq.write_table(LATE, tmp_path / "a.parquet")
    p = hf.StreamProcess("late", frame="1 second", time="ts")
    p.source("a", hf.read.files(str(tmp_path / "a.parquet")), schema=SCHEMA, late=late)
    warm_of(p)
    p.sink("warm", writer := KeepingWriter())
    with begin(p, tmp_path, spark) as run:
        run.wait()
    found = [sorted(table["count"].to_pylist()) for _, (_, table) in sorted(writer.kept.items())]
    assert found == [*frames, []]  # and the closing frame
    assert run.status().sources[0].late == 2
    kept = sorted((tmp_path / "state" / "sources" / "a" / "quarantine").glob("*"))
    apart = [pq.read_table(path)["count"].to_pylist() for path in kept]
    assert apart == ([[2], [4]] if late == "quarantine" else [])


def test_late_rows_can_be_an_error(tmp_path, spark):
    """Frames closed before it reach the sink; of those still open nothing is made."""
    pq.write_table(LATE, tmp_path / "a.parquet")
    p = hf.StreamProcess("late", frame="1 second", time="ts")
    p.source("a", hf.read.files(str(tmp_path / "a.parquet")), schema=SCHEMA, late="fail")
    warm_of(p)
    p.sink("warm", writer := KeepingWriter())
    with pytest.raises(HoldfastError) as stopped, begin(p, tmp_path, spark) as run:
        run.wait()
    assert (stopped.value.code, stopped.value.exit_code) == ("HF-F004", 5)
    assert {n: table["count"].to_pylist() for n, (_, table) in writer.kept.items()} == {1: [0]}


# ---- a session of the user's own ----

USERS_OWN = """
import json, os, sys
from holdfast.engine.session.java import find_java
os.environ["JAVA_HOME"] = str(find_java().home)
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "3")
         .config("spark.sql.warehouse.dir", sys.argv[1] + "/warehouse").getOrCreate())
from holdfast.engine.session.session import adopt_session
from holdfast.errors import UnitError
from holdfast.testing.runs import KeepingWriter
from tests.spark.test_scenarios import process, total_of
from pathlib import Path
ours, spark.sparkContext.pythonExec = spark.sparkContext.pythonExec, "/somewhere/else/python3"
elsewhere = adopt_session(spark)
spark.sparkContext.pythonExec = ours
p = process(Path(sys.argv[1]))
total_of(p)
p.sink("total", writer := KeepingWriter())
for attempt in range(3):
    try:
        with p.start(spark=spark, state=sys.argv[1] + "/state", until_frame=3) as run:
            run.wait()
        break
    except UnitError:  # Spark gives a Python worker ten seconds to start, on a busy machine too
        continue
# To a file: a JVM that ends badly after all is done writes to the same terminal.
Path(sys.argv[1], "told.json").write_text(json.dumps({
    "notes": run.notes,
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "checksums": {n: record.checksum for n, (record, _) in writer.kept.items()},
    "still_there": spark.range(3).count(),
    "elsewhere": elsewhere,
}))
spark.stop()
"""


def total_of(p: hf.StreamProcess) -> None:
    @p.operator(over="stream", mode="update")
    def total(a):
        return a.groupBy("zone").agg(F.sum("count").alias("total"))


def test_a_users_own_session_gives_the_same_frames_and_is_told_what_it_lacks(tmp_path, spark):
    """Slower is said, unsafe is said, and the session is as it was afterwards."""
    made = subprocess.run(
        [sys.executable, "-c", USERS_OWN, str(tmp_path)],
        # A name of its own: that of the machine need not be known to anybody, and plain Spark looks it up.
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1", "SPARK_LOCAL_HOSTNAME": "localhost"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert made.returncode == 0, made.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    notes = "\n".join(told["notes"])
    assert "unsafe: master local[2] never retries a task" in notes
    assert "slower: " in notes
    assert "(spark.python.daemon.module)" in notes
    assert "not this Python" not in notes
    assert "unsafe: Spark's workers run /somewhere/else/python3, not this Python" in "\n".join(told["elsewhere"])
    assert (told["partitions"], told["still_there"]) == ("3", 3)
    p = process(tmp_path)
    total_of(p)
    p.sink("total", writer := KeepingWriter())
    with start_graph(p.graph(), state=tmp_path / "ours", spark=spark, until_frame=3) as run:
        run.wait()
    assert told["checksums"] == {str(n): record.checksum for n, (record, _) in writer.kept.items()}
    assert run.notes == []
