"""The built-in windowed join as one batch query: every pair that could meet, then the frame it comes out in.

Two rows meet if their keys are equal, their times lie close enough, and the one that came first was still
kept when the other came: until the boundary lies beyond its time plus `within` plus the lateness. The
pair comes out with the later one. With how="left" a left row that met nobody comes out when it goes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from holdfast.graph.schemas import Schema
from holdfast.oracle.aggregates import frames_table
from holdfast.oracle.inputs import FrameTimes
from holdfast.oracle.tables import N
from holdfast.quoting import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from holdfast.graph.model import Graph, Operator

__all__ = ["JoinQuery"]


@dataclass(frozen=True)
class JoinQuery:
    """Columns under names of our own: `l0`.. and `r0`.. as declared, `ln`, `lt`, `lrow` and so on beside them."""

    spark: SparkSession
    graph: Graph
    operator: Operator
    left: Schema
    right: Schema
    emits: Schema
    times: FrameTimes

    def frames(self, left: DataFrame, right: DataFrame, wanted: Collection[int]) -> DataFrame:
        options = self.operator.options
        within_us = options["within_ms"] * 1000
        kept_us = within_us + (options.get("lateness_ms") or 0) * 1000
        upto = frames_table(self.spark, self.times, range(self.times.first, max(wanted) + 1))
        one, other = self._side(left, self.left, "l", upto), self._side(right, self.right, "r", upto)
        meet = [F.col(self._at("l", key)) == F.col(self._at("r", key)) for key in self._on]
        meet.append(F.abs(F.col("lt") - F.col("rt")) <= within_us)
        # The one that came first was still there.
        meet.append((F.col("ln") >= F.col("rn")) | (F.col("lt") + kept_us >= F.col("rsince")))
        meet.append((F.col("rn") >= F.col("ln")) | (F.col("rt") + kept_us >= F.col("lsince")))
        pairs = one.join(other, _all(meet))
        made = pairs.withColumn(N, F.greatest("ln", "rn")).select(N, *self._columns(alone=False))
        if options.get("how", "inner") == "left":
            lonely = one.join(pairs.select("lrow").distinct(), "lrow", "left_anti")
            made = made.unionAll(self._gone(lonely, upto, kept_us).select(N, *self._columns(alone=True)))
        return made.where(F.col(N).isin(sorted(wanted)))

    def _gone(self, rows: DataFrame, frames: DataFrame, kept_us: int) -> DataFrame:
        """Rows with the frame in which they go: their own if they cannot meet anybody."""
        meets = _all([F.col(self._at("l", key)).isNotNull() for key in self._on] + [F.col("lt").isNotNull()])
        mine = F.col(N) == F.col("ln")
        is_over = F.col("lt") + kept_us < F.col("until")
        was_over = F.col("lt") + kept_us < F.col("since")
        goes = (mine & (~meets | is_over)) | ((F.col(N) > F.col("ln")) & meets & is_over & ~was_over)
        return rows.join(F.broadcast(frames), goes)

    def _side(self, df: DataFrame, schema: Schema, side: str, frames: DataFrame) -> DataFrame:
        time = quoted(self.operator.options.get("time") or str(self.graph.time))
        columns = [f"{quoted(name)} as {side}{at}" for at, name in enumerate(schema.names)]
        rows = df.selectExpr(*columns, f"unix_micros(cast({time} as timestamp)) as {side}t", f"{N} as {side}n")
        since = frames.select(F.col(N).alias(f"{side}n"), F.col("since").alias(f"{side}since"))
        # One partition in the order of its file: the number of a row is its place.
        return rows.withColumn(f"{side}row", F.monotonically_increasing_id()).join(F.broadcast(since), f"{side}n")

    @property
    def _on(self) -> tuple[str, ...]:
        return tuple(self.operator.options["on"])

    def _at(self, side: str, name: str) -> str:
        return f"{side}{(self.left if side == 'l' else self.right).names.index(name)}"

    def _columns(self, *, alone: bool) -> list[Column]:
        """As declared; those of the right are null where a left row is alone."""
        known = {name: ("l", name) for name in (*self._on, *self.left.names)}
        for name in self.right.names:
            if name not in self._on:
                known[f"{name}_right" if name in self.left.names else name] = ("r", name)
        wanted = self.operator.options.get("emits")
        taken = (
            list(known) if wanted is None else [re.split(r"\s+as\s+", each.strip(), flags=re.I)[0] for each in wanted]
        )
        columns = []
        for column, name in zip(self.emits.columns, taken, strict=True):
            side, own = known[name.strip("`")]
            value = F.lit(None) if alone and side == "r" else F.col(self._at(side, own))
            columns.append(value.cast(column.type).alias(column.name))
        return columns


def _all(conditions: list[Column]) -> Column:
    whole = conditions[0]
    for condition in conditions[1:]:
        whole = whole & condition
    return whole
