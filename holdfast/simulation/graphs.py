"""Graphs to rehearse on, and the ideal run that every schedule is compared with.

Operators are real in what matters: deterministic, with state that depends on every
input ever seen, so that one lost, doubled or reordered frame changes all that
follows. Contents are hashes of (state, frame, inputs); sizes follow from contents.

The outside world is drawn as units too: `log:X` feeds X, `sink:X` takes from X.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from zlib import crc32

from holdfast.protocols.dialogue import OutputFrame
from holdfast.protocols.messages import Kind
from holdfast.protocols.none import ACK_LAG
from holdfast.protocols.wiring import InputEdge, OutputEdge, UnitId, Wiring

__all__ = [
    "FRAME_BYTES_MAX",
    "GRAPHS",
    "Edge",
    "Graph",
    "first_state",
    "graph_for",
    "ideal_run",
    "lagging",
    "next_state",
    "outputs_of",
]

FRAME_BYTES_MAX = 100
_MASK = (1 << 61) - 2


@dataclass(frozen=True, slots=True)
class Edge:
    name: str
    producer: UnitId
    port: int
    consumer: UnitId
    delay: int


@dataclass(frozen=True, slots=True)
class Graph:
    """Wirings of inner units, source logs and sinks, in an order that follows the data."""

    name: str
    wirings: dict[UnitId, Wiring]
    edges: tuple[Edge, ...]
    inner: tuple[UnitId, ...] = field(default=())

    @property
    def has_cycle(self) -> bool:
        return any(wiring.on_cycle for wiring in self.wirings.values())


def _build(name: str, units: Iterable[str], links: Iterable[tuple[str, int, str, int]]) -> Graph:
    """Links are (producer, port, consumer, delay); logs and sinks are found by name."""
    inner = tuple(units)
    edges = tuple(Edge(f"{x}.{port}>{y}#{i}", x, port, y, delay) for i, (x, port, y, delay) in enumerate(links))
    reach: dict[str, set[str]] = {}
    for unit in inner:
        seen: set[str] = set()
        todo = [unit]
        while todo:
            here = todo.pop()
            for edge in edges:
                if edge.producer == here and edge.consumer not in seen:
                    seen.add(edge.consumer)
                    todo.append(edge.consumer)
        reach[unit] = seen
    names = [e.producer for e in edges if e.producer.startswith("log:")]
    names += inner
    names += [e.consumer for e in edges if e.consumer.startswith("sink:")]
    wirings = {}
    for unit in dict.fromkeys(names):
        wirings[unit] = Wiring(
            unit,
            tuple(
                InputEdge(
                    e.name,
                    e.producer,
                    e.delay,
                    e.producer in reach.get(unit, ()),
                    e.producer.startswith("log:"),
                )
                for e in edges
                if e.consumer == unit
            ),
            tuple(
                OutputEdge(
                    e.name,
                    e.port,
                    e.consumer,
                    e.delay,
                    unit in reach.get(e.consumer, ()),
                    e.consumer.startswith("sink:"),
                )
                for e in edges
                if e.producer == unit
            ),
        )
    return Graph(name, wirings, edges, inner)


def _chain(*links: str) -> list[tuple[str, int, str, int]]:
    """'a>b', 'a.1>b' (port 1), 'a>b@2' (feedback with delay 2)."""
    out = []
    for link in links:
        left, right = link.split(">")
        x, _, port = left.partition(".")
        y, _, delay = right.partition("@")
        out.append((x, int(port or 0), y, int(delay or 0)))
    return out


_SP2 = ("log:sensor1>sensor1", "log:sensor2>sensor2", "sensor1>join", "sensor2>join", "join>avg")
_SP2_UNITS = ("sensor1", "sensor2", "join", "avg")

_FIXED = {
    "sp1": _build(
        "sp1",
        ("ecg", "filter", "qrs"),
        _chain("log:ecg>ecg", "ecg>filter", "filter>qrs", "qrs>sink:qrs"),
    ),
    "sp2": _build("sp2", _SP2_UNITS, _chain(*_SP2, "avg>sink:avg")),
    "sp3": _build("sp3", _SP2_UNITS, _chain(*_SP2, "avg>sink:avg", "avg>sensor1@1")),
    "sp4": _build("sp4", _SP2_UNITS, _chain(*_SP2, "avg>sink:avg", "avg>sensor1@1", "avg>sensor2@1")),
    "diamond": _build(
        "diamond",
        ("source", "left", "right", "join"),
        _chain(
            "log:source>source",
            "source>left",
            "source.1>right",
            "left>join",
            "right>join",
            "join>sink:join",
        ),
    ),
}

GRAPHS = (*_FIXED, "random", "cycles")
"""`random` is acyclic, `cycles` has one or two feedback edges; both differ by seed."""


def graph_for(name: str, rng: Random) -> Graph:
    if name in _FIXED:
        return _FIXED[name]
    if name not in GRAPHS:
        raise ValueError(f"no graph {name!r}; there are {', '.join(GRAPHS)}")
    return _random_graph(rng, cyclic=name == "cycles")


def _random_graph(rng: Random, cyclic: bool) -> Graph:
    count = rng.randint(3, 5)
    units = [f"u{i}" for i in range(count)]
    links: list[tuple[str, int, str, int]] = []
    fed: set[str] = set()
    for i, unit in enumerate(units):
        earlier = units[:i]
        if not earlier or rng.random() < 0.2:
            links.append((f"log:{unit}", 0, unit, 0))
        wanted = rng.choice((1, 1, 2)) if earlier else 0
        # Drawing with repetition allows parallel edges.
        for _ in range(wanted):
            producer = rng.choice(earlier)
            links.append((producer, rng.randint(0, 1), unit, 0))
            fed.add(producer)
    if cyclic:
        for _ in range(rng.choice((1, 1, 2))):
            back = rng.randrange(1, count)
            to = rng.randrange(0, back + 1)
            links.append((units[back], 0, units[to], rng.choice((1, 1, 2))))
    for unit in units:
        if unit not in fed or rng.random() < 0.2:
            links.append((unit, 0, f"sink:{unit}", 0))
    return _build("cycles" if cyclic else "random", units, links)


def lagging(graph: Graph, lossy: frozenset[UnitId]) -> Graph:
    """The graph as wired when these units have partial protections and ack late."""
    if not lossy:
        return graph
    wirings = {
        unit: replace(
            wiring,
            outputs=tuple(replace(e, lag=ACK_LAG) if e.consumer in lossy else e for e in wiring.outputs),
        )
        for unit, wiring in graph.wirings.items()
    }
    return replace(graph, wirings=wirings)


def first_state(unit: UnitId) -> int:
    """State before the first frame; `hash` of a string would differ between runs."""
    return crc32(unit.encode()) & ~1


def next_state(state: int, frame: int, inputs: tuple[int, ...]) -> int:
    """The lowest bit is taint: once set it spreads to all that depends on it.

    Whole states and contents are even, so one that differs from the ideal without
    being tainted is an error, never bad luck.
    """
    tainted = state & 1
    for content in inputs:
        tainted |= content & 1
    return (hash((state, frame, inputs)) & _MASK) | tainted


def outputs_of(wiring: Wiring, state: int) -> tuple[OutputFrame, ...]:
    out = []
    for port in wiring.ports:
        content = (hash((state, port)) & _MASK) | (state & 1)
        out.append(OutputFrame(port, Kind.STABLE, content, FRAME_BYTES_MAX // 2 + content % 51))
    return tuple(out)


# The ideal run of a fixed graph is made once, this long; longer than any schedule.
_IDEAL_FRAMES = 40


@cache
def _ideal_fixed(name: str) -> dict[UnitId, list[int]]:
    return _ideal(_FIXED[name], _IDEAL_FRAMES)


def ideal_run(graph: Graph, frames: int) -> dict[UnitId, list[int]]:
    """State of every unit after each frame in a run without delay, loss or error."""
    if graph.name in _FIXED and frames <= _IDEAL_FRAMES:
        return {unit: states[: frames + 1] for unit, states in _ideal_fixed(graph.name).items()}
    return _ideal(graph, frames)


def _ideal(graph: Graph, frames: int) -> dict[UnitId, list[int]]:
    states: dict[UnitId, list[int]] = {unit: [first_state(unit)] for unit in graph.wirings}
    contents: dict[tuple[UnitId, int, int], int] = {}
    origin = {e.name: (e.producer, e.port) for e in graph.edges}
    for frame in range(1, frames + 1):
        for unit, wiring in graph.wirings.items():
            inputs = tuple(contents.get((*origin[e.edge], frame - e.delay), 0) for e in wiring.inputs)
            state = next_state(states[unit][-1], frame, inputs)
            states[unit].append(state)
            for out in outputs_of(wiring, state):
                contents[(unit, out.port, frame)] = out.checksum
    return states
