"""`aggregate`: running results per key, or results per window of time, rows or session.

Running: each frame emits the new values of the keys that it touched. The state
is one row of slots per key; Spark reduces a frame to one partial row per key
before Python sees it.

Windows are in `windows.py` (time), `sessions.py` and `counts.py` (rows). All
emit the `by` columns, then the columns of `emits` in the order declared.

Pure: no session, clock or file; pyspark is imported only where a plan is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.graph.declared import did_you_mean
from holdfast.graph.schemas import Column, Schema, folded, written
from holdfast.operators.builtin import ALL, KeyedFunction, carried, check_keys, refuse
from holdfast.operators.columns import df_of, group_ids, table_of
from holdfast.operators.measures import Measures, TypeOf, parse_call, plan
from holdfast.operators.merging import merge, results
from holdfast.quoting import quoted

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

__all__ = ["Running", "Shape", "make_aggregate", "type_of_in"]

# Names the windows use beside the slots, in the state or on the way to it.
_OWN = {ALL, "wake", "_start", "_end", "_pane", "_time", "_session", "_window", "_seen", "_first", "_last"}


@dataclass(frozen=True)
class Shape:
    """What every kind of aggregate shares: its keys, measures and output."""

    by: tuple[str, ...]
    keys: Schema  # of `by`, or the one constant key when there is none
    measures: Measures
    emits: Schema
    time: str | None

    def project(self, df: DataFrame, *extra: str, ordered: bool = False) -> DataFrame:
        """Keys, what the measures read, and `extra` (SQL), out of the input."""
        keys = [quoted(name) for name in self.by] or [f"0 as {ALL}"]
        return df.selectExpr(*carried(df), *keys, *extra, *self.measures.projection(ordered=ordered))

    def reduce(self, projected: DataFrame, *grouped: str, selected: list[str]) -> DataFrame:
        """One partial row per key and `grouped` columns, with the columns `selected` first."""
        from pyspark.sql import functions as F

        aggregates, slots = self.measures.partials()
        keys = [*carried(projected), *(quoted(name) for name in self.keys.names)]
        groups = projected.groupBy(*(F.expr(name) for name in (*keys, *grouped)))
        return groups.agg(*(F.expr(sql) for sql in aggregates)).selectExpr(*keys, *selected, *slots)

    def output(
        self,
        keys: pa.Table,
        slots: pa.Table,
        bounds: dict[str, pa.Array] | None = None,
        *,
        late_rows: int = 0,
    ) -> pd.DataFrame:
        found = results(self.measures, slots, bounds)
        columns = [keys.column(name) for name in self.by]
        columns += [found[measure.name] for measure in self.measures.measures]
        out = df_of(pa.table(columns, schema=self.emits.arrow))
        out.attrs["late_rows"] = late_rows
        return out


@dataclass(frozen=True)
class Running:
    """The function of a running aggregate."""

    shape: Shape
    state: Schema  # keys and slots, which is also what the prepared rows hold

    def prepare(self, df: DataFrame) -> DataFrame:
        return self.shape.reduce(self.shape.project(df), selected=[])

    def __call__(
        self,
        state: pd.DataFrame,
        rows: pd.DataFrame,
        *,
        boundary: pd.Timestamp,
        frame: int,
        since: pd.Timestamp | None = None,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        schema = self.state.arrow
        # State first: a floating sum goes on from the frames before.
        both = pa.concat_tables([table_of(state, schema), table_of(rows, schema)])
        both = both.combine_chunks()
        groups = group_ids([both.column(name) for name in self.shape.keys.names])
        slots = merge(self.shape.measures, both, groups)
        keys = both.select(self.shape.keys.names).take(groups.first)
        after = pa.table([*keys.columns, *slots.columns], schema=schema)
        return df_of(after), self.shape.output(keys, slots)


def type_of_in(df: DataFrame) -> TypeOf:
    """The types of SQL expressions over a DataFrame, from Spark's analyser."""

    def type_of(sql: str) -> str:
        return written(df.selectExpr(f"{sql} as x").schema[0].dataType)

    return type_of


def make_aggregate(options: Mapping[str, Any], input_schema: Schema, *, type_of: TypeOf | None = None) -> KeyedFunction:
    """The keyed function of a declared aggregate (options as in `graph.model`).

    `type_of` (see `type_of_in`) is needed for expressions that are no plain column.
    """
    windows = [name for name in ("window_ms", "window_rows", "session_ms") if options.get(name)]
    if len(windows) > 1:
        raise refuse(
            "HF-O024",
            "WindowUnclear",
            f"an aggregate has one kind of window, and this has {' and '.join(windows)}.",
            do="declare two aggregates, or leave one out",
        )
    shape = _shape(options, input_schema, bool(windows), type_of)
    if options.get("window_ms"):
        from holdfast.operators.windows import time_windows

        return time_windows(shape, options)
    if options.get("session_ms"):
        from holdfast.operators.sessions import session_windows

        return session_windows(shape, options)
    if options.get("window_rows"):
        from holdfast.operators.counts import count_windows

        return count_windows(shape, options)
    slots = Schema(shape.measures.slot_columns)
    function = Running(shape, Schema(shape.keys.columns + slots.columns))
    return KeyedFunction(
        name="running aggregate",
        keys=shape.keys,
        shard_by=shape.keys.names,
        state=slots,
        emits=shape.emits,
        rows=(function.state,),
        prepare=(function.prepare,),
        function=function,
        float_sensitive=shape.measures.float_sensitive,
    )


def _shape(options: Mapping[str, Any], schema: Schema, windowed: bool, type_of: TypeOf | None) -> Shape:
    by, time = _names(options.get("by")), options.get("time")
    time = time if isinstance(time, str) else None
    for name in by + ((time,) if windowed and time else ()):
        if name not in schema:
            raise refuse(
                "HF-O025",
                "ColumnMissing",
                f"column {name!r} is not in the input of the aggregate.",
                why=f"the input has {schema.ddl}",
                do=did_you_mean(name, schema.names),
            )
    if (options.get("window_ms") or options.get("session_ms")) and time is None:
        raise refuse(
            "HF-O024",
            "WindowUnclear",
            "a window of time needs a time column, and none is declared.",
            do="say time= on the process or on the aggregate",
        )
    emits = dict(options.get("emits") or {})
    if options.get("window_rows"):
        windowed = False  # in time; it spans the times of its rows
        if time:
            edges = {"window_start": ("min", quoted(time)), "window_end": ("max", quoted(time))}
            emits = {name: edges.get(parse_call(call)[0], call) for name, call in emits.items()}
    measures = plan(emits, schema, time=time, windowed=windowed, type_of=type_of)
    keys = tuple(column for name in by for column in schema.columns if column.name == name)
    columns = (*measures.slot_columns, *measures.raw_columns)
    check_keys(Schema(keys), {column.name for column in columns} | _OWN)
    emitted = keys + tuple(Column(one.name, one.type) for one in measures.measures)
    names = [column.name for column in emitted]
    if not emits or len(set(map(folded, names))) < len(names):
        raise refuse(
            "HF-O026",
            "EmitsUnclear",
            "the aggregate emits no column." if not emits else "the aggregate emits a column twice.",
            why=f"its columns would be {', '.join(names) or 'none'}",
            do="name each emitted column once, and not like a key; Zone and zone are one name",
        )
    return Shape(by, Schema(keys or (Column(ALL, "int"),)), measures, Schema(emitted), time)


def _names(by: Any) -> tuple[str, ...]:
    if by is None:
        return ()
    return (by,) if isinstance(by, str) else tuple(by)
