"""A keyed function folded over all frames from the first one, in a plain loop.

For each frame the keys that have rows or are due are looked up in a dictionary of all state, the
user's function is called once with their state and the frame's rows, and what it returns replaces them. No
shards, no state runs, no journal, one frame at a time.

The loop is one task of Spark's, in a Python worker that does nothing but fork: every call is made by a child
that ends with it. So what the function's modules keep between calls is not there for the next one.
"""

from __future__ import annotations

import inspect
import json
import os
import traceback
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

__all__ = ["Fold", "Folded"]

_WAKE = "wake"


@dataclass(frozen=True)
class Folded:
    """By stream and frame what came out, up to the frame at which the function raised, if it did."""

    frames: dict[str, dict[int, pa.Table]]
    raised_at: int | None = None
    error: Exception | None = None


class Fold:
    def __init__(self, graph: Graph, operator: Operator, schemas: list[Schema], folder: Path) -> None:
        """`schemas`: of the ports, in order; `folder`: an empty one."""
        options = operator.options
        keys = tuple(options["keys"])
        keyed = [next(column for column in schemas[0].columns if column.name == key) for key in keys]
        emits = tuple((stream.split(".", 1)[-1], options["emits"][stream]) for stream in operator.outputs)
        per = tuple((name, graph.param(name).per) for name in operator.params)
        time = graph.time if isinstance(graph.time, str) else None
        self._operator, self._folder = operator, folder
        self._task = FoldTask(
            str(folder),
            operator.function,
            keys,
            tuple(schemas),
            Schema((*keyed, *options["state"].columns)),
            emits,
            per,
            time,
        )

    def give(self, n: int, ports: list[pa.Table], times: FrameTimes, values: Mapping[str, Any]) -> None:
        """The input of frame n; frames are given in order."""
        for at, table in enumerate(ports):
            _write(self._folder, f"{n} port {at}", table)
        step = {"n": n, "boundary_us": times.boundary_us(n), "since_us": times.since_us(n), "values": values}
        with open(self._folder / "steps", "a") as steps:
            steps.write(json.dumps(step) + "\n")

    def run(self, spark: SparkSession, wanted: list[int]) -> Folded:
        spark.range(0, 1, 1, 1).mapInArrow(self._task, "x int").collect()
        failed = self._folder / "failed"
        said: dict[str, Any] = json.loads(failed.read_text()) if failed.exists() else {"n": None, "error": ""}
        done = [n for n in wanted if said["n"] is None or n < said["n"]]
        found = {
            stream: {n: _read(self._folder, f"{n} out {stream.split('.', 1)[-1]}") for n in done}
            for stream in self._operator.outputs
        }
        return Folded(found, said["n"], None if said["n"] is None else RuntimeError(said["error"]))


@dataclass(frozen=True)
class FoldTask:
    """The loop, in a worker. Everything it reads and writes is in its folder."""

    folder: str
    function: Callable[..., Any]
    keys: tuple[str, ...]
    ports: tuple[Schema, ...]
    state: Schema  # with the keys
    emits: tuple[tuple[str, Schema], ...]
    params: tuple[tuple[str, str | None], ...]  # (name, key column it is declared per)
    time: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            continue
        for line in (Path(self.folder) / "steps").read_text().splitlines():
            step, child = json.loads(line), os.fork()
            if child == 0:
                self._end_with(step)
            _, status = os.waitpid(child, 0)
            if status:
                if not self._failed.exists():
                    self._fail(step, f"RuntimeError: the call was ended by signal {os.WTERMSIG(status)}")
                break
        yield from ()

    @property
    def _failed(self) -> Path:
        return Path(self.folder) / "failed"

    def _fail(self, step: dict[str, Any], error: str) -> None:
        self._failed.write_text(json.dumps({"n": step["n"], "error": error}))

    def _end_with(self, step: dict[str, Any]) -> None:
        """One call; this process ends with it, however it goes."""
        code = 1
        try:
            self._step(step)
            code = 0
        except BaseException:
            self._fail(step, traceback.format_exc())
        finally:
            os._exit(code)

    def _step(self, step: dict[str, Any]) -> None:
        n, due = step["n"], pd.Timestamp(step["boundary_us"], unit="us", tz="UTC")
        ports = [_read(self.folder, f"{n} port {at}") for at in range(len(self.ports))]
        rows = [canonical(table, schema, self.time) for table, schema in zip(ports, self.ports, strict=True)]
        state = self._all_state()
        touched = {key for table in rows for key in self._keys_of(table)}
        if _WAKE in self.state:
            touched |= {key for key, row in state.items() if row[_WAKE] is not None and row[_WAKE] <= due}
        outs: Mapping[str, Any] = {}
        if touched:
            held = [state.pop(key) for key in touched if key in state]
            given = canonical(pa.Table.from_pylist(held, self.state.arrow), self.state, None)
            words = {**_asked(self.function, n, due, step["since_us"]), **self._values(step["values"])}
            after, out = self.function(to_df(given), *map(to_df, rows), **words)
            table = to_table(after, self.state.arrow, self.keys)
            state |= dict(zip(self._keys_of(table), table.to_pylist(), strict=True))
            outs = out if isinstance(out, Mapping) else {self.emits[0][0]: out}
        for name, schema in self.emits:
            _write(self.folder, f"{n} out {name}", to_table(outs.get(name), schema.arrow, self.keys))
        _write(self.folder, "state", pa.Table.from_pylist(list(state.values()), self.state.arrow))

    def _all_state(self) -> dict[tuple, dict[str, Any]]:
        if not (Path(self.folder) / "state.arrow").exists():
            return {}
        table = _read(self.folder, "state")
        return dict(zip(self._keys_of(table), table.to_pylist(), strict=True))

    def _keys_of(self, table: pa.Table) -> list[tuple]:
        columns = [table.column(name).to_pylist() for name in self.keys]
        return [tuple("nan" if value != value else value for value in key) for key in zip(*columns, strict=True)]

    def _values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: PerKey(values[name]["value"], values[name]["per"]) if per else values[name]["value"]
            for name, per in self.params
        }


def _asked(function: Callable[..., Any], n: int, boundary: pd.Timestamp, since_us: int) -> dict[str, Any]:
    """Of the frame what the function takes by keyword."""
    about = {"boundary": boundary, "since": pd.Timestamp(since_us, unit="us", tz="UTC"), "frame": n}
    takes = inspect.signature(function).parameters
    return {
        name: value for name, value in about.items() if name in takes and takes[name].kind is takes[name].KEYWORD_ONLY
    }


def _read(folder: str | Path, name: str) -> pa.Table:
    with pa.OSFile(str(Path(folder) / f"{name}.arrow")) as file:
        return pa.ipc.open_file(file).read_all()


def _write(folder: str | Path, name: str, table: pa.Table) -> None:
    with pa.OSFile(str(Path(folder) / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
