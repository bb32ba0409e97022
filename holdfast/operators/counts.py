"""Windows of rows: each `window` rows of a key, a new window every `every` rows.

Rows of a key are numbered frame by frame, within a frame by time and then by all
columns; window j covers the rows from j * every on. A window is emitted in the
frame that brings its last row; at the end boundary the unfinished ones come out
with the rows they have, so that nothing that was read stays unseen (ask for
`count(*)` to tell them apart).

State: one row per key with the number of rows seen and its open windows as lists;
a key whose last window is complete is forgotten, as the next row starts afresh.

Pure: no session, clock or file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.frames.identity import END_US
from holdfast.graph.schemas import Column, Schema
from holdfast.operators.aggregate import Shape
from holdfast.operators.builtin import KeyedFunction, refuse
from holdfast.operators.columns import (
    df_of,
    group_ids,
    in_order,
    list_offsets,
    micros_of,
    pack_lists,
    table_of,
    timestamps,
    unpack_lists,
)
from holdfast.operators.merging import merge, partials_of

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

__all__ = ["CountWindows", "count_windows"]


@dataclass(frozen=True)
class CountWindows:
    """The function of an aggregate over windows of rows."""

    shape: Shape
    size: int
    step: int
    state: Schema
    rows: Schema

    def prepare(self, df: DataFrame) -> DataFrame:
        return self.shape.project(df, ordered=True)

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
        names = self.shape.keys.names
        heads = pa.concat_tables([before.select(names), fresh.select(names)]).combine_chunks()
        owners = group_ids([heads.column(name) for name in names])
        keys = heads.take(pa.array(owners.first))
        seen = np.zeros(owners.count, dtype=np.int64)
        seen[owners.ids[: before.num_rows]] = before.column("_seen").to_numpy()

        owner, window, parts = self._windows(fresh, owners.ids[before.num_rows :], seen)
        seen += np.bincount(owners.ids[before.num_rows :], minlength=owners.count)
        inner = ["_window", *parts.column_names]
        held, held_by = unpack_lists(before, inner)
        both = pa.concat_tables([held.drop_columns(["_window"]), parts.cast(_without(held.schema))])
        owner = np.concatenate([owners.ids[held_by], owner])
        window = np.concatenate([held.column("_window").to_numpy(), window])
        groups = group_ids([owner, window])
        slots = merge(self.shape.measures, both.combine_chunks(), groups)
        owner, window = owner[groups.first], window[groups.first]

        whole = slots.column("_rows").to_numpy() == self.size
        closed = whole | (micros_of(boundary) >= END_US)
        out = self.shape.output(keys.take(pa.array(owner[closed])), slots.filter(pa.array(closed)), late_rows=0)
        if micros_of(boundary) >= END_US:
            return df_of(self.state.arrow.empty_table()), out
        order = np.flatnonzero(~closed)
        order = order[np.lexsort((window[order], owner[order]))]
        open_ = slots.take(pa.array(order)).add_column(0, "_window", pa.array(window[order]))
        return df_of(self._packed(keys, seen, owner[order], open_)), out

    def _windows(self, rows: pa.Table, owner: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray, pa.Table]:
        """The frame's share of each window it touches: owner, window number, slots."""
        ordered = [rows.column(name) for name, _, _ in self.shape.measures.order]
        order = in_order([pa.array(owner), *ordered])
        rows, owner = rows.take(pa.array(order)), owner[order]
        place = np.arange(len(owner)) - list_offsets(owner, len(seen))[owner] + seen[owner]
        pane_rows = gcd(self.size, self.step)
        panes = group_ids([owner, place // pane_rows])
        slots = merge(self.shape.measures, partials_of(self.shape.measures, rows), panes)
        owner, begins = owner[panes.first], place[panes.first] // pane_rows * pane_rows
        # The windows that hold a pane: from the one that ends with it to the newest begun.
        newest = begins // self.step
        oldest = np.maximum(-((self.size - pane_rows - begins) // self.step), 0)
        copies = np.maximum(newest - oldest + 1, 0)
        pane = np.repeat(np.arange(len(begins)), copies)
        nth = np.arange(len(pane)) - np.repeat(np.cumsum(copies) - copies, copies)
        return owner[pane], oldest[pane] + nth, slots.take(pa.array(pane))

    def _packed(self, keys: pa.Table, seen: np.ndarray, owner: np.ndarray, open_: pa.Table) -> pa.Table:
        lists = pack_lists(open_, owner, len(seen), self.state)
        waits = np.bincount(owner, minlength=len(seen)) > 0
        wake = timestamps(np.full(len(seen), END_US), ~waits)
        table = pa.table([*keys.columns, wake, pa.array(seen), *lists], schema=self.state.arrow)
        return table.filter(pa.array(waits | (seen % self.step != 0)))


def _without(schema: pa.Schema) -> pa.Schema:
    return schema.remove(schema.get_field_index("_window"))


def count_windows(shape: Shape, options: Mapping[str, Any]) -> KeyedFunction:
    size, step = options["window_rows"], options.get("every_rows") or options["window_rows"]
    if size <= 0 or step <= 0:
        raise refuse(
            "HF-O024",
            "WindowUnclear",
            f"a window of {size} rows every {step} rows covers nothing.",
            do="give both a length above zero",
        )
    inner = (Column("_window", "bigint"), *shape.measures.slot_columns)
    lists = tuple(Column(column.name, f"array<{column.type}>") for column in inner)
    values = Schema((Column("wake", "timestamp"), Column("_seen", "bigint"), *lists))
    function = CountWindows(
        shape=shape,
        size=size,
        step=step,
        state=Schema(shape.keys.columns + values.columns),
        rows=Schema(shape.keys.columns + shape.measures.raw_columns),
    )
    return KeyedFunction(
        name="windows of rows",
        keys=shape.keys,
        shard_by=shape.keys.names,
        state=values,
        emits=shape.emits,
        rows=(function.rows,),
        prepare=(function.prepare,),
        function=function,
        float_sensitive=shape.measures.float_sensitive,
    )
