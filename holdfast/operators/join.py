"""Windowed join: rows of two streams with equal keys whose times lie close enough.

A pair comes out in the frame that brings the later of its two rows. A row is kept
until no partner can follow: until the boundary lies beyond its time + within
(+ lateness); beyond and not at it, since a row at exactly that distance fits and
belongs to the next frame. With how="left" a left row that found no partner comes
out then, with nulls for the right columns.

State: one row per key with the kept rows of both sides as lists, and `wake` when
the first of them goes. Keys that are null meet nobody, as in SQL. Rows that come
after partners they might have had are gone, and rows without a time, are counted
as late; the former are still joined with what is kept.

Pure: no session, clock or file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.schemas import Column, Schema, folded, named
from holdfast.operators.builtin import KeyedFunction, carried, check_keys, refuse
from holdfast.operators.columns import (
    df_of,
    group_ids,
    list_offsets,
    micros,
    micros_of,
    pack_lists,
    search,
    table_of,
    timestamps,
    unpack_lists,
)
from holdfast.quoting import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Join", "Side", "make_join"]

_NAME = r"(`(?:[^`]|``)+`|\w+)"
_MET = "_met"  # whether a kept left row has found a partner


@dataclass(frozen=True)
class Side:
    """One input: its rows as prepared, and how they lie in the state."""

    keys: tuple[str, ...]
    rows: Schema  # keys first
    prefix: str  # of its list columns in the state
    met: bool  # keeps `_met`

    @property
    def kept(self) -> tuple[str, ...]:
        own = tuple(name for name in self.rows.names if name not in self.keys)
        return own + ((_MET,) if self.met else ())

    def prepare(self, df: DataFrame) -> DataFrame:
        columns = df.selectExpr(*carried(df), *(quoted(name) for name in self.rows.names))
        if self.met:
            return columns  # an outer row comes out even if its key is null
        return columns.where(" and ".join(f"{quoted(name)} is not null" for name in self.keys))

    def lists(self) -> tuple[Column, ...]:
        types = {column.name: column.type for column in self.rows.columns} | {_MET: "boolean"}
        return tuple(Column(self.prefix + name, f"array<{types[name]}>") for name in self.kept)


@dataclass(frozen=True)
class _Rows:
    """Kept and new rows of one side, sorted by (key, time)."""

    table: pa.Table
    owner: np.ndarray
    time: np.ndarray
    timed: np.ndarray  # has a time and a key, so it can meet a partner
    new: np.ndarray

    def where(self, chosen: np.ndarray) -> _Rows:
        return _Rows(
            self.table.filter(pa.array(chosen)),
            self.owner[chosen], self.time[chosen], self.timed[chosen], self.new[chosen],
        )  # fmt: skip


@dataclass(frozen=True)
class Join:
    """The function of a windowed join."""

    left: Side
    right: Side
    time: str
    within_us: int
    lateness_us: int
    keys: Schema
    state: Schema
    emits: Schema
    picked: tuple[tuple[str, str], ...]  # per emitted column its side ("k", "l", "r") and name

    def __call__(
        self,
        state: pd.DataFrame,
        left: pd.DataFrame,
        right: pd.DataFrame,
        *,
        boundary: pd.Timestamp,
        frame: int,
        since: pd.Timestamp | None = None,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        before = table_of(state, self.state.arrow)
        fresh = [table_of(left, self.left.rows.arrow), table_of(right, self.right.rows.arrow)]
        names = self.keys.names
        heads = pa.concat_tables([t.select(names) for t in (before, *fresh)]).combine_chunks()
        owners = group_ids([heads.column(name) for name in names])
        keys = heads.take(pa.array(owners.first))
        meets = np.ones(owners.count, dtype=bool)
        for column in keys.columns:
            meets &= pc.is_valid(column).to_numpy()
        cuts = np.cumsum([before.num_rows, fresh[0].num_rows])
        held_ids, left_ids, right_ids = np.split(owners.ids, cuts)
        lefts = self._rows(self.left, before, held_ids, fresh[0], left_ids, meets)
        rights = self._rows(self.right, before, held_ids, fresh[1], right_ids, meets)
        late_rows = sum(self._late(side, since) for side in (lefts, rights))

        # New left rows meet all right rows; those kept from before meet the new ones only.
        one, other = self._pairs(lefts, np.flatnonzero(lefts.new), rights, rights.timed)
        two, another = self._pairs(lefts, np.flatnonzero(~lefts.new), rights, rights.timed & rights.new)
        at_left, at_right = np.concatenate([one, two]), np.concatenate([other, another])
        gone = [self._gone(side, boundary) for side in (lefts, rights)]
        outs = [self._output(keys, lefts, at_left, rights.table.take(pa.array(at_right)))]
        if self.left.met:
            met = lefts.table.column(_MET).to_numpy().copy()
            met[at_left] = True
            alone = np.flatnonzero(gone[0] & ~met)
            nulls = pa.table([pa.nulls(len(alone), f.type) for f in rights.table.schema], schema=rights.table.schema)
            outs.append(self._output(keys, lefts, alone, nulls))
            at = lefts.table.schema.get_field_index(_MET)
            table = lefts.table.set_column(at, _MET, pa.array(met))
            lefts = _Rows(table, lefts.owner, lefts.time, lefts.timed, lefts.new)
        out = df_of(pa.concat_tables(outs).combine_chunks())
        out.attrs["late_rows"] = late_rows
        return df_of(self._packed(keys, lefts.where(~gone[0]), rights.where(~gone[1]))), out

    def _rows(
        self, side: Side, before: pa.Table, held_ids: np.ndarray, fresh: pa.Table, ids: np.ndarray,
        meets: np.ndarray,
    ) -> _Rows:  # fmt: skip
        held, held_by = unpack_lists(before, [side.prefix + name for name in side.kept])
        held = held.rename_columns(list(side.kept))
        if side.met:
            fresh = fresh.append_column(_MET, pa.array(np.zeros(fresh.num_rows, dtype=bool)))
        table = pa.concat_tables([held, fresh.select(side.kept).cast(held.schema)]).combine_chunks()
        owner = np.concatenate([held_ids[held_by], ids])
        time = micros(table.column(self.time))
        order = np.lexsort((time, owner))
        timed = pc.is_valid(table.column(self.time)).to_numpy() & meets[owner]
        new = np.arange(len(owner)) >= held.num_rows
        table = table.take(pa.array(order))
        return _Rows(table, owner[order], time[order], timed[order], new[order])

    def _late(self, side: _Rows, since: pd.Timestamp | None) -> int:
        late = side.new & pc.is_null(side.table.column(self.time)).to_numpy()
        if since is not None:
            late = late | (side.new & side.timed & (side.time + self.lateness_us < micros_of(since)))
        return int(late.sum())

    def _pairs(
        self, lefts: _Rows, chosen: np.ndarray, rights: _Rows, allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows of both sides, by number, that fit: (key, time) is a stretch of the other side."""
        chosen = chosen[lefts.timed[chosen]]
        others = np.flatnonzero(allowed)
        size = int(max(lefts.owner.max(initial=-1), rights.owner.max(initial=-1))) + 1
        offsets = list_offsets(rights.owner[others], size)
        owner, time, times = lefts.owner[chosen], lefts.time[chosen], rights.time[others]
        low, high = offsets[owner], offsets[owner + 1]
        begin = search(times, low, high, time - self.within_us, right=False)
        end = search(times, low, high, time + self.within_us, right=True)
        counts = end - begin
        nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(chosen, counts), others[np.repeat(begin, counts) + nth]

    def _gone(self, side: _Rows, boundary: pd.Timestamp) -> np.ndarray:
        return ~side.timed | (side.time + self.within_us + self.lateness_us < micros_of(boundary))

    def _output(self, keys: pa.Table, lefts: _Rows, at: np.ndarray, right: pa.Table) -> pa.Table:
        sides = {
            "k": keys.take(pa.array(lefts.owner[at])),
            "l": lefts.table.take(pa.array(at)),
            "r": right,
        }
        return pa.table([sides[side].column(name) for side, name in self.picked], schema=self.emits.arrow)

    def _packed(self, keys: pa.Table, lefts: _Rows, rights: _Rows) -> pa.Table:
        count = keys.num_rows
        owner = np.concatenate([lefts.owner, rights.owner])
        wake = np.concatenate([lefts.time, rights.time]) + self.within_us + self.lateness_us + 1
        soonest = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(soonest, owner, wake)
        used = np.bincount(owner, minlength=count) > 0
        columns = [*keys.columns, timestamps(soonest)]
        for side, rows in ((self.left, lefts), (self.right, rights)):
            table = rows.table.rename_columns([side.prefix + name for name in side.kept])
            columns += pack_lists(table, rows.owner, count, self.state)
        return pa.table(columns, schema=self.state.arrow).filter(pa.array(used))


def make_join(options: Mapping[str, Any], left: Schema, right: Schema) -> KeyedFunction:
    """The keyed function of a declared join (options as in `graph.model`)."""
    on, time = tuple(options["on"]), options.get("time")
    within_ms, outer = options.get("within_ms"), options.get("how", "inner") == "left"
    if not on or time is None or within_ms is None or within_ms < 0:
        raise refuse(
            "HF-O024",
            "WindowUnclear",
            "a join needs keys, a time column and a distance in time.",
            why=f"on={on!r}, time={time!r}, within {within_ms!r} ms",
            do="say on=, within=, and time= on the process",
        )
    for name in (*on, time):
        if name not in left or name not in right or left.type_of(name) != right.type_of(name):
            raise refuse(
                "HF-O025",
                "ColumnMissing",
                f"column {name!r} is not the same on both sides of the join.",
                why=f"left has {left.ddl}; right has {right.ddl}",
                do="rename or cast it with map() before the join",
            )
    keys = Schema(tuple(column for name in on for column in left.columns if column.name == name))
    sides = [
        Side(on, _keys_first(keys, schema), prefix, met)
        for schema, prefix, met in ((left, "_l_", outer), (right, "_r_", False))
    ]
    picked, emits = _output_columns(keys, left, right, options.get("emits"))
    values = Schema((Column("wake", "timestamp"), *sides[0].lists(), *sides[1].lists()))
    check_keys(keys, values.names)
    if _MET in left:
        raise refuse(
            "HF-O027", "NameTaken", f"a left column is called {_MET!r}, as one of the join's own.",
            do="rename it with map() before the join",
        )  # fmt: skip
    function = Join(
        left=sides[0],
        right=sides[1],
        time=time,
        within_us=within_ms * 1000,
        lateness_us=(options.get("lateness_ms") or 0) * 1000,
        keys=keys,
        state=Schema(keys.columns + values.columns),
        emits=emits,
        picked=picked,
    )
    return KeyedFunction(
        name="left join" if outer else "inner join",
        keys=keys,
        shard_by=on,
        state=values,
        emits=emits,
        rows=(sides[0].rows, sides[1].rows),
        prepare=(sides[0].prepare, sides[1].prepare),
        function=function,
        float_sensitive=False,
    )


def _keys_first(keys: Schema, schema: Schema) -> Schema:
    rest = tuple(column for column in schema.columns if column.name not in keys)
    return Schema(keys.columns + rest)


def _output_columns(
    keys: Schema, left: Schema, right: Schema, wanted: tuple[str, ...] | None
) -> tuple[tuple[tuple[str, str], ...], Schema]:
    """Keys, left columns, right columns (`_right` where the name is taken), or those `wanted`."""
    found = {column.name: ("k", column) for column in keys.columns}
    found |= {column.name: ("l", column) for column in left.columns if column.name not in keys}
    taken = set(map(folded, found))
    columns = [(name, side, column.name, column.type) for name, (side, column) in found.items()]
    for column in right.columns:
        if column.name not in keys:
            name = f"{column.name}_right" if folded(column.name) in taken else column.name
            columns.append((name, "r", column.name, column.type))
    if wanted is not None:
        known = {name: rest for name, *rest in columns}
        columns = [_renamed(expression, known) for expression in wanted]
    names = [name for name, *_ in columns]
    if len(set(map(folded, names))) < len(names):
        raise refuse(
            "HF-O026",
            "EmitsUnclear",
            "the join emits a column twice.",
            why=f"its columns would be {', '.join(names)}",
            do="rename one with emits=['column as name', ...], or with map() before the join",
        )
    picked = tuple((side, name) for _, side, name, _ in columns)
    return picked, Schema(tuple(Column(name, kind) for name, _, _, kind in columns))


def _renamed(expression: str, known: Mapping[str, list[str]]) -> tuple[str, str, str, str]:
    parts = re.fullmatch(rf"\s*{_NAME}(?:\s+as\s+{_NAME})?\s*", expression, re.IGNORECASE)
    names = (
        [each[1:-1].replace("``", "`") if each.startswith("`") else each for each in parts.groups(default="")]
        if parts
        else [""]
    )
    if parts is None or names[0] not in known:
        raise refuse(
            "HF-O025",
            "ColumnMissing",
            f"the join cannot emit {expression!r}.",
            why=f"emits= takes columns and 'column as name', other signs than letters in backticks; there are {', '.join(map(named, known))}",
            do="compute it with map() after the join",
        )
    side, column, kind = known[names[0]]
    return names[1] or names[0], side, column, kind
