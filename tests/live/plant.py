"""The process that is killed: frame operator, keyed state of ours, and Spark's own state behind it.

Copied into a folder of its own by the tests, with `readings/` beside it. Two units, so
that a queue lies between them: [warm, rises] seals what [per_window] reads.
"""

from __future__ import annotations

import pandas as pd
from pyspark.sql import functions as F

import holdfast as hf

plant = hf.StreamProcess("plant", frame="1 second", time="ts")
plant.source(
    "readings", hf.read.files("readings/*.parquet"), schema="ts timestamp, zone int, celsius double, count bigint"
)


@plant.operator(over="frame")
def warm(readings):
    return readings.where("celsius > 50")


@plant.keyed("zone", state="last double, seen bigint", emits="ts timestamp, zone int, rise double, seen bigint")
def rises(state: pd.DataFrame, warm: pd.DataFrame):
    """An element lost or doubled shifts `seen` for the rest of the run."""
    x = warm.merge(state, on="zone", how="left")
    before = x.groupby("zone").celsius.shift().fillna(x["last"]).fillna(0.0)
    seen = (x.groupby("zone").cumcount() + 1 + x.seen.fillna(0)).astype("int64")
    out = x.assign(rise=x.celsius - before, seen=seen)
    after = out.groupby("zone", as_index=False).agg(last=("celsius", "last"), seen=("seen", "last"))
    return after, out[["ts", "zone", "rise", "seen"]]


@plant.operator(over="stream", mode="append")
def per_window(rises):
    """Spark's state and watermark: windows straddle restarts, their sums show any frame taken twice."""
    return (
        rises.groupBy(F.window("ts", "5 seconds"), "zone")
        .agg(F.sum("seen").alias("sum_seen"), F.count("*").alias("n"))
        .select(F.col("window.start").alias("ts"), "zone", "sum_seen", "n")
    )


plant.sink("rises", hf.write.sqlite("rises.db", "rises"))
plant.sink("per_window", hf.write.sqlite("per_window.db", "per_window"))
