"""The keyed machine in the small, for tests of the built-ins: a dict of state rows.

It does what `KeyedFunction` asks of a machine and nothing else: hands in touched
and due keys, forgets what is not returned, and checks columns and types. `prepare`
is done here in Arrow; tests/spark compares it with the one done in Spark.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.schemas import Schema
from holdfast.operators.builtin import KeyedFunction
from holdfast.operators.columns import TIMESTAMP, df_of, group_ids
from holdfast.operators.merging import merge, partials_of

END = pd.Timestamp("2200-01-01", tz="UTC")
START = pd.Timestamp("2024-01-01", tz="UTC")


class SmallMachine:
    def __init__(self, keyed: KeyedFunction, *, arrow: bool = True) -> None:
        self.keyed, self.arrow = keyed, arrow
        self.schema = Schema(keyed.keys.columns + keyed.state.columns)
        self.state = self.schema.arrow.empty_table()
        self.late_rows = 0

    def frame(self, *rows: pa.Table, n: int, boundary: pd.Timestamp, since: pd.Timestamp | None):
        keys = list(self.keyed.keys.names)
        named = {key for table in rows for key in _tuples(table, keys)}
        known = _tuples(self.state, keys)
        handed = np.array([key in named for key in known], dtype=bool)
        if "wake" in self.schema:
            wakes = self.state.column("wake").to_pylist()
            handed |= np.array([w is not None and w <= boundary for w in wakes], dtype=bool)
        before = self.state.filter(pa.array(handed))
        after, out = self.keyed.function(
            self._pandas(before),
            *(self._pandas(table) for table in rows),
            boundary=boundary,
            frame=n,
            since=since,
        )
        self.late_rows += out.attrs["late_rows"]
        changed = pa.Table.from_pandas(after, schema=self.schema.arrow, preserve_index=False)
        changed_keys = _tuples(changed, keys)
        assert len(set(changed_keys)) == len(changed_keys)
        assert set(changed_keys) <= named | set(_tuples(before, keys))
        self.state = pa.concat_tables([self.state.filter(pa.array(~handed)), changed])
        return pa.Table.from_pandas(out, schema=self.keyed.emits.arrow, preserve_index=False)

    def _pandas(self, table: pa.Table) -> pd.DataFrame:
        return df_of(table.combine_chunks()) if self.arrow else table.to_pandas()


def _tuples(table: pa.Table, names: list[str]) -> list[tuple]:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def projected(keyed: KeyedFunction, rows: pa.Table) -> pa.Table:
    """`Shape.project` in Arrow, for expressions that are a column or a cast of one."""
    shape = keyed.function.shape
    columns = {name: rows.column(name) for name in shape.by}
    if not shape.by:
        columns["_all"] = pa.array(np.zeros(rows.num_rows, dtype=np.int32))
    types = Schema(shape.measures.raw_columns).arrow
    for name, sql, _ in (*shape.measures.order, *shape.measures.inputs):
        column = re.sub(r"^cast\((.*) as .*\)$", r"\1", sql).strip("`")
        columns[name] = rows.column(column).cast(types.field(name).type)
    return pa.table(columns)


def reduced(keyed: KeyedFunction, table: pa.Table, grouped: dict[str, pa.Array]) -> pa.Table:
    """`Shape.reduce` in Arrow: one partial row per key and `grouped` columns."""
    shape = keyed.function.shape
    keys = {name: table.column(name) for name in shape.keys.names} | grouped
    groups = group_ids(list(keys.values()))
    slots = merge(shape.measures, partials_of(shape.measures, table), groups)
    heads = pa.table(keys).take(groups.first)
    return pa.table([*heads.columns, *slots.columns], names=heads.column_names + slots.column_names)


def frames_of(rows: pa.Table, seconds: float, time: str = "ts"):
    """Cuts by element time as the frame clock does; yields (n, rows, boundary, since)."""
    step = int(seconds * 1_000_000)
    start = START.value // 1000
    times = rows.column(time).cast(pa.int64()).fill_null(start).to_numpy()
    number = (times - start) // step
    last = int(number.max()) if len(number) else 0
    since = START
    for n in range(last + 1):
        boundary = START + pd.Timedelta(microseconds=step * (n + 1))
        yield n + 1, rows.filter(pa.array(number == n)), boundary, since
        since = boundary
    yield last + 2, rows.slice(0, 0), END, since


def paned(keyed: KeyedFunction, rows: pa.Table) -> pa.Table:
    """`TimeWindows.prepare` in Arrow."""
    function = keyed.function
    pane_us = math.gcd(function.size_us, function.step_us)
    time = rows.column(function.shape.time).combine_chunks()
    null = time.is_null().to_numpy(False)
    us = time.cast(pa.int64()).fill_null(0).to_numpy()
    pane = us - us % pane_us
    panes = reduced(keyed, projected(keyed, rows), {"_pane": _timestamps(pane, null)})
    us = panes.column("_pane").cast(pa.int64())
    picked, starts = [], []
    for at, begin in enumerate(us.to_pylist()):
        found: list = [None]
        if begin is not None:
            newest = begin // function.step_us * function.step_us
            found = list(range(newest, begin + pane_us - function.size_us - 1, -function.step_us))
        picked += [at] * len(found)
        starts += found
    table = panes.take(pa.array(picked, pa.int64()))
    table = table.append_column("_start", pa.array(starts, pa.int64()).cast(TIMESTAMP))
    return table.select(keyed.rows[0].names).cast(keyed.rows[0].arrow)


def sessioned(keyed: KeyedFunction, rows: pa.Table) -> pa.Table:
    """`Sessions.prepare` in Arrow: every row a session of its own, which merge the same."""
    function = keyed.function
    time = rows.column(function.shape.time).combine_chunks()
    table = projected(keyed, rows)
    keys = [table.column(name) for name in function.shape.keys.names]
    end = pc.add(time.cast(pa.int64()), function.gap_us).cast(TIMESTAMP)
    slots = partials_of(function.shape.measures, table)
    columns = [*keys, time.cast(TIMESTAMP), end, *slots.columns]
    return pa.table(columns, schema=keyed.rows[0].arrow)


def raw(keyed: KeyedFunction, rows: pa.Table) -> pa.Table:
    """`CountWindows.prepare` in Arrow."""
    return projected(keyed, rows).select(keyed.rows[0].names)


def _timestamps(us: np.ndarray, null: np.ndarray) -> pa.Array:
    return pa.array(us, pa.int64(), mask=null).cast(TIMESTAMP)
