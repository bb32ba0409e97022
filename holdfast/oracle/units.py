"""The frames of one unit computed again from its inputs.

Without state each frame stands alone: it is computed from its own inputs, the last first, so that
what a function remembers of one frame meets another one than in the run. With state all frames up to the last one wanted
are needed: what stands before the state is computed frame by frame where it is a user's function, the state by one query
over all rows (`aggregates`, `joins`) or by folding (`folding`). An operator over the stream has no other way
than Spark's own; it is left out, and that is said.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from holdfast.graph.model import Edge, Graph, Operator
from holdfast.graph.schemas import Column, Schema
from holdfast.graph.units import Unit, UnitInput
from holdfast.oracle.aggregates import AggregateQuery
from holdfast.oracle.folding import Fold, Folded
from holdfast.oracle.functions import call, rowwise, values_as_columns
from holdfast.oracle.inputs import FrameTimes, Inputs
from holdfast.oracle.joins import JoinQuery
from holdfast.oracle.tables import N, Tables, by_frame, fresh
from holdfast.quoting import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Made", "UnitFrames"]

# A condition on a number that differs by less may fall either way; far above what addition does to it.
_NUDGE = 1e-10


@dataclass(frozen=True)
class Made:
    """One frame of one stream, computed here; or the error that came instead."""

    stream: str
    n: int
    rows: pa.Table | None
    error: Exception | None = None
    users: bool = False  # the error is of the user's function
    slack: float = 0.0
    otherwise: tuple[pa.Table, ...] = ()  # the same, had the numbers been a little smaller or larger


class UnitFrames:
    def __init__(
        self, spark: SparkSession, graph: Graph, unit: Unit, inputs: Inputs, times: FrameTimes, tables: Tables
    ) -> None:
        self._spark, self._graph, self._unit, self._inputs, self._times = spark, graph, unit, inputs, times
        self._tables, self._schemas = tables, inputs.schemas
        self._operators = [graph.operator(name) for name in unit.operators]
        self._conf = self._operators[0].spark_conf

    @property
    def left_out(self) -> str:
        """Why there is no other way; "" if there is one."""
        stream = next((each for each in self._operators if each.kind == "stream"), None)
        if stream is None:
            return ""
        return f"{stream.name!r} works over the stream: its state is Spark's, and there is no second way to compute it"

    def way(self, stream: str) -> str:
        """How this stream is computed, in words."""
        if self.left_out:
            return ""
        if self._state is None or stream in self._before_state:
            return "each frame alone, from its inputs"
        if self._state.kind == "keyed":
            return "the function folded over all frames, one call each"
        return "one batch query over all rows up to the frame"

    def frames(self, wanted: Mapping[str, Collection[int]]) -> Iterator[Made]:
        """The frames wanted of each stream."""
        if self._state is None:
            for n in sorted({n for frames in wanted.values() for n in frames}, reverse=True):
                yield from self._alone(n, [stream for stream, frames in wanted.items() if n in frames])
            return
        behind = [stream for stream in wanted if stream not in self._before_state]
        asked = sorted({n for stream in behind for n in wanted[stream]})
        before = {stream: frames for stream, frames in wanted.items() if stream in self._before_state}
        fed: dict[Any, Any] = {}
        failed = None
        for made in self._upto(max(asked, default=0), before):
            if made.stream in before and made.n in before[made.stream]:
                yield made
            failed = made if made.error is not None else failed  # the earliest: the last comes first
            fed.setdefault(made.stream, {})[made.n] = made.rows
        if asked:
            yield from self._with_state(fed, failed, behind, wanted, asked)

    # ---- one frame by itself ----

    def _alone(self, n: int, streams: Collection[str]) -> Iterator[Made]:
        try:
            with fresh(self._spark, self._conf) as spark:
                dfs = self._dfs(spark, n)
                made = {stream: self._collected(dfs[stream], stream) for stream in streams}
        except Exception as error:
            users = any(operator.kind == "frame" for operator in self._stateless)
            yield from (Made(stream, n, None, error, users) for stream in streams)
            return
        finally:
            self._tables.forget()
        yield from (Made(stream, n, table) for stream, table in made.items())

    def _dfs(self, spark: SparkSession, n: int) -> dict[str, DataFrame]:
        """The streams of the unit that stand before its state, in frame n; ports included."""
        dfs = {}
        for port in self._unit.inputs:
            dfs[_key(port)] = self._tables.df(
                spark, self._inputs.port(self._unit.name, port, n), self._schemas[port.stream]
            )
        for operator in self._stateless:
            dfs |= self._applied(operator, {edge.port: dfs[_key(edge)] for edge in operator.inputs}, n)
        return dfs

    def _applied(self, operator: Operator, ports: Mapping[str, DataFrame], n: int | None) -> dict[str, DataFrame]:
        """`n`: the frame; None where rows carry the numbers of theirs."""
        if operator.kind == "frame":
            return call(operator, ports, values_as_columns(self._graph, operator, self._inputs.params.at(n)))
        return rowwise(operator, list(ports.values()), numbered=n is None)

    # ---- with state: everything up to a frame ----

    def _upto(self, last: int, wanted: Mapping[str, Collection[int]]) -> Iterator[Made]:
        """What the state is fed, for all frames up to `last`, and what is wanted of the streams before it."""
        feeding = {
            edge.stream for operator in (self._state, *self._after) for edge in operator.inputs if self._is_inside(edge)
        }
        frames = range(self._inputs.first, max([last, *(n for each in wanted.values() for n in each)]) + 1)
        if not any(operator.kind == "frame" for operator in self._stateless):
            yield from self._all_at_once(frames, feeding | {*wanted})
            return
        for n in reversed(frames):
            streams = {stream for stream, each in wanted.items() if n in each} | (feeding if n <= last else set())
            yield from self._alone(n, streams) if streams else ()

    def _all_at_once(self, frames: range, streams: Collection[str]) -> Iterator[Made]:
        """Row by row operators: what a row becomes depends on that row alone."""
        if not streams:
            return
        with fresh(self._spark, self._conf) as spark:
            dfs = {_key(port): self._numbered(spark, port, frames) for port in self._unit.inputs}
            for operator in self._stateless:
                dfs |= self._applied(operator, {edge.port: dfs[_key(edge)] for edge in operator.inputs}, None)
            for stream in streams:
                found = by_frame(self._collected(dfs[stream], stream, numbered=True), frames)
                yield from (Made(stream, n, table) for n, table in found.items())

    def _numbered(self, spark: SparkSession, port: UnitInput | Edge, frames: Iterable[int]) -> DataFrame:
        own = UnitInput(port.stream, port.feedback_frames)
        given = {n: self._inputs.port(self._unit.name, own, n) for n in frames}
        return self._tables.numbered(spark, given, self._schemas[port.stream])

    def _with_state(
        self, fed: Mapping[str, dict[int, pa.Table]], failed: Made | None, behind: Collection[str],
        wanted: Mapping[str, Collection[int]], asked: list[int],
    ) -> Iterator[Made]:  # fmt: skip
        if failed is not None:  # without that frame there is no state after it
            late = {stream: [n for n in wanted[stream] if n >= failed.n] for stream in behind}
            ends = [
                Made(stream, min(late[stream]), None, failed.error, failed.users) for stream in behind if late[stream]
            ]
            yield from ends
            asked = [n for n in asked if n < failed.n]
        try:
            with fresh(self._spark, self._conf) as spark:
                for made in self._answers(spark, fed, behind, asked) if asked else ():
                    if made.error is not None or made.n in wanted[made.stream]:
                        yield made
        except Exception as error:
            yield from (Made(stream, min(asked), None, error) for stream in behind)

    def _answers(
        self, spark: SparkSession, fed: Mapping[str, dict[int, pa.Table]], behind: Collection[str], asked: list[int]
    ) -> Iterator[Made]:
        frames, slack = range(self._inputs.first, max(asked) + 1), 0.0
        if self._state.kind == "keyed":
            folded = self._folded(spark, fed, frames, asked)
            dfs = {
                stream: self._tables.numbered(spark, made, self._schemas[stream])
                for stream, made in folded.frames.items()
            }
            late = [n for n in asked if folded.raised_at is not None and n >= folded.raised_at]
            yield from (Made(stream, late[0], None, folded.error, users=True) for stream in behind if late)
            asked = [n for n in asked if n not in late]
        else:
            dfs, slack = self._queried(
                spark, [self._given(spark, edge, fed, frames) for edge in self._state.inputs], asked
            )
        ways = [dfs]
        if slack and self._after:
            ways += [self._nudged(dfs, by) for by in (1 - _NUDGE, 1 + _NUDGE)]
        beside = [
            edge
            for operator in self._after
            for edge in operator.inputs
            if edge.is_feedback or edge.stream not in self._behind
        ]
        given = {_key(edge): self._given(spark, edge, fed, asked) for edge in beside}
        for stream in behind:
            found = [
                by_frame(self._collected(self._followed(way, given)[stream], stream, numbered=True), asked)
                for way in ways
            ]
            for n in asked:
                first, *others = (frames[n] for frames in found)
                yield Made(stream, n, first, slack=slack, otherwise=tuple(others))

    def _given(
        self, spark: SparkSession, edge: Edge, fed: Mapping[str, dict[int, pa.Table]], frames: Iterable[int]
    ) -> DataFrame:
        """The rows of an edge in these frames, with their numbers."""
        if not self._is_inside(edge):
            return self._numbered(spark, edge, frames)
        return self._tables.numbered(spark, {n: fed[edge.stream][n] for n in frames}, self._schemas[edge.stream])

    def _followed(self, made: Mapping[str, DataFrame], given: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        dfs = {**given, **made}
        for operator in self._after:
            dfs |= self._applied(operator, {edge.port: dfs[_key(edge)] for edge in operator.inputs}, None)
        return dfs

    def _queried(
        self, spark: SparkSession, ports: list[DataFrame], asked: list[int]
    ) -> tuple[dict[str, DataFrame], float]:
        """The answers of a built-in with their frames, made into tables; and what addition may have done to them."""
        state = self._state
        stream = state.outputs[0]
        schemas = [self._schemas[edge.stream] for edge in state.inputs]
        emits = self._schemas[stream]
        if state.kind == "join":
            made, slack = (
                JoinQuery(spark, self._graph, state, schemas[0], schemas[1], emits, self._times).frames(
                    ports[0], ports[1], asked
                ),
                0.0,
            )
        else:
            query = AggregateQuery(spark, self._tables, self._graph, state, schemas[0], emits, self._times)
            made, slack = query.frames(ports[0], asked), query.slack(ports[0])
        return {stream: self._again(spark, self._collected(made, stream, numbered=True), stream)}, slack

    def _folded(
        self, spark: SparkSession, fed: Mapping[str, dict[int, pa.Table]], frames: range, asked: list[int]
    ) -> Folded:
        state = self._state
        with tempfile.TemporaryDirectory(prefix="holdfast-fold-") as folder:
            fold = Fold(self._graph, state, [self._schemas[edge.stream] for edge in state.inputs], Path(folder))
            for n in frames:
                ports = [
                    fed[edge.stream][n]
                    if self._is_inside(edge)
                    else self._inputs.port(self._unit.name, UnitInput(edge.stream, edge.feedback_frames), n)
                    for edge in state.inputs
                ]
                fold.give(n, ports, self._times, self._inputs.params.at(n))
            return fold.run(spark, asked)

    def _again(self, spark: SparkSession, table: pa.Table, stream: str) -> DataFrame:
        return self._tables.df(spark, table, Schema((*self._schemas[stream].columns, Column(N, "bigint"))))

    def _nudged(self, dfs: Mapping[str, DataFrame], by: float) -> dict[str, DataFrame]:
        """The same answers with all floating point numbers a little smaller or larger."""
        floats = {"double", "float"}
        return {
            stream: df.select(*(
                (F.col(quoted(name)) * by).cast(kind).alias(name) if kind in floats else F.col(quoted(name)) for name, kind in df.dtypes
            ))
            for stream, df in dfs.items()
        }  # fmt: skip

    def _collected(self, df: DataFrame, stream: str, *, numbered: bool = False) -> pa.Table:
        names = [*self._schemas[stream].names, *([N] if numbered else [])]
        return df.select(*map(quoted, names)).toArrow()

    # ---- what stands where ----

    @cached_property
    def _state(self) -> Operator | None:
        """The operator with state; a unit has one at most."""
        return next((each for each in self._operators if each.is_stateful), None)

    @cached_property
    def _after(self) -> list[Operator]:
        """Operators that read what the one with state makes."""
        streams, found = {*self._state.outputs}, []
        for operator in self._operators:
            if any(edge.stream in streams and not edge.is_feedback for edge in operator.inputs):
                found.append(operator)
                streams |= {*operator.outputs}
        return found

    @cached_property
    def _behind(self) -> set[str]:
        """Streams of the one with state and of those after it."""
        return {stream for operator in (self._state, *self._after) for stream in operator.outputs}

    def _is_inside(self, edge: Edge) -> bool:
        """It is read in the frame it is made in, from an operator before the state."""
        return not edge.is_feedback and edge.stream in self._before_state

    @cached_property
    def _stateless(self) -> list[Operator]:
        """Those that need no state to be computed."""
        if self._state is None:
            return self._operators
        return [each for each in self._operators if each is not self._state and each not in self._after]

    @cached_property
    def _before_state(self) -> set[str]:
        return {stream for operator in self._stateless for stream in operator.outputs}


def _key(port: UnitInput | Edge) -> str:
    return f"{port.stream}@{port.feedback_frames}" if port.feedback_frames else port.stream
