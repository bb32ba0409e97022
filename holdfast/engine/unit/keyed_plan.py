"""Keyed operators in a unit's plan: rows to their shard, shards to their task, state by the journal.

The number of shards is pinned in the process. Shard s is worked on by task
s modulo the number of tasks, so one task for a small frame and several for a large
one give the same state and output. What a task did to the state it says in a note;
the driver puts the notes of a frame into the commit record, and only then the new
state exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from holdfast.engine.unit.column_pruning import map_in_arrow
from holdfast.engine.unit.worker import current_frames
from holdfast.graph.memory import kept_between_frames
from holdfast.graph.model import Graph, Operator
from holdfast.graph.schemas import Schema
from holdfast.graph.watched import Watch
from holdfast.operators.aggregate import type_of_in
from holdfast.operators.builtin import FRAME, carried
from holdfast.operators.keyed import FrameContext, FrameStep, KeyedSpec, run_keyed
from holdfast.operators.library import keyed_function
from holdfast.operators.per_key import PerKey
from holdfast.operators.runs import RunRef
from holdfast.operators.spec import read_notes
from holdfast.quoting import quoted

__all__ = ["KeyedPlan", "KeyedTask", "NotesFolder", "keyed_plan", "notes_dir"]


@dataclass(frozen=True)
class KeyedTask:
    """The function of one task, called by Spark with the rows of its shards."""

    spec: KeyedSpec
    root: str  # the unit's folder
    shards: int
    tasks: int
    params: tuple[tuple[str, str | None], ...]  # (name, key column it is declared per)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = current_frames()
        name = self.spec.name
        runs = task["state"].get(name, {})
        context = FrameContext(
            steps=tuple(
                FrameStep(frame["n"], frame["boundary_us"], frame["since_us"], self._values(frame["params"]))
                for frame in task["frames"]
            ),
            shards=tuple(range(self.shards)),
            runs={int(shard): tuple(map(RunRef.from_json, own)) for shard, own in runs.items()},
            runs_dir=f"{self.root}/runs/{name}",
            notes_dir=str(notes_dir(Path(self.root), name, task["epoch"], probe=task.get("probe", False))),
            epoch=task["epoch"],
        )
        own = context.of_task(TaskContext.get().partitionId() if self.tasks > 1 else 0, self.tasks)
        watch = None if self.spec.exact else Watch(self.spec.function)  # ours keep nothing
        before = watch.look() if watch is not None else {}
        yield from run_keyed(self.spec, batches, own)
        if watch is not None and (changed := watch.changed(before)) is not None:
            where = f"operator {name!r}, frame {task['frames'][-1]['n']}, {self.spec.where}"
            raise kept_between_frames(
                f"operator {name!r}",
                changed,
                where,
                "the frame was not sealed; its input is kept and the state is as before it",
            )

    def _values(self, values: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {
            name: PerKey(values[name]["value"], values[name]["per"]) if per else values[name]["value"]
            for name, per in self.params
        }


@dataclass(frozen=True)
class KeyedPlan:
    rows: DataFrame  # `_shard`, `_port`, `p{i}_{column}`, each shard in its task
    task: KeyedTask
    outputs: tuple[str, ...]
    ddl: str
    many: bool

    def tagged(self) -> DataFrame:
        """All emitted streams in one DataFrame: `_out`, `o{i}_{column}`."""
        return map_in_arrow(self.rows, self.task, self.ddl)

    def streams(self) -> dict[str, DataFrame]:
        df = self.tagged()
        made = {}
        for out, (stream, (_, schema)) in enumerate(zip(self.outputs, self.task.spec.emits, strict=True)):
            columns = [F.col(quoted(f"o{out}_{name}")).alias(name) for name in schema.names]
            number = [F.col(FRAME)] if self.many else []
            made[stream] = df.where(F.col("_out") == out).select(*number, *columns)
        return made


def keyed_plan(
    graph: Graph,
    operator: Operator,
    dfs: list[DataFrame],
    inputs: list[Schema],
    root: str,
    *,
    wide: bool,
    many: bool,
) -> KeyedPlan:
    time = graph.time if isinstance(graph.time, str) else None
    if operator.kind == "keyed":
        options = operator.options
        emits = tuple((stream.split(".", 1)[-1], options["emits"][stream]) for stream in operator.outputs)
        ports = tuple((edge.port, schema) for edge, schema in zip(operator.inputs, inputs, strict=True))
        spec = KeyedSpec(
            operator.name, tuple(options["keys"]), ports, options["state"], emits, operator.function, time,
            where=operator.line,
        )  # fmt: skip
        shard_by = spec.keys
    else:
        function = keyed_function(operator, inputs, graph, type_of_in(dfs[0]))
        dfs = [prepare(df) for prepare, df in zip(function.prepare, dfs, strict=True)]
        ports = tuple((edge.port, schema) for edge, schema in zip(operator.inputs, function.rows, strict=True))
        spec = KeyedSpec(
            operator.name, function.keys.names, ports, function.state, ((operator.name, function.emits),),
            function.function, time, exact=True, where=operator.line, too_late=operator.options.get("too_late", "drop"),
        )  # fmt: skip
        shard_by = function.shard_by
    # An aggregate comes as partial sums, one row per key: a single task is quicker than a shuffle.
    tasks = graph.partitions if wide and operator.kind != "aggregate" else 1
    params = tuple((name, graph.param(name).per) for name in operator.params)
    rows = _to_shards(dfs, [schema for _, schema in ports], shard_by, graph.partitions)
    rows = rows.repartitionById(tasks, "_shard") if tasks > 1 else rows.coalesce(1)
    task = KeyedTask(spec, root, graph.partitions, tasks, params)
    ddl = ", ".join(f"{quoted(c.name)} {c.type}" for c in Schema.of(spec.output_schema).columns)
    return KeyedPlan(rows, task, operator.outputs, ddl, many)


def _to_shards(dfs: list[DataFrame], schemas: list[Schema], shard_by: tuple[str, ...], shards: int) -> DataFrame:
    parts = []
    for at, df in enumerate(dfs):
        shard = F.pmod(F.xxhash64(*[F.col(quoted(name)) for name in shard_by]), F.lit(shards)).cast("int")
        columns = [*map(F.col, carried(df)), shard.alias("_shard"), F.lit(at).cast("int").alias("_port")]
        for other, schema in enumerate(schemas):
            for column in schema.columns:
                own = F.col(quoted(column.name)).cast(column.type) if other == at else F.lit(None).cast(column.type)
                columns.append(own.alias(f"p{other}_{column.name}"))
        parts.append(df.select(*columns))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionAll(part)
    return whole


def notes_dir(unit: Path, operator: str, epoch: int, *, probe: bool = False) -> Path:
    """Every attempt has its own: what an abandoned one still says is not heard, and a probe only looks."""
    return unit / "notes" / operator / (f"{epoch}-probe" if probe else str(epoch))


class NotesFolder:
    """What the tasks of a keyed operator said they did, frame by frame."""

    def __init__(self, path: Path, shards: int) -> None:
        self.path, self._shards = path, shards
        path.mkdir(parents=True, exist_ok=True)

    def clear(self, n: int | None = None) -> None:
        """Remove the notes of one frame, or all."""
        for note in self.path.glob("*" if n is None else f"{n:08d}.*"):
            note.unlink(missing_ok=True)

    def collect(self, n: int, before: dict[str, list]) -> tuple[dict[str, list], dict[str, int]]:
        """Runs of every shard after frame n, as JSON, and what was counted; the notes are used up."""
        after = dict(before)
        counts: dict[str, int] = {}
        for note in read_notes(self.path, n, range(self._shards)):
            after.update({str(shard): [run.to_json() for run in runs] for shard, runs in note.runs.items()})
            for name, count in note.counts.items():
                counts[name] = counts.get(name, 0) + count
        self.clear(n)
        return after, counts
