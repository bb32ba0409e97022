"""One small process per kind of operator, and the rows they are run on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

import holdfast as hf

__all__ = ["PROCESSES", "changes_of", "inputs_of", "readings"]

SCHEMA = "ts timestamp, zone int, celsius double, count bigint"
_keep = hf.write.console  # replaced by the test's own sink


def readings(seed: int, frames: int = 14, zones: int = 4, silent: tuple[int, ...] = (4, 5, 6)) -> pa.Table:
    """About ten rows a second, none in the silent seconds (0-based)."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.integers(0, frames * 1_000_000, frames * 10))
    times = times[~np.isin(times // 1_000_000, silent)]
    size = len(times)
    return pa.table(
        {
            "ts": pa.array(1_700_000_000_000_000 + times, pa.timestamp("us", "UTC")),
            "zone": pa.array(draw.integers(0, zones, size), pa.int32()),
            "celsius": pa.array(draw.normal(70, 15, size)),
            "count": pa.array(draw.integers(0, 1000, size)),
        }
    )


def inputs_of(name: str) -> dict[str, pa.Table]:
    found = {"a": readings(1)}
    if name in ("join", "two_ports", "union"):
        # The second input is silent at other times, and for longer, than the first.
        found["b"] = readings(2, silent=(2, 3, 8, 9, 10, 11))
    return found


def changes_of(name: str) -> dict[int, dict[str, float]]:
    """Parameters changed in mid-run."""
    return {6: {"limit": 55.0}, 11: {"limit": 75.0}} if name.endswith("parameter") else {}


def _process(name: str, *sources: str) -> hf.StreamProcess:
    p = hf.StreamProcess(name, frame="1 second", time="ts")
    for source in sources or ("a",):
        p.source(source, hf.read.files(f"{source}.parquet"), schema=SCHEMA)
    return p


def frame() -> hf.StreamProcess:
    p = _process("frame")

    @p.operator(over="frame")
    def ranked(a):
        from pyspark.sql import Window

        order = Window.partitionBy("zone").orderBy("ts", "celsius", "count")
        return a.withColumn("place", F.row_number().over(order)).where("place <= 2")

    p.sink("ranked", _keep())
    return p


def stream() -> hf.StreamProcess:
    p = _process("stream")

    @p.operator(over="stream", mode="update")
    def total(a):
        return a.groupBy("zone").agg(F.sum("count").alias("total"), F.count("*").alias("n"))

    p.sink("total", _keep())
    return p


def stream_windows() -> hf.StreamProcess:
    p = _process("stream_windows")

    @p.operator(over="stream", mode="append")
    def per_window(a):
        return (
            a.groupBy(F.window("ts", "3 seconds"), "zone")
            .agg(F.sum("count").alias("total"))
            .select(F.col("window.start").alias("ts"), "zone", "total")
        )

    p.sink("per_window", _keep())
    return p


def two_ports() -> hf.StreamProcess:
    """Two event-time ports in one query, each silent at times: the case that breaks plain Spark."""
    p = _process("two_ports", "a", "b")

    @p.operator(over="stream", mode="append")
    def both(a, b):
        rows = a.select("ts", "zone", "count").unionByName(b.select("ts", "zone", "count"))
        return (
            rows.groupBy(F.window("ts", "2 seconds"), "zone")
            .agg(F.sum("count").alias("total"))
            .select(F.col("window.start").alias("ts"), "zone", "total")
        )

    p.sink("both", _keep())
    return p


def keyed() -> hf.StreamProcess:
    p = _process("keyed")

    @p.keyed("zone", state="last double, seen bigint", emits="zone int, ts timestamp, rise double, seen bigint")
    def rises(state: pd.DataFrame, a: pd.DataFrame):
        x = a.merge(state, on="zone", how="left")
        before = x.groupby("zone").celsius.shift().fillna(x["last"])
        seen = x.groupby("zone").cumcount() + 1 + x.seen.fillna(0)
        out = x.assign(rise=x.celsius - before, seen=seen.astype("int64")).dropna(subset="rise")
        after = x.assign(seen=seen).groupby("zone").agg(last=("celsius", "last"), seen=("seen", "last"))
        kept = state[~state.zone.isin(after.index)]
        return pd.concat([after.reset_index(), kept]), out[["zone", "ts", "rise", "seen"]]

    p.sink("rises", _keep())
    return p


def _aggregate(**window) -> hf.StreamProcess:
    p = _process("aggregate")
    p.aggregate(
        "summary", of="a", by="zone", emits={"n": "count(*)", "total": "sum(count)", "mean": "avg(celsius)"}, **window
    )
    p.sink("summary", _keep())
    return p


def join() -> hf.StreamProcess:
    p = _process("join", "a", "b")
    p.join("pairs", left="a", right="b", on="zone", within="700 ms", how="left")
    p.sink("pairs", _keep())
    return p


def union() -> hf.StreamProcess:
    """Union, filter, map and split in one line."""
    p = _process("union", "a", "b")
    p.union("all", of=["a", "b"])
    p.filter("warm", of="all", where="celsius > 60")
    p.map("named", of="warm", select=["ts", "zone", "celsius", "concat('zone ', zone) as name"])
    p.split("parts", of="named", into={"hot": "celsius > 80", "mild": "celsius <= 80"})
    p.sink("parts.hot", _keep())
    p.sink("parts.mild", _keep())
    return p


def parallel_edges() -> hf.StreamProcess:
    p = _process("parallel_edges")

    @p.operator(over="frame", inputs={"left": "a", "right": "a"})
    def crossed(left, right):
        right = right.select("zone", F.col("count").alias("other"))
        return left.join(right, "zone").groupBy("zone").agg(F.sum(F.col("count") * F.col("other")).alias("product"))

    p.sink("crossed", _keep())
    return p


def feedback() -> hf.StreamProcess:
    p = _process("feedback")

    @p.operator(over="frame", inputs={"last": hf.feedback("average", schema="zone int, mean double")})
    def damped(a, last):
        hot = F.coalesce(F.col("mean") > 70, F.lit(False))
        celsius = F.when(hot, F.col("celsius") * 0.5).otherwise(F.col("celsius"))
        return a.join(last, "zone", "left").select("ts", "zone", celsius.alias("celsius"))

    p.aggregate("average", of="damped", by="zone", window="3 seconds", every="1 second", emits={"mean": "avg(celsius)"})
    p.sink("damped", _keep())
    return p


def several_outputs() -> hf.StreamProcess:
    """A stateful fan-out: two consumers of one keyed operator with two outputs."""
    p = _process("several_outputs")

    @p.keyed("zone", state="n bigint", emits={"odd": "zone int, n bigint", "even": "zone int, n bigint"})
    def counted(state, a):
        n = a.groupby("zone").size().rename("more").reset_index()
        both = state.merge(n, on="zone", how="outer").fillna(0)
        both["n"] = (both.n + both.more).astype("int64")
        odd = both.n % 2 == 1
        return both[["zone", "n"]], {"odd": both[odd][["zone", "n"]], "even": both[~odd][["zone", "n"]]}

    p.filter("large", of="counted.odd", where="n > 5")
    p.sink("large", _keep())
    p.sink("counted.even", _keep())
    return p


def parameter() -> hf.StreamProcess:
    """Changed in mid-run, for an operator over the frame and a keyed one."""
    p = _process("parameter")
    p.param("limit", 65.0, between=(0, 100))

    @p.operator(over="frame")
    def hot(a, *, limit):
        return a.where(F.col("celsius") > limit)

    @p.keyed("zone", state="n bigint", emits="zone int, n bigint, limit double")
    def above(state, a, *, limit):
        n = a[a.celsius > limit].groupby("zone").size().rename("more").reset_index()
        both = state.merge(n, on="zone", how="outer").fillna(0)
        both["n"] = (both.n + both.more).astype("int64")
        return both[["zone", "n"]], both[["zone", "n"]].assign(limit=limit)

    p.sink("hot", _keep())
    p.sink("above", _keep())
    return p


def stream_parameter() -> hf.StreamProcess:
    """Changed in mid-run, for an operator whose plan is the query's own."""
    p = _process("stream_parameter")
    p.param("limit", 65.0, between=(0, 100))

    @p.operator(over="stream", mode="update")
    def above(a, *, limit):
        hot = a.where(F.col("celsius") > limit).withColumn("limit", limit)
        return hot.groupBy("zone").agg(F.count("*").alias("n"), F.max("limit").alias("highest"))

    p.sink("above", _keep())
    return p


PROCESSES = {
    "frame": frame,
    "stream": stream,
    "stream_windows": stream_windows,
    "two_ports": two_ports,
    "keyed": keyed,
    "running": lambda: _aggregate(),
    "tumbling": lambda: _aggregate(window="3 seconds"),
    "sliding": lambda: _aggregate(window="4 seconds", every="2 seconds"),
    "session": lambda: _aggregate(session="800 ms"),
    "count": lambda: _aggregate(window=hf.rows(7)),
    "join": join,
    "union": union,
    "parallel_edges": parallel_edges,
    "feedback": feedback,
    "several_outputs": several_outputs,
    "parameter": parameter,
    "stream_parameter": stream_parameter,
}
