"""The stream process as a pure graph: a directed multigraph of typed ports.

A stream is named by its producer: a source's name, an operator's name, or
"operator.port" where an operator has several outputs. An edge is one input port
reading one stream; parallel edges are two ports reading the same stream. Every
cycle must hold a feedback edge, which delivers frame n-k in frame n, so the graph
without its feedback edges has a topological order and frame n can be worked off in it.

The graph may be ill-formed: `rules.check_structure` says so. The lookups here never
raise on an ill-formed graph. Pure: no Spark, file, clock or randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

from holdfast.graph.hosting import DEFAULT_HOSTS, Backup, Host
from holdfast.graph.promises import Promise
from holdfast.graph.protections import Protection, none
from holdfast.graph.restarting import OnDegraded, Supervision
from holdfast.graph.schemas import Schema

__all__ = [
    "ARRIVAL",
    "BUILT_IN",
    "FRAME_WORDS",
    "STATEFUL",
    "STATELESS_BUILT_IN",
    "Arrival",
    "Declares",
    "Edge",
    "Graph",
    "Operator",
    "Param",
    "Port",
    "Sink",
    "Source",
]


class Arrival(Enum):
    """Frames are cut by the clock at which an element arrived, not by a column of it."""

    ARRIVAL = "arrival"

    def __repr__(self) -> str:
        return "hf.ARRIVAL"

    __str__ = __repr__


ARRIVAL = Arrival.ARRIVAL

STATEFUL = frozenset({"stream", "keyed", "aggregate", "join"})
STATELESS_BUILT_IN = frozenset({"filter", "map", "union", "split"})
BUILT_IN = STATELESS_BUILT_IN | {"aggregate", "join"}
# A keyed function may ask for these of the frame by keyword; they are no parameters.
FRAME_WORDS = frozenset({"boundary", "since", "frame"})


@dataclass(frozen=True, slots=True)
class Port:
    """An output port; its name is the stream's. `schema` is None until types are known."""

    name: str
    schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """Input port `port` of `consumer` reads `stream`, `feedback_frames` frames late."""

    stream: str
    consumer: str
    port: str
    feedback_frames: int = 0  # 0: an ordinary edge
    schema: Schema | None = None  # declared; needed on feedback edges
    delay_ms_max: int | None = None  # sealed to read
    line: str = ""

    @property
    def is_feedback(self) -> bool:
        return self.feedback_frames > 0

    def __str__(self) -> str:
        return f"{self.stream} -> {self.consumer}.{self.port}"


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    reader: Any  # sources.Reader
    schema: Schema | None
    time: str | Arrival | None = None
    late: str = "admit"  # "admit" | "drop" | "quarantine" | "fail"
    delay_ms_max: int | None = None
    line: str = ""
    keep_ms: int | None = None  # how long the source log keeps what was acknowledged
    boundary: str | None = None  # "clock" | "hold": what a silent source does; None: as suits its reader
    bad: str = "fail"  # "fail" | "drop" | "quarantine"
    new_columns: str = "ignore"  # "ignore" | "fail" | "keep"
    ahead_ms: int | None = None  # how far ahead of the wall clock an element may be; None: as far as it says
    on_ahead: str = "quarantine"  # "admit" | "drop" | "quarantine" | "fail"


@dataclass(frozen=True, slots=True)
class Operator:
    """One vertex. `options` holds what belongs to its kind:

    frame      {"emits"?: {stream: Schema | None}}
    stream     {"mode", "lateness_ms", "emits"?}
    keyed      {"keys": (..), "state": Schema, "emits": {stream: Schema}}
    aggregate  {"by": (..), "emits": {column: (function, expression)}, "window_ms", "every_ms",
                "session_ms", "window_rows", "every_rows", "time", "lateness_ms"}
    join       {"on": (..), "within_ms", "how", "time", "emits": (expressions) | None}
    split      {"into": {port: expression}}
    filter     {"where"}      map {"select": (..)}      union {}
    """

    name: str
    kind: str  # "frame" | "stream" | "keyed" | "aggregate" | "join" | "union" | "split" | "filter" | "map"
    inputs: tuple[Edge, ...]  # in port order; disabled ports have no edge
    outputs: tuple[str, ...]  # streams: the operator's name, or "operator.port" each
    params: tuple[str, ...] = ()
    function: Callable[..., Any] | None = None  # call it with ports and params by keyword
    options: dict[str, Any] = field(default_factory=dict)
    protect: Protection | None = None  # its own; None: the process's
    approximate: bool = False
    delay_ms_max: int | None = None  # inputs complete to output sealed
    spark_conf: dict[str, str] = field(default_factory=dict)
    line: str = ""
    delay_ms_min: int = 1  # the least time one frame takes
    unit: str | None = None  # declared: operators with the same word share a unit
    apart: bool = False  # declared: a unit of its own
    disabled: tuple[str, ...] = ()  # ports exempt from rules 1 and 2
    host: str | None = None  # declared: the logical host it lives on
    on_error: str = "stop"  # a row on which it raises each time: "stop" | "quarantine" | "drop"
    stabilises_ms: int | None = None  # declared: so long after a gap its answers no longer depend on it

    @property
    def is_stateful(self) -> bool:
        return self.kind in STATEFUL


@dataclass(frozen=True, slots=True)
class Sink:
    name: str
    writer: Any  # sinks.Writer
    stream: str
    promises: tuple[Promise, ...] = ()
    line: str = ""
    delay_ms_max: int | None = None
    on_error: str = "fail"  # a row that the target refuses: "fail" | "quarantine" | "drop"


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    default: Any
    per: str | None = None  # a key column: one value per key
    between: tuple[Any, Any] | None = None
    doc: str = ""
    line: str = ""


@dataclass(frozen=True)
class Graph:
    name: str
    frame_ms: int
    time: str | Arrival | None
    grace_ms: int
    sources: tuple[Source, ...] = ()
    operators: tuple[Operator, ...] = ()
    sinks: tuple[Sink, ...] = ()
    params: tuple[Param, ...] = ()
    protect: Protection = none
    chunks: int | None = None  # reader chunks: pinned here, never by a host's cores
    partitions: int = 2  # shuffle partitions: pinned likewise
    line: str = ""
    queue_bytes: int = 512 * 1024 * 1024
    state: str | None = None  # state folder as declared; None: the engine's default
    base: str = "."  # folder of the user's file: relative paths start here
    disabled: tuple[str, ...] = ()  # ports left unconnected on purpose
    supervision: Supervision = Supervision()
    on_degraded: OnDegraded = None
    notes: tuple[Any, ...] = ()  # findings made while declaring (rules.check_structure reports them)
    hosts: tuple[Host, ...] = ()  # declared ones; empty: two, where something is protected
    backup: Backup | None = None
    values: str = "show"  # "hide": rows are never quoted in errors, logs and traces
    durability: str = "synced"  # "fast": a loss of power may cost what was not yet on disk

    # -- lookups -----------------------------------------------------------------

    @cached_property
    def _producers(self) -> dict[str, Source | Operator]:
        found: dict[str, Source | Operator] = {}
        for source in self.sources:
            found.setdefault(source.name, source)
        for operator in self.operators:
            for stream in operator.outputs:
                found.setdefault(stream, operator)
        return found

    @cached_property
    def _consumers(self) -> dict[str, tuple[Edge, ...]]:
        found: dict[str, list[Edge]] = {}
        for edge in self.edges():
            found.setdefault(edge.stream, []).append(edge)
        return {stream: tuple(edges) for stream, edges in found.items()}

    @property
    def streams(self) -> tuple[str, ...]:
        """All streams in the order their producers were declared."""
        return tuple(self._producers)

    @property
    def names(self) -> set[str]:
        """Everything a person named: vertices, streams, ports, columns declared, parameters."""
        vertices: tuple[Operator | Sink | Param, ...] = (*self.operators, *self.sinks, *self.params)
        found = {self.name, *self.streams, *(each.name for each in vertices)}
        found |= {edge.port for edge in self.edges()}
        schemas = [source.schema for source in self.sources] + [edge.schema for edge in self.edges()]
        for operator in self.operators:
            schemas += [operator.options.get("state"), *dict(operator.options.get("emits") or {}).values()]
        return found | {name for schema in schemas if isinstance(schema, Schema) for name in schema.names}

    def edges(self) -> Iterator[Edge]:
        for operator in self.operators:
            yield from operator.inputs

    def producer_of(self, stream: str) -> Source | Operator | None:
        return self._producers.get(stream)

    def consumers_of(self, stream: str) -> tuple[Edge, ...]:
        """Every input port that reads the stream, feedback ones too."""
        return self._consumers.get(stream, ())

    def sinks_of(self, stream: str) -> tuple[Sink, ...]:
        return tuple(sink for sink in self.sinks if sink.stream == stream)

    def operator(self, name: str) -> Operator | None:
        return next((each for each in self.operators if each.name == name), None)

    def source(self, name: str) -> Source | None:
        return next((each for each in self.sources if each.name == name), None)

    def sink(self, name: str) -> Sink | None:
        return next((each for each in self.sinks if each.name == name), None)

    def param(self, name: str) -> Param | None:
        return next((each for each in self.params if each.name == name), None)

    def protection_of(self, operator: Operator) -> Protection:
        return operator.protect if operator.protect is not None else self.protect

    def above(self, stream: str) -> tuple[Operator, ...]:
        """Every operator on the way to this stream, its producer included."""
        found: dict[str, Operator] = {}
        todo = [stream]
        while todo:
            producer = self.producer_of(todo.pop())
            if isinstance(producer, Operator) and producer.name not in found:
                found[producer.name] = producer
                todo += [edge.stream for edge in producer.inputs]
        return tuple(found.values())

    @cached_property
    def is_protected(self) -> bool:
        """Whether any operator has checkpoints that outlive its host."""
        return any(self.protection_of(operator) != none for operator in self.operators)

    @cached_property
    def homes(self) -> tuple[Host, ...]:
        """The logical hosts; none where nothing is protected and none is declared."""
        if self.hosts or not self.is_protected:
            return self.hosts
        return tuple(Host(name) for name in DEFAULT_HOSTS)

    # -- order and cycles --------------------------------------------------------

    @cached_property
    def order(self) -> tuple[Operator, ...]:
        """Operators, upstream first; ties as declared. Those on a cycle without feedback come last."""
        waits = {
            operator.name: {
                producer.name
                for edge in operator.inputs
                if not edge.is_feedback and isinstance(producer := self.producer_of(edge.stream), Operator)
            }
            for operator in self.operators
        }
        done: list[Operator] = []
        left = list(self.operators)
        while left:
            ready = next((each for each in left if not waits[each.name]), None)
            if ready is None:
                return tuple(done + left)
            left.remove(ready)
            done.append(ready)
            for names in waits.values():
                names.discard(ready.name)
        return tuple(done)

    def cycles(self, *, feedback: bool = True) -> tuple[tuple[str, ...], ...]:
        """Sets of operators that reach each other, each in declared order.

        With feedback=False only ordinary edges count: such a cycle can never run.
        """
        after: dict[str, set[str]] = {operator.name: set() for operator in self.operators}
        for edge in self.edges():
            producer = self.producer_of(edge.stream)
            if isinstance(producer, Operator) and (feedback or not edge.is_feedback):
                after[producer.name].add(edge.consumer)
        reach = {name: _reachable(name, after) for name in after}
        found: list[tuple[str, ...]] = []
        seen: set[str] = set()
        for name in after:
            if name in seen or name not in reach[name]:
                continue
            members = tuple(other for other in after if other in reach[name] and name in reach[other])
            seen.update(members)
            found.append(members)
        return tuple(found)


def _reachable(start: str, after: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(after[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(after.get(name, ()))
    return seen


class Declares(Protocol):
    """A stream process as what runs it knows it: `declare.process.StreamProcess`."""

    def graph(self) -> Graph: ...
