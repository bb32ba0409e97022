"""A model laid out by units, for a flow that waits: who waits for whom, how fast each can work, what it may lose.

A station is a unit or a source. It has a position: how many seconds of the stream it has done. A unit works
off a second of stream in `load` seconds, so it catches up at 1 / load when it is behind.

Pure: plain values.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from holdfast.models.layout import Layout
from holdfast.models.stream import Copies, Operator, Protect, StreamModel, refused

__all__ = ["Station", "Stations"]

# Work that costs nothing is done at this many times the pace of the stream.
_FASTEST = 1e4


@dataclass(frozen=True, slots=True)
class Station:
    name: str
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]  # stations
    readers: tuple[int, ...]
    load: float  # seconds of work a second of stream
    protect: Protect
    copies: Copies | None
    latency_s: float  # from the source to here, when nobody is behind

    @property
    def is_source(self) -> bool:
        return self.operators[0].is_source

    @property
    def pace(self) -> float:
        return _FASTEST if self.load < 1 / _FASTEST else 1 / self.load

    @property
    def count(self) -> int:
        return self.copies.n if self.copies is not None else 1


class Stations:
    def __init__(self, model: StreamModel) -> None:
        self.model, self.layout = model, Layout(model)
        graph = nx.DiGraph()
        graph.add_nodes_from(model.units)
        for each in model.operators:
            producers = {model.operator(name).unit_name for port in each.ports for name in port.reads}
            graph.add_edges_from((name, each.unit_name) for name in producers if name != each.unit_name)
        if not nx.is_directed_acyclic_graph(graph):
            ring = " -> ".join(name for name, _ in nx.find_cycle(graph))
            raise refused(f"units wait for each other in a circle: {ring}.", f"model {model.name!r}")
        names = list(nx.lexicographical_topological_sort(graph, key=list(model.units).index))
        number = {name: u for u, name in enumerate(names)}
        groups = {name: group for group in model.copies for name in group.members}
        self.all: list[Station] = []
        for name in names:
            operators = tuple(model.operator(each) for each in model.units[name])
            inputs = tuple(sorted(number[each] for each in graph.predecessors(name)))
            load = sum(load_of(model, each) for each in operators)
            before = max((self.all[i].latency_s for i in inputs), default=0.0)
            copies = next((groups[each.name] for each in operators if each.name in groups), None)
            latency_s = 0.0 if not inputs else before + load * model.frame_s
            readers = tuple(sorted(number[each] for each in graph.successors(name)))
            self.all.append(Station(name, operators, inputs, readers, load, operators[0].protect, copies, latency_s))
            if inputs and load >= 1:
                what = f"unit {name!r} takes {load:.3g} s for a second of its stream: it never keeps up, whatever protects it."
                do = "give it more cores, or cut it in two"
                raise refused(what, f"model {model.name!r}", do=do)
        self.outputs = [number[model.operator(each.operator).unit_name] for each in model.outputs]
        # channel -> (station, copy) that it hits
        self.hit_by = [
            sorted({(number[self._unit(j)], self.layout.instances[j].copy) for j in channel.instances})
            for channel in self.layout.channels
        ]

    def _unit(self, instance: int) -> str:
        return self.model.operators[self.layout.instances[instance].operator].unit_name


def load_of(model: StreamModel, operator: Operator) -> float:
    """Seconds of work for a second of its stream."""
    rates = model.rates[operator.name][0]
    rows = (
        sum(rate * port.cost_s for rate, port in zip(rates, operator.ports, strict=True))
        + operator.rate * operator.cost_s
    )
    return rows + (operator.frame_cost_s / model.frame_s if model.frame_s else 0.0)
