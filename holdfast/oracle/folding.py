"""A keyed function folded over all frames from the first one, in a plain loop.

State is a dictionary: key -> row. For each frame the keys that have rows or are due are looked
up, the user's function is called once with their state and the frame's rows, and what it returns
replaces them. No shards, no state files, no journal, one frame at a time.

Each call has a Python worker of its own, so what the function's modules keep between calls
is not there for the next one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from holdfast.frames.content import canonical
from holdfast.graph.schemas import Schema
from holdfast.operators.exchange import to_df, to_table
from holdfast.operators.per_key import PerKey
from holdfast.oracle.inputs import FrameTimes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.graph.model import Graph, Operator

__all__ = ["Fold"]

_WAKE = "wake"


@dataclass(frozen=True)
class OneCall:
    """One call of the function, in a worker: reads its tables from the folder and leaves there what it returned."""

    folder: str
    function: Callable[..., Any]
    words: dict[str, Any]
    ports: int
    state: Schema  # with the keys
    emits: tuple[tuple[str, Schema], ...]
    keys: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            tables = [_read(self.folder, name) for name in ("state", *map(str, range(self.ports)))]
            after, out = self.function(*map(to_df, tables), **self.words)
            _write(self.folder, "after", to_table(after, self.state.arrow, self.keys))
            named = out if isinstance(out, Mapping) else {self.emits[0][0]: out}
            for name, schema in self.emits:
                _write(self.folder, f"out {name}", to_table(named.get(name), schema.arrow, self.keys))
        yield from ()


class Fold:
    def __init__(self, graph: Graph, operator: Operator, schemas: list[Schema], folder: Path) -> None:
        """`schemas`: of the ports, in order."""
        options = operator.options
        self._graph, self._operator, self._schemas, self._folder = graph, operator, schemas, folder
        self._keys = tuple(options["keys"])
        keyed = [next(column for column in schemas[0].columns if column.name == key) for key in self._keys]
        self._state_schema = Schema((*keyed, *options["state"].columns))
        self._emits = tuple((stream.split(".", 1)[-1], options["emits"][stream]) for stream in operator.outputs)
        self._time = graph.time if isinstance(graph.time, str) else None
        self._state: dict[tuple, dict[str, Any]] = {}

    def step(
        self, spark: SparkSession, n: int, ports: list[pa.Table], times: FrameTimes, values: Mapping[str, Any]
    ) -> dict[str, pa.Table]:
        """By stream, the output of frame n; state is that after n-1 and becomes that after n."""
        boundary_us = times.boundary_us(n)
        rows = [canonical(table, schema, self._time) for table, schema in zip(ports, self._schemas, strict=True)]
        touched = {key for table in rows for key in self._keys_of(table)}
        if _WAKE in self._operator.options["state"]:
            due = pd.Timestamp(boundary_us, unit="us", tz="UTC")
            touched |= {key for key, row in self._state.items() if row[_WAKE] is not None and row[_WAKE] <= due}
        empty = {name: schema.arrow.empty_table() for name, schema in self._emits}
        if not touched:
            return self._by_stream(empty)
        held = [self._state[key] for key in touched if key in self._state]
        state = canonical(pa.Table.from_pylist(held, self._state_schema.arrow), self._state_schema, None)
        for name, table in (("state", state), *((str(at), table) for at, table in enumerate(rows))):
            _write(self._folder, name, table)
        words = {**_asked(self._operator.function, n, boundary_us, times.since_us(n)), **self._values(values)}
        call = OneCall(
            str(self._folder), self._operator.function, words, len(rows), self._state_schema, self._emits, self._keys
        )
        spark.range(0, 1, 1, 1).mapInArrow(call, "x int").collect()
        after = _read(self._folder, "after")
        for key in touched:
            self._state.pop(key, None)
        self._state |= dict(zip(self._keys_of(after), after.to_pylist(), strict=True))
        return self._by_stream({name: _read(self._folder, f"out {name}") for name in empty})

    def _by_stream(self, named: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        return {stream: named[stream.split(".", 1)[-1]] for stream in self._operator.outputs}

    def _keys_of(self, table: pa.Table) -> list[tuple]:
        columns = [table.column(name).to_pylist() for name in self._keys]
        return [tuple("nan" if value != value else value for value in key) for key in zip(*columns, strict=True)]

    def _values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: PerKey(values[name]["value"], values[name]["per"]) if self._graph.param(name).per else values[name]["value"]
            for name in self._operator.params
        }


def _asked(function: Callable[..., Any], n: int, boundary_us: int, since_us: int) -> dict[str, Any]:
    """Of the frame what the function takes by keyword."""
    about = {
        "boundary": pd.Timestamp(boundary_us, unit="us", tz="UTC"),
        "since": pd.Timestamp(since_us, unit="us", tz="UTC"),
        "frame": n,
    }
    takes = inspect.signature(function).parameters
    return {name: value for name, value in about.items() if name in takes and takes[name].kind is takes[name].KEYWORD_ONLY}


def _read(folder: str | Path, name: str) -> pa.Table:
    with pa.OSFile(str(Path(folder) / f"{name}.arrow")) as file:
        return pa.ipc.open_file(file).read_all()


def _write(folder: str | Path, name: str, table: pa.Table) -> None:
    with pa.OSFile(str(Path(folder) / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
