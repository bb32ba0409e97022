"""A stream graph as a stochastic activity network of parts that share places: one token an element.

| part | what it is |
|---|---|
| node | one copy of an operator: reads a port's elements, passes each on with its selectivity, and counts down Z |
| group | the active copy of an "ha" group; fails over |
| vote | a "replicate" group's output: an element of one copy is let through if no other copy was further |
| fault | takes nodes down and repairs them, or corrupts one |

Parts share these places, by these names:

    NODE.up           1 while it is up                    NODE.in[P]    clean elements waiting at port P
    NODE.wrong[P]     Z of port P                         NODE.in[P]*   tainted ones
    NODE.empty[P]     what is left to refill              NODE.spoilt   elements corrupted in it, about to leave
    GROUP.active      0: none, k: copy k - 1              OUT.got, OUT.got*   what left output OUT

An element takes no time on its way (the cost of an operator is thousands of times below the time between two
elements), so nodes read at once, upstream first, a node's ports in order, clean before tainted. With
`costs=True` each element takes its `cost_s`, one at a time, and what waits at a node that is hit is gone.

The rules are those of `models.stream`. Never two copies of an "ha" group are active: `active` is one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.models.san import At, Average, Network, Reward
from holdfast.models.schedules import Hit
from holdfast.models.stream import StreamModel
from holdfast.models.tokens.breaking import corruption_part, fault_part
from holdfast.models.tokens.unfolded import Node, Struck, Unfolded
from holdfast.models.tokens.working import group_part, node_part, vote_part

__all__ = ["network_of", "rewards_of"]


def network_of(model: StreamModel, schedule: Sequence[Hit] | None = None, *, costs: bool = False) -> Network:
    """`schedule`: these faults and no others; None: drawn from the model's rates."""
    graph = Unfolded(model)
    whole = Network(model.name)
    _places(whole, graph)
    for g, group in enumerate(model.copies):
        if group.kind == "ha":
            part = group_part(graph, g)
            whole.add(part, f"group {g}", share=list(part.places))
    # Who reads first: groups, then upstream before downstream; no two have the same priority.
    first = 0
    for operator in model.operators:
        for node in graph.of(operator.name):
            part = node_part(graph, node, first, costs)
            whole.add(part, node.name, share=[p for p in part.places if p in whole.places])
            first -= len(part.activities) + 1
        if (group := graph.group(node)) is not None and group.kind == "replicate":
            part = vote_part(graph, operator.name, first)
            whole.add(part, f"vote {operator.name}", share=[p for p in part.places if p in whole.places])
            first -= 2 * group.n + 1
    faults: list[tuple[str, Struck, float | None]]
    if schedule is None:
        faults = [(name, struck, None) for name, struck in graph.all_struck()]
    else:
        faults = [(f"hit {i}", graph.planned(hit), hit.at_s) for i, hit in enumerate(schedule)]
    for name, struck, at in faults:
        part = (
            corruption_part(graph, struck, at) if struck.fault.kind == "corruption" else fault_part(graph, struck, at)
        )
        whole.add(part, name, share=[p for p in part.places if p in whole.places])
    return whole


def rewards_of(model: StreamModel, until_s: float) -> list[Reward]:
    """Rewards "available", and for each output what left it: "clean NAME", "tainted NAME"."""
    graph = Unfolded(model)
    found = [Reward("available", rate=_available(graph), over=Average(0, until_s))]
    for output in model.outputs:
        for word, mark in (("clean", ""), ("tainted", "*")):
            held = _tokens_in(f"{output.operator}.got{mark}")
            found.append(Reward(f"{word} {output.operator}", rate=held, over=At(until_s)))
    return found


def _tokens_in(place: str) -> Callable[[Any], int]:
    return lambda m: m[place]


def _places(whole: Network, graph: Unfolded) -> None:
    for g, group in enumerate(graph.model.copies):
        if group.kind == "ha":
            whole.place(f"group {g}.active", 1)
    for node in graph.nodes:
        whole.place(f"{node.name}.up", 1)
        whole.place(f"{node.name}.spoilt")
        for p in range(max(1, len(node.operator.ports))):
            whole.place(f"{node.name}.in[{p}]")
            whole.place(f"{node.name}.in[{p}]*")
        for p in node.states:
            whole.place(f"{node.name}.wrong[{p}]")
            whole.place(f"{node.name}.empty[{p}]")
        if (group := graph.group(node)) is not None and group.kind == "replicate":
            whole.place(f"{node.name}.voted")
            whole.place(f"{node.name}.voted*")
    for output in graph.model.outputs:
        whole.place(f"{output.operator}.got")
        whole.place(f"{output.operator}.got*")


def _available(graph: Unfolded) -> Callable[[Any], bool]:
    """Rule 10. An element on its way takes no time; what sends tainted ones has Z above 0 itself."""

    def is_right(m: Any, node: Node) -> bool:
        return not any(m[f"{node.name}.wrong[{p}]"] or m[f"{node.name}.empty[{p}]"] for p in node.states)

    def available(m: Any) -> bool:
        for operator in graph.model.operators:
            nodes = graph.of(operator.name)
            up = [n for n in nodes if m[f"{n.name}.up"]]
            if graph.is_ha(nodes[0].group):
                active = m[f"group {nodes[0].group}.active"]
                up = [n for n in up if n.copy == active - 1]
            if not up or not all(is_right(m, n) for n in up):
                return False
        return True

    return available
