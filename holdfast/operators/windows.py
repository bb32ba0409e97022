"""Windows of time: tumbling (`window=`) and sliding (`window=`, `every=`).

A window [start, start + size) is one row of state, keyed by the `by` columns and
its start; starts are multiples of the step since 1970. It is emitted in the
frame whose boundary passes its end plus the declared lateness: its `wake`, so a
silent key's window closes all the same, and the end boundary closes the last.

Spark reduces a frame to panes first, stretches of time no window cuts through,
and only then copies each pane into its windows: a row is added up once however
many windows overlap. In a window, panes are added frame by frame, then by time.

Rows for a window that was emitted before are counted as late, once per window
missed; so are rows without a time.

Pure: no session, clock or file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.schemas import Column, Schema
from holdfast.operators.aggregate import Shape
from holdfast.operators.builtin import KeyedFunction, carried, refuse
from holdfast.operators.columns import (
    df_of,
    group_ids,
    in_order,
    micros,
    micros_of,
    table_of,
    timestamps,
)
from holdfast.operators.merging import merge
from holdfast.quoting import quoted

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

__all__ = ["START", "TimeWindows", "time_windows"]

START = "_start"


@dataclass(frozen=True)
class TimeWindows:
    """The function of an aggregate over windows of time."""

    shape: Shape
    size_us: int
    step_us: int
    lateness_us: int
    keys: Schema
    state: Schema
    rows: Schema

    def prepare(self, df: DataFrame) -> DataFrame:
        pane = gcd(self.size_us, self.step_us)
        time = f"unix_micros(cast({quoted(self.shape.time or '')} as timestamp))"
        # No window holds a pane that lies in the gap between two (size below step).
        into = f"pmod(_pane, {self.step_us}L)"
        projected = self.shape.project(df, f"{time} - pmod({time}, {pane}L) as _pane")
        projected = projected.where(f"_pane is null or {into} <= {self.size_us - pane}L")
        panes = self.shape.reduce(projected, "_pane", selected=["_pane"])
        newest = f"_pane - {into}"
        oldest = f"{newest} - (({self.size_us - pane}L - {into}) div {self.step_us}L) * {self.step_us}L"
        starts = f"explode_outer(sequence({newest}, {oldest}, -{self.step_us}L)) as {START}"
        keys = [*carried(panes), *(quoted(name) for name in self.shape.keys.names)]
        slots = [column.name for column in self.shape.measures.slot_columns]
        return panes.selectExpr(*keys, starts, "_pane", *slots).selectExpr(
            *keys, f"timestamp_micros({START}) as {START}", "timestamp_micros(_pane) as _pane", *slots
        )

    def __call__(
        self,
        state: pd.DataFrame,
        rows: pd.DataFrame,
        *,
        boundary: pd.Timestamp,
        frame: int,
        since: pd.Timestamp | None = None,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        fresh, late_rows = self._in_time(table_of(rows, self.rows.arrow), since)
        fresh = fresh.take(pa.array(in_order([fresh.column("_pane")])))
        known = self.keys.names + tuple(slot.name for slot in self.shape.measures.slots)
        before = table_of(state, self.state.arrow)
        both = pa.concat_tables([before.select(known), fresh.select(known)]).combine_chunks()
        groups = group_ids([both.column(name) for name in self.keys.names])
        slots = merge(self.shape.measures, both, groups)
        keys = both.select(self.keys.names).take(groups.first)
        end = micros(keys.column(START)) + self.size_us
        wake = end + self.lateness_us
        closed = pa.array(wake <= micros_of(boundary))
        bounds = {
            "window_start": keys.column(START).filter(closed),
            "window_end": timestamps(end).filter(closed),
        }
        out = self.shape.output(keys.filter(closed), slots.filter(closed), bounds, late_rows=late_rows)
        columns = [*keys.columns, timestamps(wake), *slots.columns]
        after = pa.table(columns, schema=self.state.arrow).filter(pc.invert(closed))
        return df_of(after), out

    def _in_time(self, rows: pa.Table, since: pd.Timestamp | None) -> tuple[pa.Table, int]:
        """The rows whose window is open, and how many there were of the others."""
        start = rows.column(START)
        late = pc.is_null(start).to_numpy()
        if since is not None:
            late = late | (micros(start) + self.size_us + self.lateness_us <= micros_of(since))
        if not late.any():
            return rows, 0
        lost = rows.column("_rows").to_numpy()[late].sum()
        return rows.filter(pa.array(~late)), int(lost)


def time_windows(shape: Shape, options: Mapping[str, Any]) -> KeyedFunction:
    size_ms, step_ms = options["window_ms"], options.get("every_ms") or options["window_ms"]
    if size_ms <= 0 or step_ms <= 0:
        raise refuse(
            "HF-O024",
            "WindowUnclear",
            f"a window of {size_ms} ms every {step_ms} ms covers nothing.",
            do="give both a length above zero",
        )
    keys = Schema((*shape.keys.columns, Column(START, "timestamp")))
    slots = shape.measures.slot_columns
    values = Schema((Column("wake", "timestamp"), *slots))
    function = TimeWindows(
        shape=shape,
        size_us=size_ms * 1000,
        step_us=step_ms * 1000,
        lateness_us=(options.get("lateness_ms") or 0) * 1000,
        keys=keys,
        state=Schema(keys.columns + values.columns),
        rows=Schema((*keys.columns, Column("_pane", "timestamp"), *slots)),
    )
    return KeyedFunction(
        name="tumbling windows" if size_ms == step_ms else "sliding windows",
        keys=keys,
        shard_by=shape.keys.names,
        state=values,
        emits=shape.emits,
        rows=(function.rows,),
        prepare=(function.prepare,),
        function=function,
        float_sensitive=shape.measures.float_sensitive,
    )
