"""Frames put together are what one batch query over all rows gives, to the last window.

The oracle is not another run of ours: a run that never closes its last window equals
itself. Inputs are silent for some seconds, so windows have to close in frames without rows.
"""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.spark.processes import inputs_of

# Seconds 4, 5 and 6 of input `a` have no rows (tests/spark/processes.py); frame n is second n - 1.
SILENT = (5, 6, 7)
SUMS = ["count(*) as n", "sum(`count`) as total", "avg(celsius) as mean"]


def as_rows(table: pa.Table) -> Counter:
    """Rows as a multiset; sums of floats depend on the order of addition in the last digits."""
    columns = [[round(v, 9) if isinstance(v, float) else v for v in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def source(spark, name: str, of: str) -> DataFrame:
    return spark.createDataFrame(inputs_of(name)[of])


def windowed(df: DataFrame, window: str) -> DataFrame:
    return df.groupBy(F.expr(window), "zone").agg(*map(F.expr, SUMS)).select("zone", "n", "total", "mean")


BATCH = {
    "stream_windows": lambda spark, name: (
        source(spark, name, "a")
        .groupBy(F.window("ts", "3 seconds"), "zone")
        .agg(F.sum("count").alias("total"))
        .select("window.start", "zone", "total")
    ),
    "two_ports": lambda spark, name: (
        source(spark, name, "a")
        .union(source(spark, name, "b"))
        .groupBy(F.window("ts", "2 seconds"), "zone")
        .agg(F.sum("count").alias("total"))
        .select("window.start", "zone", "total")
    ),
    "tumbling": lambda spark, name: windowed(source(spark, name, "a"), "window(ts, '3 seconds')"),
    "sliding": lambda spark, name: windowed(source(spark, name, "a"), "window(ts, '4 seconds', '2 seconds')"),
    "session": lambda spark, name: windowed(source(spark, name, "a"), "session_window(ts, '800 milliseconds')"),
    "join": lambda spark, name: (
        source(spark, name, "a").alias("l")
        .join(
            source(spark, name, "b").alias("r"),
            F.expr("l.zone = r.zone and abs(unix_micros(l.ts) - unix_micros(r.ts)) <= 700000"),
            "left",
        )
        .select("l.zone", "l.ts", "l.celsius", "l.count", "r.ts", "r.celsius", "r.count")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCH)
def test_all_frames_together_are_one_batch_query(name, straight, spark):
    """Among them the windows that end after the last row: they come out with the closing frames."""
    (actual,) = straight(name).tables.values()
    expected = BATCH[name](spark, name).toArrow()
    assert expected.num_rows > 10
    assert as_rows(actual) == as_rows(expected)


@pytest.mark.parametrize("name", ["stream_windows", "sliding", "session"])
def test_windows_close_in_frames_without_rows(name, straight):
    """A silent input must not keep back what is finished."""
    (frames,) = straight(name).frames.values()
    seconds = {(ts.value - 1_700_000_000 * 10**9) // 10**9 + 1 for ts in inputs_of(name)["a"]["ts"].to_pandas()}
    assert not seconds & set(SILENT)
    assert sum(frames[n - 1].num_rows for n in SILENT) > 0


@pytest.mark.parametrize("name", ["running", "stream"])
def test_running_aggregates_end_at_what_a_batch_groups(name, straight, spark):
    """And say so in each frame in which a key had rows, not only at the end."""
    (frames,) = straight(name).frames.values()
    last, said = {}, 0
    for table in frames:
        for row in table.to_pylist():
            last[row["zone"]] = row
            said += 1
    df = source(spark, name, "a")
    grouped = df.groupBy("zone").agg(*map(F.expr, SUMS)).select(*frames[0].column_names).toArrow()
    assert as_rows(pa.Table.from_pylist(list(last.values()), schema=frames[0].schema)) == as_rows(grouped)
    assert said == df.select("zone", F.date_trunc("second", "ts")).distinct().count()


def test_windows_of_rows_are_slices_of_the_rows_of_a_key(straight):
    """The last one, not full, comes out too. Spark has no such window: pandas is the oracle."""
    rows = inputs_of("count")["a"].to_pandas().sort_values(["ts", "zone", "celsius", "count"])
    slices = rows.groupby(["zone", rows.groupby("zone").cumcount() // 7])
    expected = pd.DataFrame(
        {"n": slices.size(), "total": slices["count"].sum(), "mean": slices["celsius"].mean()}
    ).reset_index(level=1, drop=True)
    actual = straight("count").tables["summary"]
    wanted = pa.Table.from_pandas(expected.reset_index())
    assert (expected.n < 7).any()
    assert as_rows(actual) == as_rows(wanted.select(actual.column_names))
