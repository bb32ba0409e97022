"""The same rows in another order of the file are the same frames: what ties is decided by values, not by places.

Two runs: one file as it was written, and the rows of every frame shuffled, in two files, by plans of two chunks where
a plan may have them. Every frame of every stream has the same checksum.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Window
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.engine.check.types import infer
from holdfast.engine.unit import query as engine_unit
from holdfast.graph.options import AGGREGATES
from holdfast.testing.runs import KeepingWriter

SCHEMA = "ts timestamp, zone int, name string, v bigint, x double, y float, z double, d decimal(12,2), tags array<int>"
SECONDS, PER_SECOND = 3, 40


def rows() -> pa.Table:
    """Few times, few values: nearly everything ties. Sums of z differ with the order of addition."""
    random = np.random.default_rng(5)
    count = SECONDS * PER_SECOND
    second = np.repeat(np.arange(SECONDS), PER_SECOND)
    x = random.choice([0.0, -0.0, 0.1, 0.2, 0.3, 1e16, -1e16, np.nan, 3.3], count)
    return pa.table(
        {
            "ts": pa.array(second * 1_000_000 + random.integers(0, 3, count) * 1000, pa.timestamp("us", tz="UTC")),
            "zone": pa.array(random.integers(0, 3, count), pa.int32()),
            "name": pa.array(random.choice(["a", "b", "c", None], count).tolist()),
            "v": pa.array(random.integers(0, 4, count)),
            "x": pa.array(x, mask=random.random(count) < 0.1),
            "y": pa.array(random.choice([0.0, -0.0, 1.5], count).astype("float32")),
            "z": pa.array(random.choice([0.1, 0.2, 0.3, 1e16, -1e16, 3.3], count)),
            "d": pa.array(random.integers(0, 5, count)).cast(pa.decimal128(20, 0)).cast(pa.decimal128(12, 2)),
            "tags": pa.array([[int(each)] for each in random.integers(0, 3, count)], pa.list_(pa.int32())),
        }
    )


def shuffled(table: pa.Table) -> pa.Table:
    """Another order within every second."""
    random = np.random.default_rng(6)
    order = [second * PER_SECOND + random.permutation(PER_SECOND) for second in range(SECONDS)]
    return table.take(pa.array(np.concatenate(order)))


def in_window(probes, function, *by):
    return probes.withColumn("r", function.over(Window.partitionBy("zone").orderBy(*by)))


def named_by_pandas(parts):
    """Looks at the order of rows, which no plan shows."""
    for part in parts:
        yield part.assign(nth=range(len(part)))[["zone", "v", "nth"]]


def totals(rows):
    return rows.assign(z=rows["z"].cumsum())[["zone", "z"]]


OWN = {
    "max_by": lambda probes: probes.groupBy("zone").agg(F.max_by("name", "v").alias("name"), F.min_by("x", "ts").alias("x")),
    "row_number": lambda probes: in_window(probes, F.row_number(), "v").where("r = 1"),
    "lagged": lambda probes: in_window(probes, F.lag("v"), "ts"),
    "first_of_window": lambda probes: in_window(probes, F.first("name"), "ts"),
    "running_sum": lambda probes: in_window(probes, F.sum("z"), "ts"),
    "top": lambda probes: probes.orderBy(F.desc("v")).limit(3),
    "listed": lambda probes: probes.groupBy("zone").agg(F.expr("listagg(name, ',') within group (order by v) as names")),
    "by_pandas": lambda probes: probes.select("zone", "v").mapInPandas(named_by_pandas, "zone int, v bigint, nth bigint"),
    "grouped_by_pandas": lambda probes: probes.select("zone", "z").groupBy("zone").applyInPandas(totals, "zone int, z double"),
    "percentile": lambda probes: probes.groupBy("zone").agg(F.percentile_approx("x", 0.5).alias("x")),
}  # fmt: skip
EXACT = ("v", "d")
ALL = {
    f"{function}_{column}": f"{function}({column})"
    for function in AGGREGATES
    for column in ("v", "d", "x", "y", "name", "tags")
    if (column in EXACT and not function.startswith(("var", "std")))
    or (column in ("x", "y") and function in ("min", "max", "first", "last", "count", "count_distinct"))
    or function in ("first", "last", "count")
}
SOME = {name: ALL[name] for name in ("sum_v", "avg_d", "min_y", "max_x", "first_name", "last_tags", "count_distinct_y")}
# Sums of float and double: in which order they are added up is seen in their last digits.
FLOATS = {
    f"{function}_z": f"{function}(z)" for function in AGGREGATES if function.startswith(("sum", "avg", "var", "std"))
}
WINDOWS = {
    "running": {},
    "tumbling": {"window": "2 seconds"},
    "sliding": {"window": "2 seconds", "every": "1 second"},
    "sessions": {"session": "500 ms"},
    "counted": {"window": hf.rows(7), "every": hf.rows(3)},
}


def frames(folder, spark, tables, **settings) -> dict[str, dict[int, str]]:
    """stream -> frame -> checksum"""
    folder.mkdir()
    for at, table in enumerate(tables):
        pq.write_table(table, folder / f"{at}.parquet")
    process = hf.StreamProcess("order", frame="1 second", time="ts", state=str(folder / "state"))
    process.source("probes", hf.read.files(str(folder / "*.parquet")), schema=SCHEMA)

    @process.operator(outputs=list(OWN))  # in one unit: a plan each would take its time
    def own(probes):
        return {name: function(probes) for name, function in OWN.items()}

    @process.operator
    def asked(probes):
        """Of the first row that comes, while it plans."""
        least = max((row.v for row in probes.take(1)), default=0)
        return probes.where(F.col("v") >= least).select("ts", "v")

    @process.operator
    def by_rdd(probes):
        numbered = probes.select("zone", "v").rdd.zipWithIndex().map(lambda each: (*each[0], each[1]))
        return probes.sparkSession.createDataFrame(numbered, "zone int, v bigint, nth bigint")

    @process.operator(over="stream")
    def streamed(probes):
        return probes.groupBy("ts", "zone").agg(F.sum("d").alias("d"), F.max_by("name", "v").alias("name"))

    @process.keyed("zone", state="x double", emits="zone int, x double, name string")
    def keyed(state, probes):
        sums = probes.groupby("zone").agg(x=("z", "sum"), name=("name", "last")).reset_index()
        return sums[["zone", "x"]], sums

    for name, options in WINDOWS.items():
        process.aggregate(name, of="probes", by="zone", emits=ALL if name == "running" else SOME, **options)
    process.aggregate("floats", of="probes", by="zone", emits=FLOATS)
    process.join(
        "joined", left="probes", right="probes", on=["zone", "v"], within="1 ms", emits=["zone", "v", "x", "x_right"]
    )
    streams = [*(f"own.{name}" for name in OWN), *WINDOWS, "floats", "asked", "by_rdd", "streamed", "keyed", "joined"]
    writers = {stream: KeepingWriter() for stream in streams}
    for stream, writer in writers.items():
        process.sink(stream, writer)
    process.run(spark=spark)
    return {
        stream: {record.n: record.checksum for record, table in writer.kept.values() if table.num_rows}
        for stream, writer in writers.items()
    }


def test_the_same_rows_in_another_order_of_the_file_are_the_same_frames(spark, tmp_path, monkeypatch):
    whole = rows()
    as_written = frames(tmp_path / "one", spark, [whole])
    assert all(as_written.values()), "nothing to compare"
    monkeypatch.setattr(engine_unit, "_WIDE_ROWS", 10)
    other, cut = shuffled(whole), PER_SECOND + 13
    in_other_order = frames(tmp_path / "two", spark, [other.slice(0, cut), other.slice(cut)])
    differing = [stream for stream, found in in_other_order.items() if found != as_written[stream]]
    assert differing == ["floats"]  # as docs/platforms-and-limits.md says


def test_what_ties_gets_one_chunk(spark):
    """Two chunks of a frame meet in an order that nobody promises."""
    process = hf.StreamProcess("order", frame="1 second", time="ts")
    process.source("probes", hf.read.files("*.parquet"), schema=SCHEMA)

    def ranked(probes):
        return in_window(probes, F.rank(), "v")

    def narrow(probes):
        return probes.where("v > 1")

    def most(probes):
        return probes.groupBy("zone").agg(F.max("v").alias("v"), F.count("*").alias("n"))

    def asks(probes):
        return probes.where("v > 1") if probes.count() else probes

    def by_rdd(probes):
        return probes.sparkSession.createDataFrame(probes.select("v").rdd, "v bigint")

    def adds(probes):
        return probes.groupBy("zone").agg(F.sum("z").alias("z"))

    own = [
        *OWN.items(),
        ("adds", adds),
        ("asks", asks),
        ("by_rdd", by_rdd),
        ("ranked", ranked),
        ("narrow", narrow),
        ("most", most),
    ]
    for name, function in own:
        function.__name__ = name
        process.operator(function)
        process.sink(name, hf.write.callback(lambda table, n: None))
    _, findings, pinned = infer(process.graph(), spark)
    assert [finding for finding in findings if not finding.warning] == []
    assert pinned == dict.fromkeys([*OWN, "asks", "by_rdd"], True) | {"adds": False}
