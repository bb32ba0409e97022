"""From a unit's operators to one DataFrame that loads, transforms and seals a frame.

A frame plan is built once for a set of parameter values and executed anew for
every frame (`engine.unit.building` says when not): the loaders ask at run time which frame
it is. A stream plan is the query's own plan; its loaders add the boundary row that drives Spark's watermark.

Each plan ends in one tagged DataFrame in one partition and one sealing task, so
a stateful stage runs once however many streams leave the unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.engine.unit.building import views_of_its_own
from holdfast.engine.unit.column_pruning import loaded, loader, map_in_arrow, used_columns
from holdfast.engine.unit.handed import guard_functions
from holdfast.engine.unit.keyed_plan import KeyedPlan, keyed_plan
from holdfast.engine.unit.worker import BOUNDARY, SEALED_SCHEMA, Load, Seal, Then
from holdfast.errors import OperatorError
from holdfast.graph.memory import kept_between_frames
from holdfast.graph.model import Edge, Graph, Operator
from holdfast.graph.schemas import Schema
from holdfast.graph.units import Unit
from holdfast.graph.watched import Watch
from holdfast.operators.builtin import FRAME, carried
from holdfast.operators.rowwise import apply_rowwise
from holdfast.quoting import quoted

__all__ = ["FramePlan", "StreamPlan", "bounded", "call_operator", "param_columns", "port_key", "tag"]


# They carry a row's frame and close by its boundary, so they never mix two frames.
FRAME_AWARE = frozenset({"keyed", "aggregate", "join", "filter", "map", "union", "split"})


def port_key(stream: str, feedback_frames: int) -> str:
    return f"{stream}@{feedback_frames}" if feedback_frames else stream


def param_columns(graph: Graph, operator: Operator, values: dict[str, dict[str, Any]]) -> dict[str, Column]:
    """The operator's parameters as columns: a literal, or a look-up by key."""
    columns = {}
    for name in operator.params:
        param = graph.param(name)
        value = values[name]
        column = F.lit(value["value"])
        if param.per is not None and value["per"]:
            pairs = [F.lit(part) for pair in sorted(value["per"].items()) for part in pair]
            column = F.coalesce(F.element_at(F.create_map(*pairs), F.col(quoted(param.per)).cast("string")), column)
        columns[name] = column
    return columns


def call_operator(operator: Operator, ports: dict[str, DataFrame], params: dict[str, Column]) -> dict[str, DataFrame]:
    """The user's function on these DataFrames; what it returns, by stream."""
    guard_functions()
    watch = Watch(operator.function)
    before = watch.look()
    with views_of_its_own(next(iter(ports.values())).sparkSession):
        result = operator.function(**ports, **params)
    if (name := watch.changed(before)) is not None:
        raise kept_between_frames(f"operator {operator.name!r}", name, operator.line, "nothing was sealed")
    if len(operator.outputs) == 1 and isinstance(result, DataFrame):
        return {operator.outputs[0]: result}
    if isinstance(result, dict):
        parts = [result.get(stream.split(".", 1)[-1]) for stream in operator.outputs]
    else:
        parts = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(parts) != len(operator.outputs) or not all(isinstance(part, DataFrame) for part in parts):
        wanted = " and ".join(repr(stream) for stream in operator.outputs)
        raise OperatorError(
            "HF-G025",
            "NoDataFrame",
            f"operator {operator.name!r} returned {_shown(result)}.",
            where=operator.line,
            why=f"its output is {wanted}: one DataFrame each",
            effect="nothing was sealed",
            do="return a DataFrame (a dict of them, by port, if there are several outputs)",
        )
    return dict(zip(operator.outputs, parts, strict=True))


def refuse_other_columns(operator: Operator, made: dict[str, DataFrame], schemas: dict[str, Schema]) -> None:
    """A function that looks at the data while it plans may give other columns than on an empty frame."""
    for stream, df in made.items():
        found = Schema.of(df.schema)
        if found != schemas[stream]:
            raise OperatorError(
                "HF-G027",
                "ColumnsFromData",
                f"which columns operator {operator.name!r} emits depends on its rows.",
                where=operator.line,
                why=f"on a frame without rows it emits {schemas[stream].ddl}; here {found.ddl}",
                effect="the frame was not sealed; frames before it stand, nothing is lost",
                do="emit the same columns for every frame, e.g. name the values of a pivot",
            )


def _shown(result: object) -> str:
    if isinstance(result, (tuple, list, dict)):
        return f"{type(result).__name__} of {len(result)}"
    return "nothing" if result is None else type(result).__name__


@dataclass
class _Streams:
    """DataFrames by port key while a plan is built."""

    dfs: dict[str, DataFrame] = field(default_factory=dict)

    def port(self, edge: Edge) -> DataFrame:
        return self.dfs[port_key(edge.stream, edge.feedback_frames)]


@dataclass(frozen=True)
class FramePlan:
    """Plan of a unit without Spark state. `wide` reads in chunks and shuffles keys."""

    spark: SparkSession
    graph: Graph
    unit: Unit
    schemas: dict[str, Schema]
    state_root: str
    wide_chunks: int = 2
    ordered: bool = False  # an operator's answer depends on the order of rows where values tie

    def build(
        self, values: dict[str, dict[str, Any]], name: str, *, wide: bool, many: bool = False, prune: bool = True
    ) -> DataFrame:
        """The plan of this name, with loaders that read only the columns somebody uses."""
        whole = self._build(values, name, wide, many, {})
        if not prune:
            return whole
        needed = used_columns(whole)
        if all(needed.get(load) == names for load, names in self._loaded().items()):
            return whole
        return self._build(values, name, wide, many, needed)

    def _loaded(self) -> dict[str, frozenset[str]]:
        return {
            port_key(p.stream, p.feedback_frames): frozenset(self.schemas[p.stream].names) for p in self.unit.inputs
        }

    def _build(
        self, values: dict[str, dict[str, Any]], name: str, wide: bool, many: bool, needed: dict[str, frozenset[str]]
    ) -> DataFrame:
        chunks = self.wide_chunks if wide else 1
        streams = _Streams()
        time = self.graph.time if isinstance(self.graph.time, str) else None
        for port in self.unit.inputs:
            schema = self.schemas[port.stream]  # of a feedback edge too: `check` has compared them
            key = port_key(port.stream, port.feedback_frames)
            chunk_ids = self.spark.range(0, chunks, 1, chunks)
            load = Load(key, schema, chunks, time, many=many, ordered=chunks == 1 and self.ordered)
            streams.dfs[key] = loaded(chunk_ids, load, needed.get(key), name)
        last: KeyedPlan | None = None
        for operator in map(self.graph.operator, self.unit.operators):
            ports = {edge.port: streams.port(edge) for edge in operator.inputs}
            if operator.kind == "frame":
                made = call_operator(operator, ports, param_columns(self.graph, operator, values))
                refuse_other_columns(operator, made, self.schemas)
            elif operator.kind in ("keyed", "aggregate", "join"):
                inputs = [self.schema_of(edge) for edge in operator.inputs]
                keyed = keyed_plan(
                    self.graph, operator, list(ports.values()), inputs, self.state_root, wide=wide, many=many
                )
                if self.unit.outputs == operator.outputs:
                    last = keyed
                    continue
                made = keyed.streams()
            else:
                made = apply_rowwise(operator.kind, operator.options, list(ports.values()), operator.outputs)
            for stream, df in made.items():
                names = [*carried(df), *map(quoted, self.schemas[stream].names)]
                streams.dfs[stream] = df.select(*map(F.col, names))
        outputs = tuple((stream, self.schemas[stream]) for stream in self.unit.outputs)
        seal = Seal(outputs, time, tagged=last is not None or len(outputs) > 1)
        if last is not None:
            # In one task, state and seal share a worker: no way back through the JVM between them.
            if last.task.tasks == 1:
                return map_in_arrow(last.rows, Then(last.task, seal), SEALED_SCHEMA)
            return map_in_arrow(last.tagged().repartition(1), seal, SEALED_SCHEMA)
        tagged = tag([streams.dfs[stream] for stream in self.unit.outputs], self.unit.outputs, self.schemas)
        whole = tagged.repartition(1) if wide else tagged.coalesce(1)
        return map_in_arrow(whole, seal, SEALED_SCHEMA)

    @cached_property
    def many(self) -> bool:
        """Whether all operators are frame-aware, so that a batch may hold several frames."""
        kinds = {self.graph.operator(name).kind for name in self.unit.operators}
        names = {name for schema in self.schemas.values() for name in schema.names}
        return kinds <= FRAME_AWARE and FRAME not in names and not any(p.feedback_frames for p in self.unit.inputs)

    def schema_of(self, edge: Edge) -> Schema:
        return edge.schema if edge.is_feedback else self.schemas[edge.stream]


def tag(dfs: list[DataFrame], outputs: tuple[str, ...], schemas: dict[str, Schema]) -> DataFrame:
    """Several streams as one DataFrame: `_out` says which, `o{i}_{column}` holds its columns."""
    if len(dfs) == 1:
        return dfs[0]
    tagged = []
    for out, df in enumerate(dfs):
        columns = [*map(F.col, carried(df)), F.lit(out).cast("int").alias("_out")]
        for other, stream in enumerate(outputs):
            for column in schemas[stream].columns:
                value = F.col(quoted(column.name)) if other == out else F.lit(None).cast(column.type)
                columns.append(value.alias(f"o{other}_{column.name}"))
        tagged.append(df.select(*columns))
    whole = tagged[0]
    for part in tagged[1:]:
        whole = whole.unionAll(part)
    return whole


@dataclass(frozen=True)
class StreamPlan:
    """Plan of a unit with Spark's own state: stream operators and row-wise built-ins."""

    spark: SparkSession
    graph: Graph
    unit: Unit
    schemas: dict[str, Schema]
    ordered: bool = False

    def build(self, ticks: DataFrame, values: dict[str, dict[str, Any]], plan: str) -> DataFrame:
        streams = _Streams()
        time = self.graph.time if isinstance(self.graph.time, str) else None
        lateness_ms = max(
            (self.graph.operator(name).options.get("lateness_ms") or 0 for name in self.unit.operators),
            default=0,
        )
        for port in self.unit.inputs:
            schema = self.schemas[port.stream]
            key = port_key(port.stream, port.feedback_frames)
            at = time if time in schema else None
            streams.dfs[key] = with_boundary(
                ticks, Load(key, schema, 1, at, at is not None, ordered=self.ordered), lateness_ms, plan
            )
        for name in self.unit.operators:
            operator = self.graph.operator(name)
            ports = {edge.port: streams.port(edge) for edge in operator.inputs}
            if operator.kind == "stream":
                made = call_operator(operator, ports, param_columns(self.graph, operator, values))
            else:
                made = apply_rowwise(operator.kind, operator.options, list(ports.values()), operator.outputs)
            for stream, df in made.items():
                streams.dfs[stream] = df.select(*[F.col(quoted(c)) for c in self.schemas[stream].names])
        return tag([streams.dfs[stream] for stream in self.unit.outputs], self.unit.outputs, self.schemas)

    def seal(self, batch: DataFrame) -> DataFrame:
        outputs = tuple((stream, self.schemas[stream]) for stream in self.unit.outputs)
        time = self.graph.time if isinstance(self.graph.time, str) else None
        return map_in_arrow(batch.coalesce(1), Seal(outputs, time, tagged=len(outputs) > 1), SEALED_SCHEMA)

    @property
    def mode(self) -> str:
        modes = {
            self.graph.operator(name).options.get("mode") or "append"
            for name in self.unit.operators
            if self.graph.operator(name).kind == "stream"
        }
        return next(iter(sorted(modes)))


def with_boundary(ticks: DataFrame, load: Load, lateness_ms: int, plan: str) -> DataFrame:
    """A port of the stream part: rows, with the watermark set from the frame's boundary."""
    if not load.boundary_row:
        return map_in_arrow(ticks, loader(load, plan), load.schema.ddl)
    rows = map_in_arrow(ticks, loader(load, plan), f"{load.schema.ddl}, {BOUNDARY} boolean")
    return bounded(rows, load.time, lateness_ms)


def bounded(rows: DataFrame, time: str, lateness_ms: int) -> DataFrame:
    """Rows without those that carry the boundary, which have moved the watermark.

    The filter that takes the boundary row out must name the time column: any other
    filter is pushed below the watermark and no window ever closes.
    """
    seen = rows.withWatermark(quoted(time), f"{lateness_ms} milliseconds")
    return seen.where(~F.col(BOUNDARY) | F.col(quoted(time)).isNull()).drop(BOUNDARY)
