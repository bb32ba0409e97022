"""The oracle of `verify`: agrees with a right engine, finds a wrong one, and finds what functions remember."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.declare.loading import load
from holdfast.engine.run.run import start_graph
from holdfast.engine.unit.building import Plans
from holdfast.faults.keeping import frames_in, output_of, rows_in
from holdfast.faults.trial import kept_folders, redirected, with_all_kept
from holdfast.graph.model import Graph
from holdfast.levels.measuring import measure
from holdfast.oracle.asking import Asked, told
from holdfast.oracle.recomputing import recompute
from holdfast.verify.verifying import Bench

SCHEMA = "ts timestamp, zone int, celsius double, count bigint, name string"


def readings(seed: int, seconds: int = 6, silent: tuple[int, ...] = (3,)) -> pa.Table:
    """About ten rows a second; one in four comes late, some without a zone, a value or a name, some at the same time."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.integers(0, seconds * 1_000_000, seconds * 10))
    times = times[~np.isin(times // 1_000_000, silent)]
    size = len(times)
    times = times - np.where(draw.random(size) < 0.25, draw.integers(0, 3_000_000, size), 0)
    times = np.where(draw.random(size) < 0.1, times // 500_000 * 500_000, times)

    def some(values: np.ndarray) -> list:
        return [None if gone else value for value, gone in zip(values.tolist(), draw.random(size) < 0.1, strict=True)]

    columns = {
        "ts": pa.array(1_700_000_000_000_000 + times, pa.timestamp("us", "UTC")),
        "zone": pa.array(some(draw.integers(0, 4, size)), pa.int32()),
        "celsius": pa.array(some(draw.normal(70, 15, size)), pa.float64()),
        "count": pa.array(some(draw.integers(0, 1000, size)), pa.int64()),
        "name": pa.array(some(np.array(list("abcdef"))[draw.integers(0, 6, size)])),
    }
    return pa.table(columns)


def every_kind(folder: Path) -> hf.StreamProcess:
    p = hf.StreamProcess("every_kind", frame="1 second", time="ts", grace="0 seconds")
    for at, source in enumerate("ab"):
        pq.write_table(readings(at + 1), folder / f"{source}.parquet")
        p.source(source, hf.read.files(str(folder / f"{source}.parquet")), schema=SCHEMA, late="admit")
    p.param("limit", 75.0, per="zone")
    sums = {
        "n": "count(*)",
        "total": "sum(count)",
        "mean": "avg(celsius)",
        "spread": "stddev_samp(celsius)",
        "low": "min(name)",
    }
    picks = {"one": "first(name)", "other": "last(count)", "names": "count_distinct(name)"}
    bounds = {"begin": "window_start", "end": "window_end"}
    p.aggregate("running", of="a", by="zone", emits={**sums, **picks})
    p.aggregate(
        "sliding", of="a", window="4 seconds", every="2 seconds", lateness="1 second", emits={**sums, **picks, **bounds}
    )
    p.aggregate("session", of="a", by="zone", session="400 ms", lateness="500 ms", emits={**sums, **bounds})
    p.aggregate("rows", of="a", by=["zone", "name"], window=hf.rows(5), every=hf.rows(3), emits={**sums, **bounds})
    p.join("pairs", left="a", right="b", on="zone", within="700 ms", how="left")
    p.union("both", of=["a", "b"])
    p.map("short", of="both", select=["ts", "zone", "celsius"])
    p.aggregate("means", of="short", by="zone", window="2 seconds", emits={"mean": "avg(celsius)"})
    p.filter("warm", of="means", where="mean > 65")

    @p.operator(over="frame", inputs={"last": hf.feedback("heat", schema="zone int, mean double")})
    def damped(a, last, *, limit):
        celsius = F.when(F.col("mean") > limit, F.col("celsius") / 2).otherwise(F.col("celsius"))
        return a.join(last, "zone", "left").select("ts", "zone", celsius.alias("celsius"))

    p.aggregate("heat", of="damped", by="zone", window="3 seconds", every="1 second", emits={"mean": "avg(celsius)"})

    @p.keyed("zone", state="seen bigint, wake timestamp", emits="zone int, seen bigint, until timestamp")
    def counted(state, a, *, boundary):
        more = a.groupby("zone", dropna=False).size().rename("more").reset_index()
        both = state[["zone", "seen"]].merge(more, on="zone", how="outer").fillna({"seen": 0, "more": 0})
        both = both.assign(seen=(both.seen + both.more).astype("int64"), wake=boundary + pd.Timedelta("2s"))
        both = both[both.seen < 12]
        return both[["zone", "seen", "wake"]], both[["zone", "seen"]].assign(until=boundary)

    @p.operator(over="stream", mode="update")
    def spark_state(a):
        return a.groupBy("zone").agg(F.count("*").alias("n"))

    for stream in ("running", "sliding", "session", "rows", "pairs", "warm", "damped", "counted", "spark_state"):
        p.sink(stream, hf.write.console())
    return p


def ran(graph: Graph, folder: Path, spark) -> Path:
    """As the undisturbed run of `verify` is run."""
    folder.mkdir()
    kept = with_all_kept(redirected(graph, folder), folder)
    with start_graph(kept, state=folder / "state", rate="fast", spark=spark) as run:
        run.wait()
    return folder


def tampered(folder: Path) -> int:
    """Take a row out of the first frame that has one, as a wrong engine might; the number of that frame."""
    n, frame = next((n, frame) for n, frame in sorted(frames_in(folder).items()) if frame.rows)
    with pa.OSFile(str(frame.path)) as file:
        table = pa.ipc.open_file(file).read_all()
    with pa.OSFile(str(frame.path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.slice(1))
    return n


def test_every_kind_is_computed_to_the_same_frames_and_a_row_that_lacks_is_found(spark, tmp_path):
    """With late rows, silent frames, nulls and closing frames. One row of one frame of each output is taken away first:
    exactly that is found, so all else was compared and agreed."""
    graph = every_kind(tmp_path).graph()
    folder = ran(graph, tmp_path / "ideal", spark)
    broken = {sink.name: tampered(folder / "sinks" / sink.name) for sink in graph.sinks}
    found = {
        each.output or f"between: {each.stream}": each for each in recompute(graph, folder, spark, count=None, seed=0)
    }

    assert "there is no second way" in found["spark_state"].left_out and not found["spark_state"].frames
    for name, each in found.items():
        if name == "spark_state":
            continue
        assert len(each.frames) == each.of >= 7, name
        wrong = [(differing.n, differing.missing, differing.extra) for differing in each.differs]
        assert wrong == ([(broken[name], 1, 0)] if name in broken else []), name
    assert {name for name in found if name.startswith("between")} == {"between: heat"}


# ---- a wrong engine ----


@pytest.fixture
def forgets_nothing(monkeypatch, spark):
    """The defect that gave this oracle its reason: a plan that has cached its rows is used for the frames after it."""
    made = Plans.__init__

    def unwatched(self, plan):
        made(self, plan)
        self._is_users = False

    monkeypatch.setattr(Plans, "__init__", unwatched)
    yield
    spark.catalog.clearCache()


def kiln(folder: Path) -> hf.StreamProcess:
    p = hf.StreamProcess("kiln", frame="1 second", time="ts")
    times = pa.array([second * 1_000_000 + at for second in range(4) for at in (1, 2)], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"ts": times, "v": pa.array(range(8), pa.int64())}), folder / "probes.parquet")
    p.source("probes", hf.read.files(str(folder / "probes.parquet")), schema="ts timestamp, v long")

    @p.operator(over="frame")
    def f(probes):
        return probes.select("ts", "v").persist()

    @p.operator(over="frame")
    def g(probes):
        return probes.select("ts", "v")

    p.sink("f", hf.write.console(), promise=hf.lossless)
    p.sink("g", hf.write.console(), promise=hf.lossless)
    return p


def test_an_engine_that_answers_every_frame_with_the_first_agrees_with_itself_and_not_with_the_oracle(
    spark, tmp_path, forgets_nothing
):
    graph = kiln(tmp_path).graph()
    one, other = (ran(graph, tmp_path / name, spark) for name in ("ideal", "faulty"))
    outputs = [[output_of(sink.name, folder / "sinks" / sink.name) for sink in graph.sinks] for folder in (one, other)]
    values = {n: rows_in(frame.path)["v"].to_pylist() for n, frame in frames_in(one / "sinks" / "f").items()}

    assert values == {n: [0, 1] for n in range(1, 6)}  # it is as wrong as it was
    assert all(not (each.lost or each.wrong or each.duplicates or each.missing) for each in measure(*outputs))
    f, g = recompute(graph, one, spark, count=8, seed=0)
    assert [each.n for each in f.differs] == [2, 3, 4, 5]
    assert (g.differs, len(g.frames)) == ((), 5)
    [error] = told([f, g])
    assert "frame 5 of output 'f' is not what its inputs give" in str(error) and "frames 2-5" in str(error)
    assert "unit 'f', operator 'f'" in str(error) and "too many: 1970-01-01 00:00:00.000001+00:00, 0" in str(error)


# ---- functions that remember ----

SHELF = """
import functools
from pathlib import Path
FILE = Path(__file__).with_name("seen")

class Table:
    # Two of them are the same if their columns are: what was looked up for one is taken for the other.
    def __init__(self, df):
        self.df = df
    def __eq__(self, other):
        return self.df.columns == other.df.columns
    def __hash__(self):
        return hash(tuple(self.df.columns))

@functools.lru_cache
def _smallest(table):
    found = table.df.agg({"v": "min"}).first()[0]
    if found is None:
        raise LookupError
    return found

def smallest(df):
    try:
        return _smallest(Table(df))
    except LookupError:
        return 0

def counted(rows):
    before = int(FILE.read_text()) if FILE.exists() else 0
    FILE.write_text(str(before + rows))
    return before
"""
MEMORY = """
import shelf_of_a_library as shelf
import holdfast as hf
from pyspark.sql import functions as F

p = hf.StreamProcess("memory", frame="1 second", time="ts")
p.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, v long")

@p.operator(over="frame")
def cached(probes):
    return probes.withColumn("v", F.col("v") - F.lit(shelf.smallest(probes)))

@p.operator(over="frame")
def filed(probes):
    return probes.withColumn("v", F.col("v") + F.lit(shelf.counted(probes.count())))

@p.operator(over="frame")
def mended(probes):
    return probes.crossJoin(probes.agg(F.min("v").alias("least"))).select("ts", (F.col("v") - F.col("least")).alias("v"))

for stream in ("cached", "filed", "mended"):
    p.sink(stream, hf.write.console(), promise=hf.lossless)
"""


def test_what_a_library_or_a_file_remembers_is_found_and_the_same_without_memory_agrees(spark, tmp_path, monkeypatch):
    """HF-U061: both runs remember alike. The oracle is another os process, and takes the last frame first."""
    kiln(tmp_path)
    (tmp_path / "shelf_of_a_library.py").write_text(SHELF)
    (tmp_path / "memory.py").write_text(MEMORY)
    monkeypatch.setattr(sys, "path", [*sys.path])
    graph = load(tmp_path / "memory.py").graph()
    outputs = []
    for name in ("ideal", "faulty"):
        folder = ran(graph, tmp_path / name, spark)
        outputs.append([output_of(sink.name, folder / "sinks" / sink.name) for sink in graph.sinks])
        (tmp_path / "seen").unlink()
    sys.modules.pop("shelf_of_a_library")
    bench = Bench(graph, str(tmp_path / "memory.py"), tmp_path)
    found = {
        each.output: each for each in bench.recompute(SimpleNamespace(folder=tmp_path / "ideal"), Asked(2), seed=0)
    }

    assert all(not (each.lost or each.wrong or each.duplicates or each.missing) for each in measure(*outputs))
    assert {name: bool(each.differs) for name, each in found.items()} == {
        "cached": True,
        "filed": True,
        "mended": False,
    }
    assert found["mended"].frames == (1, 4) and found["mended"].rows == 4
    cached, filed = told(found.values())
    assert (cached.code, filed.code) == ("HF-U061", "HF-U061")
    assert "frame 4 of output 'cached'" in cached.what and "lacking: 1970-01-01 00:00:03.000001+00:00, 0" in cached.why
    assert "too many: 1970-01-01 00:00:03.000001+00:00, 6" in cached.why


# ---- what it says of what it cannot do ----


def test_a_function_that_raises_there_and_a_frame_that_is_missing_are_told(spark, tmp_path):
    p = hf.StreamProcess("raising", frame="1 second", time="ts")
    kiln(tmp_path)
    p.source("probes", hf.read.files(str(tmp_path / "probes.parquet")), schema="ts timestamp, v long")
    allowed = tmp_path / "allowed"
    allowed.touch()

    @p.operator(over="frame")
    def f(probes):
        return (
            probes
            if allowed.exists()
            else probes.select(F.raise_error(F.lit("not any more")).cast("long").alias("v"), "ts")
        )

    p.sink("f", hf.write.console())
    graph = replace(p.graph(), values="hide")
    folder = ran(p.graph(), tmp_path / "ideal", spark)
    allowed.unlink()
    (next(iter(kept_folders(graph, folder)["f"].values())) / "00000003.0.frame").unlink()
    [found] = recompute(p.graph(), folder, spark, count=None, seed=0)

    assert [(each.n, each.came) for each in found.differs] == [(1, True), (2, True), (3, False), (4, True)]
    assert "not any more" in found.differs[0].raised
    assert found.frames == (5,)  # it has no rows to raise on
    [hidden] = recompute(graph, folder, spark, count=2, seed=0)
    assert "not any more" not in str(hidden.to_json())
