"""What Spark refuses only at run time, `check` refuses before; and the remedy that it names is taken.

Every case is held against Spark itself: the query is started, and must fail there. What is refused without need is as
bad as what is let through, so each remedy must pass, and so must ordinary streams.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.engine.check.types import infer
from holdfast.engine.unit.plan import bounded
from holdfast.engine.unit.worker import BOUNDARY
from holdfast.errors import Finding

SCHEMA = "ts timestamp, zone int, celsius double"
BY_TIME = "b.ts between a.ts and a.ts + interval 10 seconds and a.zone = b.zone"


def counts(key, pdfs, state):
    yield pd.DataFrame({"n": [sum(map(len, pdfs))]})


def with_state(probes: DataFrame, mode: str) -> DataFrame:
    return probes.groupBy("zone").applyInPandasWithState(counts, "n bigint", "n bigint", mode, "NoTimeout")


def mean_of(values: pd.Series) -> float:
    return float(values.mean())


def by_window(probes: DataFrame) -> DataFrame:
    return probes.groupBy(F.window("ts", "2 seconds"), "zone").count()


def table(probes: DataFrame) -> DataFrame:
    return probes.sparkSession.range(3).select(F.col("id").cast("int").alias("zone"), F.col("id").alias("row"))


def joined(probes: DataFrame, on: object, how: str) -> DataFrame:
    return probes.alias("a").join(probes.alias("b"), on, how).select("a.zone")


# name -> refused, its mode, what `do` says, the remedy, its mode ("frame": over="frame")
STREAMS: dict[str, tuple[Callable[[DataFrame], DataFrame], str, str, Callable[[DataFrame], DataFrame], str]] = {
    "sort": (lambda p: p.orderBy("zone"), "append", "leave the sort out", lambda p: p, "append"),
    "sort_within": (lambda p: p.sortWithinPartitions("zone"), "append", "over='frame'", lambda p: p.orderBy("zone"), "frame"),
    "offset": (lambda p: p.offset(1).select("zone"), "append", "over='frame'", lambda p: p.orderBy("ts", "zone", "celsius").offset(1), "frame"),
    "window_function": (
        lambda p: p.withColumn("r", F.row_number().over(Window.partitionBy("zone").orderBy("ts", "celsius"))), "append",
        "over='frame'",
        lambda p: p.withColumn("r", F.row_number().over(Window.partitionBy("zone").orderBy("ts", "celsius"))), "frame",
    ),
    "group_without_time": (lambda p: p.groupBy("zone").count(), "append", "F.window of the time column", by_window, "append"),
    "group_in_update": (lambda p: p.groupBy("zone").count(), "append", "mode='update'", lambda p: p.groupBy("zone").count(), "update"),
    "time_changed": (
        lambda p: p.withColumn("ts", F.date_trunc("second", "ts")).groupBy(F.window("ts", "2 seconds")).count(), "append",
        "as it came", by_window, "append",
    ),
    "complete_without_group": (lambda p: p.select("zone"), "complete", "leave mode= out", lambda p: p.select("zone"), "append"),
    "two_groups": (
        lambda p: by_window(p).groupBy(F.window("window", "4 seconds")).agg(F.sum("count")), "update",
        "an operator of its own", by_window, "update",
    ),
    "pivot": (
        lambda p: p.groupBy("zone").pivot("zone", [1, 2]).count(), "update", "F.count(F.when(",
        lambda p: p.groupBy("zone").agg(F.count(F.when(F.col("zone") == 1, 1)).alias("on")), "update",
    ),
    "distinct": (
        lambda p: p.groupBy("zone").agg(F.countDistinct("celsius").alias("n")), "update", "F.approx_count_distinct",
        lambda p: p.groupBy("zone").agg(F.approx_count_distinct("celsius").alias("n")), "update",
    ),
    "session_alone": (
        lambda p: p.groupBy(F.session_window("ts", "2 seconds")).count(), "append", "group by a column as well",
        lambda p: p.groupBy("zone", F.session_window("ts", "2 seconds")).count(), "append",
    ),
    "session_in_update": (
        lambda p: p.groupBy("zone", F.session_window("ts", "2 seconds")).count(), "update", "leave mode='update' out",
        lambda p: p.groupBy("zone", F.session_window("ts", "2 seconds")).count(), "append",
    ),
    "outer_without_time": (
        lambda p: joined(p, F.expr("a.zone = b.zone"), "left"), "append", "F.expr('b.ts between a.ts and",
        lambda p: joined(p, F.expr(BY_TIME), "left"), "append",
    ),
    "table_kept": (lambda p: p.join(table(p), "zone", "right"), "append", "how='left'", lambda p: p.join(table(p), "zone", "left"), "append"),
    "both_kept": (lambda p: p.join(table(p), "zone", "full"), "append", "how='left'", lambda p: p.join(table(p), "zone", "left"), "append"),
    "union_with_table": (
        lambda p: p.select("zone").unionAll(table(p).select("zone")), "append", "over='frame'",
        lambda p: p.select("zone").unionAll(table(p).select("zone")), "frame",
    ),
    "intersect": (
        lambda p: p.select("zone").intersect(table(p).select("zone")), "append", "how='left_semi'",
        lambda p: p.select("zone").join(table(p), "zone", "left_semi"), "append",
    ),
    "subtract": (
        lambda p: p.select("zone").exceptAll(table(p).select("zone")), "append", "how='left_anti'",
        lambda p: p.select("zone").join(table(p), "zone", "left_anti"), "append",
    ),
    "no_stream": (lambda p: table(p), "append", "made from the operator's input", lambda p: p, "append"),
    "state_in_update": (lambda p: with_state(p, "update"), "append", "mode='update'", lambda p: with_state(p, "update"), "update"),
    "state_in_append": (lambda p: with_state(p, "append"), "update", "leave mode= out", lambda p: with_state(p, "append"), "append"),
    "pandas_aggregate": (
        lambda p: p.groupBy("zone").agg(F.pandas_udf(mean_of, "double")("celsius").alias("m")), "update",
        "aggregate with Spark's functions", lambda p: p.groupBy("zone").agg(F.avg("celsius").alias("m")), "update",
    ),
    "constant": (lambda p: p.select(F.expr("1 / 0").alias("x")), "append", "change what Spark names", lambda p: p.select(F.expr("1 / 2").alias("x")), "append"),
}  # fmt: skip
FRAMES: dict[str, tuple[Callable[[DataFrame], DataFrame], str, Callable[[DataFrame], DataFrame]]] = {
    "state": (lambda p: with_state(p, "append"), "over='stream'", lambda p: p),
    "a_stream_inside": (
        lambda p: p.sparkSession.readStream.format("rate").load().select("value"), "@p.source", lambda p: p.select("zone")
    ),
    "mixed_aggregates": (
        lambda p: p.groupBy("zone").agg(F.pandas_udf(mean_of, "double")("celsius").alias("m"), F.max("ts").alias("ts")),
        "change what Spark names", lambda p: p.groupBy("zone").agg(F.pandas_udf(mean_of, "double")("celsius").alias("m")),
    ),
    "python_in_on": (
        lambda p: joined(p, F.udf(lambda one, other: one == other, "boolean")("a.zone", "b.zone"), "left"),
        "change what Spark names", lambda p: joined(p, F.expr("a.zone = b.zone"), "left"),
    ),
}  # fmt: skip


def checked(spark, function: Callable[[DataFrame], DataFrame], **how: object) -> tuple[list[Finding], int]:
    """What `check` says, and the line of the operator."""
    p = hf.StreamProcess("plant", frame="1 second", time="ts")
    p.source("probes", hf.read.files("probes.parquet"), schema=SCHEMA)

    @p.operator(**how)
    def asked(probes):
        return function(probes)

    p.sink("asked", hf.write.callback(lambda rows, n: None))
    line = int(p.graph().operator("asked").line.rpartition(":")[2])
    return [finding for finding in infer(p.graph(), spark)[1] if not finding.warning], line


def probes_of(spark) -> DataFrame:
    """A stream as a unit's port is one, with rows."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "5").load()
    seconds = F.timestamp_seconds(F.lit(1_700_000_000) + F.col("value")).alias("ts")
    zone, is_boundary = (F.col("value") % 3).cast("int").alias("zone"), (F.col("value") < 0).alias(BOUNDARY)
    return bounded(rows.select(seconds, zone, F.col("value").cast("double").alias("celsius"), is_boundary), "ts", 0)


def is_refused_by_spark(df: DataFrame, mode: str, folder: Path) -> bool:
    """Started for real: at the start, or with one of its first batches."""

    def take(batch, number):
        batch.write.format("noop").mode("overwrite").save()

    query = None
    try:
        query = df.writeStream.outputMode(mode).option("checkpointLocation", str(folder)).foreachBatch(take).start()
        query.awaitTermination(60)
    except Exception:
        return True
    finally:
        if query is not None:
            query.stop()
    return False


@pytest.mark.parametrize("name", STREAMS)
def test_what_spark_refuses_of_a_stream_is_refused_by_check_and_its_remedy_taken(name, spark, tmp_path):
    """HF-G047. Before, each of these passed `check` and its unit died when it started or with its first frame."""
    bad, mode, said, good, remedy = STREAMS[name]
    (finding,), line = checked(spark, bad, over="stream", mode=mode)
    assert finding.code == "HF-G047" and "'asked'" in finding.what
    assert f"{Path(__file__).name}:{line}, operator 'asked'" in finding.where
    assert said in finding.do and finding.effect == "nothing was started, nothing was read"
    how = {"over": "frame"} if remedy == "frame" else {"over": "stream", "mode": remedy}
    assert checked(spark, good, **how)[0] == []
    assert is_refused_by_spark(bad(probes_of(spark)), mode, tmp_path / "spark")


@pytest.mark.parametrize("name", FRAMES)
def test_what_spark_refuses_of_a_frame_is_refused_by_check_and_its_remedy_taken(name, spark):
    """HF-G047."""
    bad, said, good = FRAMES[name]
    (finding,), _ = checked(spark, bad, over="frame")
    assert finding.code == "HF-G047" and said in finding.do
    assert checked(spark, good, over="frame")[0] == []
    with pytest.raises(Exception):  # noqa: B017  whatever it is called, it comes before a row
        bad(spark.createDataFrame([], SCHEMA)).collect()


def test_a_second_watermark_is_refused_and_lateness_is_what_it_was_for(spark, tmp_path):
    """HF-G043; a port without the time column has none, and takes one."""

    def late(probes):
        return by_window(probes.withWatermark("ts", "5 seconds"))

    (finding,), _ = checked(spark, late, over="stream")
    assert finding.code == "HF-G043" and "leave withWatermark out" in finding.do and "lateness=" in finding.do
    assert checked(spark, by_window, over="stream", lateness="5 seconds")[0] == []
    assert is_refused_by_spark(late(probes_of(spark)), "append", tmp_path / "spark")

    p = hf.StreamProcess("plant", frame="1 second", time="ts")
    p.source("probes", hf.read.files("probes.parquet"), schema=SCHEMA)
    p.map("untimed", of="probes", select=["ts as seen", "zone"])

    @p.operator(over="stream", apart=True)
    def own(untimed):
        return untimed.withWatermark("seen", "1 second").groupBy(F.window("seen", "2 seconds")).count().select("count")

    p.sink("own", hf.write.callback(lambda rows, n: None))
    assert [each for each in infer(p.graph(), spark)[1] if not each.warning] == []


def test_a_built_in_in_the_plan_of_a_stream_is_refused_as_it_is_apart(spark):
    """HF-G050, in the query of a stream operator and apart from it: a `map` looks at one row at a time."""
    for apart in (False, True):
        p = hf.StreamProcess("plant", frame="1 second", time="ts")
        p.source("probes", hf.read.files("probes.parquet"), schema=SCHEMA)

        @p.operator(over="stream")
        def seen(probes):
            return probes.groupBy(F.window("ts", "2 seconds"), "zone").agg(F.max("ts").alias("ts"))

        p.map("ranked", of="seen", select=["zone", "rank() over (order by zone) as r"], apart=apart)
        p.sink("ranked", hf.write.callback(lambda rows, n: None))
        found = [finding.code for finding in infer(p.graph(), spark)[1] if not finding.warning]
        assert found == ["HF-G050"]


@pytest.mark.parametrize(
    ("function", "mode"),
    [
        (lambda p: p.distinct(), "append"),
        (lambda p: joined(p, F.expr(BY_TIME), "inner"), "append"),
        (lambda p: by_window(p).groupBy(F.window("window", "4 seconds")).agg(F.sum("count").alias("n")), "append"),
        (lambda p: p.groupBy("zone").count().orderBy("count"), "complete"),
        (lambda p: p.groupBy("zone").agg(F.max_by("celsius", F.struct("ts", "celsius")).alias("last")), "update"),
        (lambda p: p.groupBy("zone").applyInPandas(lambda rows: rows[["zone"]], "zone int"), "append"),
        (lambda p: p.where("zone in (select 1)"), "append"),
    ],
)
def test_ordinary_streams_pass(function, mode, spark):
    assert checked(spark, function, over="stream", mode=mode)[0] == []
