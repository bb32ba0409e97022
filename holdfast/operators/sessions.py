"""Session windows: rows of a key belong together while no gap is longer than declared.

As in Spark, a row at exactly last + gap still belongs; so a session is emitted in
the frame whose boundary lies beyond last + gap + lateness, not at it, and the cut
into frames cannot split one. A row that joins two open sessions makes them one.

State: one row per key with its open sessions as lists, `wake` when the earliest
closes. Spark reduces a frame to its own sessions first; here they are merged with
the open ones. A session of late rows alone, whose time was over before this
frame, is counted as late; late rows that touch an open session still count.

Pure: no session of Spark's, clock or file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.schemas import Column, Schema
from holdfast.operators.aggregate import Shape
from holdfast.operators.builtin import KeyedFunction
from holdfast.operators.columns import (
    Groups,
    df_of,
    group_ids,
    micros,
    micros_of,
    pack_lists,
    table_of,
    timestamps,
    unpack_lists,
)
from holdfast.operators.merging import merge
from holdfast.quoting import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Sessions", "session_windows"]

# Spark drops rows without a time from a session window; here they are counted.
# No session of real rows starts at the first moment Spark can write.
_NO_TIME = "timestamp '0001-01-01 00:00:00Z'"


@dataclass(frozen=True)
class Sessions:
    """The function of an aggregate over sessions."""

    shape: Shape
    gap_us: int
    lateness_us: int
    state: Schema
    rows: Schema

    def prepare(self, df: DataFrame) -> DataFrame:
        time = quoted(self.shape.time or "")
        projected = self.shape.project(df, f"coalesce(cast({time} as timestamp), {_NO_TIME}) as _time")
        gap = f"session_window(_time, '{self.gap_us} microseconds') as _session"
        start = f"nullif(_session.start, {_NO_TIME}) as _start"
        return self.shape.reduce(projected, gap, selected=[start, "_session.end as _end"])

    def __call__(
        self,
        state: pd.DataFrame,
        rows: pd.DataFrame,
        *,
        boundary: pd.Timestamp,
        frame: int,
        since: pd.Timestamp | None = None,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        before, fresh = table_of(state, self.state.arrow), table_of(rows, self.rows.arrow)
        timed = pc.is_valid(fresh.column("_start"))
        late_rows = _rows(fresh.filter(pc.invert(timed)))
        fresh = fresh.filter(timed)

        names = self.shape.keys.names
        heads = pa.concat_tables([before.select(names), fresh.select(names)]).combine_chunks()
        owners = group_ids([heads.column(name) for name in names])
        inner = [name for name in self.rows.names if name not in names]
        held, held_by = unpack_lists(before, inner)
        parts = pa.concat_tables([held, fresh.select(inner).cast(held.schema)]).combine_chunks()
        owner = np.concatenate([owners.ids[held_by], owners.ids[before.num_rows :]])
        is_fresh = np.arange(len(owner)) >= held.num_rows

        start, end = micros(parts.column("_start")), micros(parts.column("_end"))
        order = np.lexsort((is_fresh, start, owner))
        owner, start, end, is_fresh = owner[order], start[order], end[order], is_fresh[order]
        session = _sessions(owner, start, end)
        slots = merge(self.shape.measures, parts.take(pa.array(order)), session)
        start = start[session.first]
        end = pd.Series(end).groupby(session.ids).max().to_numpy(dtype=np.int64)
        owner = owner[session.first]
        only_fresh = np.bincount(session.ids, ~is_fresh, session.count) == 0

        wake = end + self.lateness_us + 1
        late = only_fresh & (wake <= micros_of(since)) if since is not None else wake < wake
        late_rows += _rows(slots.filter(pa.array(late)))
        closed = (wake <= micros_of(boundary)) & ~late
        bounds = {"window_start": timestamps(start[closed]), "window_end": timestamps(end[closed])}
        keys = heads.take(pa.array(owners.first))
        out = self.shape.output(
            keys.take(pa.array(owner[closed])), slots.filter(pa.array(closed)), bounds, late_rows=late_rows
        )
        kept = ~closed & ~late
        open_ = pa.table(
            [timestamps(start), timestamps(end), *slots.columns], names=["_start", "_end", *slots.column_names]
        ).filter(pa.array(kept))
        return df_of(self._packed(keys, owner[kept], wake[kept], open_.select(inner))), out

    def _packed(self, keys: pa.Table, owner: np.ndarray, wake: np.ndarray, open_: pa.Table) -> pa.Table:
        """One row per key that has an open session; sessions are sorted by key."""
        own = group_ids([owner])
        soonest = pd.Series(wake).groupby(own.ids).min().to_numpy(dtype=np.int64)
        heads = keys.take(pa.array(owner[own.first]))
        lists = pack_lists(open_, own.ids, own.count, self.state)
        return pa.table([*heads.columns, timestamps(soonest), *lists], schema=self.state.arrow)


def _sessions(owner: np.ndarray, start: np.ndarray, end: np.ndarray) -> Groups:
    """Numbers sessions in rows sorted by (owner, start)."""
    reach = pd.Series(end).groupby(owner).cummax().to_numpy(dtype=np.int64)
    opens = np.ones(len(owner), dtype=bool)
    opens[1:] = (owner[1:] != owner[:-1]) | (start[1:] > reach[:-1])
    return Groups(np.cumsum(opens) - 1, np.flatnonzero(opens))


def _rows(table: pa.Table) -> int:
    return int(table.column("_rows").to_numpy().sum()) if table.num_rows else 0


def session_windows(shape: Shape, options: Mapping[str, Any]) -> KeyedFunction:
    inner = (Column("_start", "timestamp"), Column("_end", "timestamp"), *shape.measures.slot_columns)
    lists = tuple(Column(column.name, f"array<{column.type}>") for column in inner)
    values = Schema((Column("wake", "timestamp"), *lists))
    function = Sessions(
        shape=shape,
        gap_us=options["session_ms"] * 1000,
        lateness_us=(options.get("lateness_ms") or 0) * 1000,
        state=Schema(shape.keys.columns + values.columns),
        rows=Schema(shape.keys.columns + inner),
    )
    return KeyedFunction(
        name="session windows",
        keys=shape.keys,
        shard_by=shape.keys.names,
        state=values,
        emits=shape.emits,
        rows=(function.rows,),
        prepare=(function.prepare,),
        function=function,
        float_sensitive=shape.measures.float_sensitive,
    )
