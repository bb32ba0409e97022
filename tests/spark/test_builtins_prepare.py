"""What built-ins leave to Spark, against the same in Arrow and Spark's own batch queries."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holdfast.graph.schemas import Schema
from holdfast.operators.aggregate import make_aggregate, type_of_in
from holdfast.operators.join import make_join
from holdfast.operators.rowwise import apply_rowwise
from tests.operators.small_machine import (
    START,
    SmallMachine,
    frames_of,
    paned,
    projected,
    raw,
    reduced,
)

SCHEMA = Schema.of("ts timestamp, zone int, name string, celsius double, price decimal(12,2), tags array<int>")
EMITS = {
    "n": "count(*)",
    "known": "count(celsius)",
    "total": "sum(celsius)",
    "exact": "sum(price)",
    "mean": "avg(price)",
    "zones": "avg(zone)",
    "low": "min(celsius)",
    "high": "max(name)",
    "spread": "var_samp(celsius)",
    "oldest": "first(name)",
    "newest": "last(tags)",
    "kinds": "count_distinct(name)",
}
BATCH = [
    "count(*) as n",
    "count(celsius) as known",
    "sum(celsius) as total",
    "sum(price) as exact",
    "avg(price) as mean",
    "avg(zone) as zones",
    "min(celsius) as low",
    "max(name) as high",
    "var_samp(celsius) as spread",
    "min_by(name, struct(ts, zone, name, celsius, price, tags)) as oldest",
    "max_by(tags, struct(ts, zone, name, celsius, price, tags)) as newest",
    "count(distinct name) as kinds",
]


def readings(count: int, seed: int = 7) -> pa.Table:
    """Forty seconds of readings with nulls; eighths add up exactly in any order."""
    random = np.random.default_rng(seed)
    us = START.value // 1000 + np.sort(random.integers(0, 40_000_000, count))

    def some(values, kind):
        return pa.array(values, mask=random.random(count) < 0.1).cast(kind)

    arrow = SCHEMA.arrow
    return pa.table(
        [
            pa.array(us).cast(arrow.field("ts").type),
            some(random.integers(1, 4, count), pa.int32()),
            some(random.choice(["a", "b", "c"], count), pa.string()),
            some(random.integers(-80, 80, count) / 8, pa.float64()),
            some(random.integers(0, 10_000, count), pa.decimal128(20, 0)).cast(pa.decimal128(12, 2)),
            pa.array([[int(i)] for i in random.integers(0, 9, count)], arrow.field("tags").type),
        ],
        schema=arrow,
    )


def without_time(rows: pa.Table) -> pa.Table:
    """Every tenth row loses its time."""
    null = np.arange(rows.num_rows) % 10 == 0
    ts = rows.column("ts").cast(pa.int64()).to_numpy()
    return rows.set_column(0, "ts", pa.array(ts, mask=null).cast(SCHEMA.arrow.field("ts").type))


def aggregate(**options):
    return make_aggregate({"by": ("zone",), "emits": EMITS, "time": "ts"} | options, SCHEMA)


def prepared(spark, keyed, rows: pa.Table, port: int = 0) -> pa.Table:
    found = keyed.prepare[port](spark.createDataFrame(rows)).toArrow()
    assert tuple(found.column_names) == keyed.rows[port].names
    return found.cast(keyed.rows[port].arrow)


def as_rows(table: pa.Table, digits: int = 9) -> Counter:
    def plain(value):
        if isinstance(value, list):
            return tuple(value)
        return round(value, digits) if isinstance(value, float) else value

    return Counter(tuple(plain(value) for value in row.values()) for row in table.to_pylist())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, lambda keyed, rows: reduced(keyed, projected(keyed, rows), {})),
        ({"by": ()}, lambda keyed, rows: reduced(keyed, projected(keyed, rows), {})),
        ({"window_ms": 5000}, paned),
        ({"window_ms": 10_000, "every_ms": 4000}, paned),
        ({"window_ms": 2000, "every_ms": 5000}, paned),
        ({"window_rows": 3}, raw),
    ],
    ids=["running", "global", "tumbling", "sliding", "hopping", "rows"],
)
def test_spark_prepares_what_arrow_prepares(spark, options, expected):
    """The other tests prepare in Arrow; they prove nothing if Spark gives something else."""
    # Without the nested column, whose order is by text and made in Spark only.
    emits = {name: call for name, call in EMITS.items() if name != "newest"}
    schema = Schema(SCHEMA.columns[:-1])
    base = {"by": ("zone",), "emits": emits, "time": "ts"}
    keyed = make_aggregate(base | options, schema)
    rows = without_time(readings(200)).drop_columns(["tags"])
    assert as_rows(prepared(spark, keyed, rows)) == as_rows(expected(keyed, rows))


def through_frames(spark, keyed, rows: pa.Table, seconds: float) -> pa.Table:
    machine = SmallMachine(keyed)
    outs = [
        machine.frame(prepared(spark, keyed, own), n=n, boundary=boundary, since=since)
        for n, own, boundary, since in frames_of(rows, seconds)
    ]
    assert machine.late_rows == 0
    return pa.concat_tables(outs)


@pytest.mark.parametrize(
    ("options", "grouped"),
    [
        ({"window_ms": 5000}, "window(ts, '5 seconds')"),
        ({"window_ms": 10_000, "every_ms": 4000}, "window(ts, '10 seconds', '4 seconds')"),
        ({"session_ms": 400}, "session_window(ts, '400 milliseconds')"),
    ],
    ids=["tumbling", "sliding", "session"],
)
def test_frames_give_what_sparks_batch_query_gives(spark, options, grouped):
    """The oracle is not another run of ours: the last window must come out, too."""
    from pyspark.sql import functions as F

    keyed = aggregate(**options, emits={"begin": "window_start", "ts": "window_end"} | EMITS)
    rows = readings(150)
    batch = (
        spark.createDataFrame(rows)
        .groupBy("zone", F.expr(f"{grouped} as w"))
        .agg(*(F.expr(sql) for sql in BATCH))
        .selectExpr("zone", "w.start as begin", "w.end as ts", *EMITS)
    )
    expected = batch.toArrow().cast(keyed.emits.arrow)
    assert as_rows(through_frames(spark, keyed, rows, 17)) == as_rows(expected)


def test_a_row_without_time_is_reported_in_sessions(spark):
    keyed = aggregate(session_ms=400)
    machine = SmallMachine(keyed)
    own = prepared(spark, keyed, without_time(readings(40)))
    machine.frame(own, n=1, boundary=START + pd.Timedelta("1 hour"), since=START)
    assert machine.late_rows == 4


def test_a_join_is_sparks_join_with_a_condition_on_time(spark):
    from pyspark.sql import functions as F

    schema = Schema(SCHEMA.columns[:4])
    options = {"on": ("zone",), "within_ms": 500, "how": "left", "time": "ts"}
    keyed = make_join(options, schema, schema)
    left, right = (readings(60, seed).select(schema.names) for seed in (1, 2))
    machine = SmallMachine(keyed)
    outs = []
    for (n, one, boundary, since), (_, two, _, _) in zip(frames_of(left, 21), frames_of(right, 21), strict=True):
        ports = [prepared(spark, keyed, rows, port) for port, rows in enumerate((one, two))]
        outs.append(machine.frame(*ports, n=n, boundary=boundary, since=since))
    a, b = spark.createDataFrame(left).alias("a"), spark.createDataFrame(right).alias("b")
    near = F.expr("a.zone = b.zone and abs(unix_micros(a.ts) - unix_micros(b.ts)) <= 500000")
    expected = a.join(b, near, "left").selectExpr(
        "a.zone", "a.ts", "a.name", "a.celsius", "b.ts", "b.name", "b.celsius"
    )
    found = [tuple(row.values()) for row in pa.concat_tables(outs).to_pylist()]
    table = expected.toArrow().rename_columns(keyed.emits.names).cast(keyed.emits.arrow)
    assert Counter(found) == as_rows(table)


def test_expressions_are_sparks(spark):
    """Types come from the analyser, values from the plan."""
    rows = readings(50)
    df = spark.createDataFrame(rows)
    options = {"by": ("zone",), "emits": {"f": "max(celsius * 1.8 + 32)", "n": "sum(size(tags))"}}
    keyed = make_aggregate(options, SCHEMA, type_of=type_of_in(df))
    assert keyed.emits.ddl == "zone int, f double, n bigint"
    out = SmallMachine(keyed).frame(prepared(spark, keyed, rows), n=1, boundary=START, since=START)
    batch = df.groupBy("zone").agg({"zone": "count"}).count()
    assert out.num_rows == batch
    assert sum(out.column("n").to_pylist()) == 50


def test_row_wise_built_ins(spark):
    df = spark.createDataFrame(readings(60)).selectExpr("zone", "celsius")
    hot = apply_rowwise("filter", {"where": "celsius > 0"}, [df], ["hot"])["hot"]
    both = apply_rowwise("union", {}, [df, df.selectExpr("celsius", "zone")], ["both"])["both"]
    parts = apply_rowwise("split", {"into": {"hot": "celsius > 0", "cold": "celsius <= 0"}}, [df], ["s.hot", "s.cold"])
    mapped = apply_rowwise("map", {"select": ["zone", "celsius * 2 as twice"]}, [df], ["m"])["m"]
    assert both.columns == ["zone", "celsius"] and both.count() == 120
    assert Counter(parts["s.hot"].collect()) == Counter(hot.collect())
    assert parts["s.hot"].count() + parts["s.cold"].count() == df.dropna(subset="celsius").count()
    assert mapped.columns == ["zone", "twice"]
