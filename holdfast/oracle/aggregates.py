"""Built-in aggregates as batch queries over all rows of the frames up to the last one asked for.

Spark's own aggregate functions over Spark's own windows, each group computed at once from its
rows: no partial results, no state, no merging. Which frame an answer belongs to follows from what the
how-to says of each kind:

| | comes out in the frame |
|---|---|
| running | that brings rows of the key, with all rows up to it |
| window of time | whose boundary passes its end plus the lateness; a row that came after that is not in it |
| session | whose boundary lies beyond its last row plus the gap plus the lateness (`session_rows`) |
| window of rows | that brings its last row; an unfinished one when the input has ended |
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from holdfast.frames.identity import END_US
from holdfast.graph.schemas import Column as SchemaColumn
from holdfast.graph.schemas import Schema
from holdfast.operators.measures import parse_call
from holdfast.oracle.inputs import FrameTimes
from holdfast.oracle.session_rows import session_rows
from holdfast.oracle.tables import N, Tables
from holdfast.quoting import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from holdfast.graph.model import Graph, Operator

__all__ = ["AggregateQuery", "frames_table"]

_ADDED = ("sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp")
# Rounding of one addition is 1e-16 of the sum; there are many in a row.
_OF_SUM = 1e-12


@dataclass(frozen=True)
class AggregateQuery:
    """Columns of the input under names of our own: keys `k0`.., arguments `x0`.., order `o0`.., time `t` (microseconds)."""

    spark: SparkSession
    tables: Tables
    graph: Graph
    operator: Operator
    schema: Schema  # of the input
    emits: Schema
    times: FrameTimes

    def frames(self, df: DataFrame, wanted: Collection[int]) -> DataFrame:
        """The rows of the frames wanted, with their numbers."""
        options, rows = self.operator.options, self._projected(df)
        if options.get("window_ms"):
            made = self._time_windows(rows, wanted)
        elif options.get("session_ms"):
            made = self._sessions(rows, wanted)
        elif options.get("window_rows"):
            made = self._row_windows(rows, wanted)
        else:
            made = self._running(rows, wanted)
        columns = [F.col(N)]
        for at, column in enumerate(self.emits.columns):
            value = F.col(f"k{at}") if at < len(self._by) else F.col(f"m{at - len(self._by)}")
            columns.append(value.cast(column.type).alias(column.name))
        return made.select(*columns)

    def slack(self, df: DataFrame) -> float:
        """What the order of addition may do to a result at most."""
        sums = []
        for at, (function, _) in enumerate(self._calls):
            if function in _ADDED:
                x = F.abs(F.col(f"x{at}").cast("double"))
                x = x * x if function.startswith(("var", "stddev")) else x
                sums.append((function, F.sum(F.when(x < F.lit(1e300), x))))
        if not sums:
            return 0.0
        found = self._projected(df).agg(*(each.alias(f"s{at}") for at, (_, each) in enumerate(sums))).first()
        slacks = [_OF_SUM * (found[at] or 0.0) for at in range(len(sums))]
        return max(s**0.5 if name.startswith("stddev") else s for s, (name, _) in zip(slacks, sums, strict=True))

    # ---- the four kinds ----

    def _running(self, rows: DataFrame, wanted: Collection[int]) -> DataFrame:
        asked = self.spark.createDataFrame([(n,) for n in sorted(wanted)], "_at bigint")
        upto = rows.join(F.broadcast(asked), F.col(N) <= F.col("_at"))
        made = upto.groupBy("_at", *self._keys).agg(F.max(N).alias("_newest"), *self._measures())
        return made.where("_newest = _at").withColumn(N, F.col("_at"))

    def _time_windows(self, rows: DataFrame, wanted: Collection[int]) -> DataFrame:
        options = self.operator.options
        size_us, late_us = options["window_ms"] * 1000, (options.get("lateness_ms") or 0) * 1000
        step_us = (options.get("every_ms") or options["window_ms"]) * 1000
        within = F.window(F.timestamp_micros("t"), f"{size_us} microseconds", f"{step_us} microseconds")
        spread = (
            rows.where("t is not null").select("*", within.alias("w")).withColumn("start", F.unix_micros("w.start"))
        )
        known = spread.join(
            F.broadcast(frames_table(self.spark, self.times, range(self.times.first, max(wanted) + 1))), N
        )
        open_ = known.where(F.col("start") + size_us + late_us > F.col("since"))
        start, end = F.timestamp_micros("start"), F.timestamp_micros(F.col("start") + size_us)
        made = open_.groupBy("start", *self._keys).agg(*self._measures(start, end))
        return self._emitted(made.withColumn("wake", F.col("start") + size_us + late_us), wanted)

    def _sessions(self, rows: DataFrame, wanted: Collection[int]) -> DataFrame:
        options = self.operator.options
        table = rows.where("t is not null").toArrow()
        table = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
        spans = session_rows(
            list(zip(*(table.column(name).to_pylist() for name in self._keys), strict=True)) or [()] * table.num_rows,
            table.column("t").to_pylist(), table.column(N).to_pylist(), self.times, max(wanted),
            gap_us=options["session_ms"] * 1000, late_us=(options.get("lateness_ms") or 0) * 1000,
        )  # fmt: skip
        known = self.spark.createDataFrame(spans, "row bigint, session bigint, start bigint, end bigint, at bigint")
        wide = self.tables.df(self.spark, table, Schema.of(table.schema)).join(known, "row").drop(N)
        start, end = F.timestamp_micros("start"), F.timestamp_micros("end")
        made = wide.groupBy("session", "start", "end", "at", *self._keys).agg(*self._measures(start, end))
        return made.where(F.col("at").isin(sorted(wanted))).withColumn(N, F.col("at"))

    def _row_windows(self, rows: DataFrame, wanted: Collection[int]) -> DataFrame:
        options = self.operator.options
        size, step = options["window_rows"], options.get("every_rows") or options["window_rows"]
        order = Window.partitionBy(*self._keys).orderBy(N, *self._order)
        placed = rows.withColumn("place", (F.row_number().over(order) - 1).cast("bigint"))
        # The windows that begin at or before a row and reach it.
        oldest, newest = f"if(place < {size}L, 0L, (place - {size}L) div {step}L + 1L)", f"place div {step}L"
        windows = f"if({oldest} <= {newest}, sequence({oldest}, {newest}), array())"
        spread = placed.select("*", F.explode(F.expr(windows)).alias("j"))
        made = spread.groupBy("j", *self._keys).agg(
            F.count(F.lit(1)).alias("held"), F.max(N).alias("newest"), *self._measures(*self._row_bounds())
        )
        end = next((n for n in range(self.times.first, max(wanted) + 1) if self.times.boundary_us(n) >= END_US), None)
        whole = F.col("held") == size
        at = F.when(whole, F.col("newest")).otherwise(F.lit(end).cast("bigint"))
        return made.withColumn(N, at).where(F.col(N).isin(sorted(wanted)))

    def _emitted(self, made: DataFrame, wanted: Collection[int]) -> DataFrame:
        """Each group in the frame whose boundary is the first that is not before its `wake`."""
        frames = frames_table(self.spark, self.times, wanted)
        is_due = (F.col("since") < F.col("wake")) & (F.col("wake") <= F.col("until"))
        return made.join(F.broadcast(frames), is_due)

    # ---- columns ----

    @property
    def _by(self) -> tuple[str, ...]:
        by = self.operator.options.get("by") or ()
        return (by,) if isinstance(by, str) else tuple(by)

    @property
    def _keys(self) -> list[str]:
        return [f"k{at}" for at in range(len(self._by))]

    @property
    def _time(self) -> str | None:
        time = self.operator.options.get("time") or self.graph.time
        return time if isinstance(time, str) and time in self.schema else None

    @property
    def _calls(self) -> list[tuple[str, str]]:
        return [parse_call(call) for call in dict(self.operator.options["emits"]).values()]

    @property
    def _ordered(self) -> list[SchemaColumn]:
        """By time, then by all columns."""
        return sorted(self.schema.columns, key=lambda column: column.name != self._time)

    @property
    def _order(self) -> list[str]:
        return [f"o{at}" for at in range(len(self._ordered))]

    def _projected(self, df: DataFrame) -> DataFrame:
        time = "cast(null as bigint)" if self._time is None else f"unix_micros(cast({quoted(self._time)} as timestamp))"
        columns = [N, f"{time} as t"]
        columns += [f"{quoted(name)} as k{at}" for at, name in enumerate(self._by)]
        columns += [f"{sql if sql not in ('', '*') else '1'} as x{at}" for at, (_, sql) in enumerate(self._calls)]
        for at, column in enumerate(self._ordered):
            # Nested values have no order that all share: their text has.
            name = quoted(column.name)
            columns.append(f"to_json(struct({name})) as o{at}" if "<" in column.type else f"{name} as o{at}")
        return df.selectExpr(*columns)

    def _row_bounds(self) -> tuple[Column, Column]:
        return F.timestamp_micros(F.min("t")), F.timestamp_micros(F.max("t"))

    def _measures(self, start: Column | None = None, end: Column | None = None) -> list[Column]:
        made = []
        for at, (function, _) in enumerate(self._calls):
            x = f"x{at}"
            match function:
                case "window_start" | "window_end":
                    bound = start if function == "window_start" else end
                    measure = bound if self.operator.options.get("window_rows") else F.first(bound)
                case "count_distinct":
                    measure = F.count_distinct(x)
                case "first" | "last":
                    pick = F.min if function == "first" else F.max
                    measure = pick(F.struct(*self._order, x))[x]
                case _:
                    measure = F.expr(f"{function}({x})")
            made.append(measure.alias(f"m{at}"))
        return made


def frames_table(spark: SparkSession, times: FrameTimes, frames: Collection[int]) -> DataFrame:
    """Frames with their boundary and that of the frame before."""
    rows = [(n, times.since_us(n), times.boundary_us(n)) for n in sorted(frames)]
    return spark.createDataFrame(rows, f"{N} bigint, since bigint, until bigint")
