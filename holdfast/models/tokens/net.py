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

import math
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.models.san import At, Average, Case, Deterministic, Exponential, Network, Reward
from holdfast.models.schedules import Hit
from holdfast.models.stream import StreamModel, refused
from holdfast.models.tokens.unfolded import Node, Struck, Unfolded, elements

__all__ = ["network_of", "rewards_of"]

# Votes forget how far each copy is at punctuations, so that a copy that was down may be first again.
PUNCTUATION_S = 15.0


def network_of(model: StreamModel, schedule: Sequence[Hit] | None = None, *, costs: bool = False) -> Network:
    """`schedule`: these faults and no others; None: drawn from the model's rates."""
    graph = Unfolded(model)
    whole = Network(model.name)
    _places(whole, graph)
    for g, group in enumerate(model.copies):
        if group.kind == "ha":
            part = _group(graph, g)
            whole.add(part, f"group {g}", share=list(part.places))
    # Who reads first: groups, then upstream before downstream; no two have the same priority.
    first = 0
    for operator in model.operators:
        for node in graph.of(operator.name):
            part = _node(graph, node, first, costs)
            whole.add(part, node.name, share=[p for p in part.places if p in whole.places])
            first -= len(part.activities) + 1
        if (group := graph.group(node)) is not None and group.kind == "replicate":
            part = _vote(graph, operator.name, first)
            whole.add(part, f"vote {operator.name}", share=[p for p in part.places if p in whole.places])
            first -= 2 * group.n + 1
    if schedule is None:
        faults = [(name, struck, None) for name, struck in graph.all_struck()]
    else:
        faults = [(f"hit {i}", graph.planned(hit), hit.at_s) for i, hit in enumerate(schedule)]
    for name, struck, at in faults:
        part = _corruption(graph, struck, at) if struck.fault.kind == "corruption" else _fault(graph, struck, at, costs)
        whole.add(part, name, share=[p for p in part.places if p in whole.places])
    return whole


def rewards_of(model: StreamModel, until_s: float) -> list[Reward]:
    """"available", and for each output what left it: "clean NAME", "tainted NAME"."""
    graph = Unfolded(model)
    found = [Reward("available", rate=_available(graph), over=Average(0, until_s))]
    for output in model.outputs:
        for word, mark in (("clean", ""), ("tainted", "*")):
            place = f"{output.operator}.got{mark}"
            found.append(Reward(f"{word} {output.operator}", rate=lambda m, place=place: m[place], over=At(until_s)))
    return found


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


def _borrow(part: Network, *names: str) -> None:
    """Places of the whole that a part uses under the same name; they start as the whole says."""
    for name in names:
        if name not in part.places:
            part.place(name, 1 if name.endswith((".up", ".active")) else 0)


def _sender(graph: Unfolded, node: Node, part: Network) -> Callable[[Any, int, str], None]:
    """send(m, n, mark): n elements of a node to whoever reads it now."""
    group = graph.group(node)
    if group is not None and group.kind == "replicate":
        _borrow(part, f"{node.name}.voted", f"{node.name}.voted*")

        def vote(m: Any, n: int, mark: str) -> None:
            m[f"{node.name}.voted{mark}"] += n

        return vote
    inside, outside = _readers(graph, node)
    for place in (*inside, *outside):
        _borrow(part, place, f"{place}*")
    active = f"group {node.group}.active"
    if group is not None:
        _borrow(part, active)

    def send(m: Any, n: int, mark: str) -> None:
        for place in inside:
            m[place + mark] += n
        if group is None or m[active] == node.copy + 1:
            for place in outside:
                m[place + mark] += n

    return send


def _readers(graph: Unfolded, node: Node) -> tuple[list[str], list[str]]:
    """Places that take a node's elements: of its own copy, and of all others."""
    inside, outside = [], []
    for reader in graph.nodes:
        for p in range(len(reader.operator.ports)):
            for feed in graph.feeds(reader, p):
                if node in feed.nodes:
                    own = graph.is_ha(node.group) and reader.group == node.group
                    (inside if own else outside).append(f"{reader.name}.in[{p}]")
    outside += [f"{output.operator}.got" for output in graph.model.outputs if output.operator == node.operator.name]
    return inside, outside


def _node(graph: Unfolded, node: Node, first: int, costs: bool) -> Network:
    name, operator = node.name, node.operator
    part = Network(f"node {name}")
    _borrow(part, f"{name}.up", f"{name}.spoilt")
    wrong = {p: f"{name}.wrong[{p}]" for p in node.states}
    empty = {p: f"{name}.empty[{p}]" for p in node.states}
    _borrow(part, *wrong.values(), *empty.values())
    send = _sender(graph, node, part)
    is_up = f"{name}.up"

    def is_wrong(m: Any) -> bool:
        return any(m[place] for place in wrong.values())

    def passes(m: Any, port: int, mark: str) -> float:
        """The selectivity in this marking."""
        if operator.is_source:
            return 1.0
        found = operator.ports[port]
        share = found.selectivity_bad if mark or is_wrong(m) else found.selectivity
        for p, place in empty.items():
            if m[place]:
                share *= node.states[p].refilling
        return share

    def reading(port: int, mark: str, n: int) -> Callable[[Any], None]:
        def read(m: Any) -> None:
            bad = "*" if mark or is_wrong(m) else ""
            if port in wrong:
                if mark:
                    m[wrong[port]] = max(m[wrong[port]], elements(node.states[port].to_refill_tainted))
                else:
                    m[wrong[port]] = max(0, m[wrong[port]] - 1)
                    m[empty[port]] = max(0, m[empty[port]] - 1)
            if n:
                send(m, n, bad)

        return read

    part.instant("leaves", takes=f"{name}.spoilt", cases=[Case(1.0, then=lambda m: send(m, 1, "*"))], priority=first)
    if costs:
        part.place("idle", 1)
    for p in range(max(1, len(operator.ports))):
        cost_s = operator.cost_s if operator.is_source else operator.ports[p].cost_s
        for mark in ("", "*"):
            first -= 1
            waiting = f"{name}.in[{p}]{mark}"
            _borrow(part, waiting)
            most = 1 if operator.is_source else math.ceil(max(operator.ports[p].selectivity, operator.ports[p].selectivity_bad))
            cases = [Case(_chance(passes, p, mark, n), then=reading(p, mark, n)) for n in range(most + 1)]
            part.instant(f"discards[{p}]{mark}", takes=waiting, when=lambda m: not m[is_up], priority=first)
            if costs and cost_s:
                busy = part.place(f"busy[{p}]{mark}")
                part.instant(f"begins[{p}]{mark}", takes=[waiting, "idle"], gives=busy, when=lambda m: m[is_up], priority=first)
                part.timed(f"ends[{p}]{mark}", Deterministic(cost_s), takes=busy, when=lambda m: m[is_up], then=_idle, cases=cases)
                part.instant(f"drops[{p}]{mark}", takes=busy, gives="idle", when=lambda m: not m[is_up], priority=first)
            else:
                part.instant(f"reads[{p}]{mark}", takes=waiting, when=lambda m: m[is_up], cases=cases, priority=first)
    if operator.is_source:
        part.timed("arrives", Deterministic(1 / operator.rate), gives=f"{name}.in[0]")
    return part


def _idle(m: Any) -> None:
    m["idle"] = 1


def _chance(passes: Callable[[Any, int, str], float], port: int, mark: str, n: int) -> Callable[[Any], float]:
    """That n elements are sent for one: the selectivity's whole part, and one more for the rest of it."""

    def chance(m: Any) -> float:
        whole, rest = divmod(passes(m, port, mark), 1.0)
        return 1.0 - rest if n == whole else rest if n == whole + 1 else 0.0

    return chance


def _group(graph: Unfolded, g: int) -> Network:
    group, active = graph.model.copies[g], f"group {g}.active"
    part = Network(f"group {g}")
    members = [graph.members(g, k) for k in range(group.n)]
    below = [(f"{n.name}.wrong[{p}]", z) for n, p, z in graph.when_lost(g)]
    _borrow(part, active, *(f"{n.name}.up" for copy in members for n in copy), *(place for place, _ in below))
    states = [[f"{n.name}.{word}[{p}]" for n in copy for p in n.states for word in ("wrong", "empty")] for copy in members]
    _borrow(part, *(place for copy in states for place in copy))

    def whole(m: Any, k: int) -> bool:
        return all(m[f"{n.name}.up"] for n in members[k])

    def lose(m: Any) -> None:
        m[active] = 0
        _widen(m, below)

    def take_over(m: Any) -> None:
        up = [k for k in range(group.n) if whole(m, k)]
        right = [k for k in up if not any(m[place] for place in states[k])]
        m[active] = 1 + (right or up)[0]

    part.instant("loses", when=lambda m: m[active] and not whole(m, m[active] - 1), then=lose, priority=1)
    ready = lambda m: not m[active] and any(whole(m, k) for k in range(group.n))
    part.timed("takes over", Deterministic(group.failover_s), when=ready, then=take_over)
    return part


def _vote(graph: Unfolded, operator: str, first: int) -> Network:
    """An element of copy k is new if copy k has sent more than was let through since the last punctuation."""
    nodes = graph.of(operator)
    part = Network(f"vote {operator}")
    _, readers = _readers(graph, nodes[0])
    for mark in ("", "*"):
        part.place(f"passed{mark}")
        for node in nodes:
            part.place(f"sent[{node.copy}]{mark}")
            _borrow(part, f"{node.name}.voted{mark}")
        _borrow(part, *(place + mark for place in readers))
        for node in nodes:
            first -= 1
            part.instant(
                f"counts[{node.copy}]{mark}",
                takes=f"{node.name}.voted{mark}",
                cases=[Case(1.0, then=_counting(f"sent[{node.copy}]{mark}", f"passed{mark}", [place + mark for place in readers]))],
                priority=first,
            )
    counts = [place for place in part.places if place.startswith(("sent", "passed"))]

    def clear(m: Any) -> None:
        for place in counts:
            m[place] = 0

    part.timed("punctuation", Deterministic(PUNCTUATION_S), then=clear)
    return part


def _counting(sent: str, passed: str, readers: list[str]) -> Callable[[Any], None]:
    def count(m: Any) -> None:
        m[sent] += 1
        if m[sent] > m[passed]:
            m[passed] += 1
            for place in readers:
                m[place] += 1

    return count


def _fault(graph: Unfolded, struck: Struck, at_s: float | None, costs: bool) -> Network:
    """Nodes that are up go down together and come back together; others are not touched."""
    fault = struck.fault
    if fault.exponential_repair:
        raise refused(
            "the repair takes an exponential time.",
            f"model {graph.model.name!r}, fault {fault.kind!r}",
            "how much is lost has to be known when the fault happens, and a marking does not hold times",
            "exponential_repair = false",
        )
    part = Network(fault.kind)
    part.place("armed", 1)
    part.place("repairing")
    below = [(f"{n.name}.wrong[{p}]", z) for n, p, z in struck.wrong]
    own = [(n, p, graph.own_wrong(n, p, fault.repair_s)) for n in struck.nodes for p in n.states]
    for n in struck.nodes:
        part.place(f"took {n.name}")
    _borrow(part, *(f"{n.name}.up" for n in struck.nodes), *(place for place, _ in below))
    _borrow(part, *(f"{n.name}.{word}[{p}]" for n, p, _ in own for word in ("wrong", "empty")))

    def hit(m: Any) -> None:
        taken = [n for n in struck.nodes if m[f"{n.name}.up"]]
        for n in taken:
            m[f"{n.name}.up"] = 0
            m[f"took {n.name}"] = 1
        for n, p, z in own:
            if n in taken:
                if z is None:
                    m[f"{n.name}.wrong[{p}]"] = 0
                    m[f"{n.name}.empty[{p}]"] = math.ceil(n.states[p].size)
                else:
                    _widen(m, [(f"{n.name}.wrong[{p}]", z)])
        if taken:
            _widen(m, below)

    def repair(m: Any) -> None:
        for n in struck.nodes:
            if m[f"took {n.name}"]:
                m[f"took {n.name}"] = 0
                m[f"{n.name}.up"] = 1

    delay = Exponential(1 / fault.mttf_s) if at_s is None else Deterministic(at_s)
    part.timed("hits", delay, takes="armed", gives="repairing", then=hit)
    part.timed("repaired", Deterministic(fault.repair_s), takes="repairing", gives="armed" if at_s is None else (), then=repair)
    return part


def _corruption(graph: Unfolded, struck: Struck, at_s: float | None) -> Network:
    """One node of the target: a port's state, or the element it works on."""
    part = Network("corruption")
    part.place("armed", 1)
    cases = []
    for node in struck.nodes:
        _borrow(part, f"{node.name}.up", f"{node.name}.spoilt", *(f"{node.name}.wrong[{p}]" for p in node.states))
        share = 1 / len(struck.nodes)
        in_state = struck.fault.state_share if node.states else 0.0
        for p, state in node.states.items():
            cases.append(Case(share * in_state / len(node.states), then=_spoil_state(node, p, elements(state.to_refill_tainted))))
        leaves = _leaves(graph, node)
        cases.append(Case(share * (1 - in_state) * leaves, then=_spoil_element(node)))
        cases.append(Case(share * (1 - in_state) * (1 - leaves)))
    again = () if at_s is not None else "armed"
    delay = Exponential(1 / struck.fault.mttf_s) if at_s is None else Deterministic(at_s)
    part.timed("hits", delay, takes="armed", cases=[Case(c.probability, again, c.then) for c in cases])
    return part


def _leaves(graph: Unfolded, node: Node) -> float:
    """The chance that the element which is worked on is passed; ports by their rates."""
    if node.operator.is_source:
        return 1.0
    rates = graph.model.rates[node.operator.name][0]
    passed = sum(rate * min(1.0, port.selectivity_bad) for rate, port in zip(rates, node.operator.ports, strict=True))
    return passed / sum(rates) if sum(rates) else 0.0


def _spoil_state(node: Node, port: int, z: int) -> Callable[[Any], None]:
    def spoil(m: Any) -> None:
        if m[f"{node.name}.up"]:
            _widen(m, [(f"{node.name}.wrong[{port}]", z)])

    return spoil


def _spoil_element(node: Node) -> Callable[[Any], None]:
    def spoil(m: Any) -> None:
        if m[f"{node.name}.up"]:
            m[f"{node.name}.spoilt"] += 1

    return spoil


def _widen(m: Any, below: Sequence[tuple[str, int]]) -> None:
    for place, z in below:
        m[place] = max(m[place], z)


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
