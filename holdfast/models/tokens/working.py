"""Parts of `tokens.net` that work: a node, the active copy of a group, the vote of copies that are all read.

A node reads at once, or (with costs) takes one element after the other, each for its `cost_s`. A
vote lets an element of copy k through if copy k has sent more than was let through since the last
punctuation: counts, not identities, so copies that draw differently let a few more through than one would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from holdfast.models.san import Case, Deterministic, Network
from holdfast.models.tokens.shared import borrow, readers, sender, widen
from holdfast.models.tokens.unfolded import Node, Unfolded, elements

__all__ = ["group_part", "node_part", "vote_part"]

# Votes forget how far each copy is at punctuations, so that a copy that was down may be first again.
PUNCTUATION_S = 15.0


def node_part(graph: Unfolded, node: Node, first: int, costs: bool) -> Network:
    name, operator = node.name, node.operator
    part = Network(f"node {name}")
    borrow(part, f"{name}.up", f"{name}.spoilt")
    wrong = {p: f"{name}.wrong[{p}]" for p in node.states}
    empty = {p: f"{name}.empty[{p}]" for p in node.states}
    borrow(part, *wrong.values(), *empty.values())
    send = sender(graph, node, part)
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
            borrow(part, waiting)
            most = (
                1
                if operator.is_source
                else math.ceil(max(operator.ports[p].selectivity, operator.ports[p].selectivity_bad))
            )
            cases = [Case(_chance(passes, p, mark, n), then=reading(p, mark, n)) for n in range(most + 1)]
            part.instant(f"discards[{p}]{mark}", takes=waiting, when=lambda m: not m[is_up], priority=first)
            if costs and cost_s:
                busy = part.place(f"busy[{p}]{mark}")
                part.instant(
                    f"begins[{p}]{mark}", takes=[waiting, "idle"], gives=busy, when=lambda m: m[is_up], priority=first
                )
                part.timed(
                    f"ends[{p}]{mark}",
                    Deterministic(cost_s),
                    takes=busy,
                    when=lambda m: m[is_up],
                    then=_idle,
                    cases=cases,
                )
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


def group_part(graph: Unfolded, g: int) -> Network:
    group, active = graph.model.copies[g], f"group {g}.active"
    part = Network(f"group {g}")
    members = [graph.members(g, k) for k in range(group.n)]
    below = [(f"{n.name}.wrong[{p}]", z) for n, p, z in graph.when_lost(g)]
    borrow(part, active, *(f"{n.name}.up" for copy in members for n in copy), *(place for place, _ in below))
    states = [
        [f"{n.name}.{word}[{p}]" for n in copy for p in n.states for word in ("wrong", "empty")] for copy in members
    ]
    borrow(part, *(place for copy in states for place in copy))

    def whole(m: Any, k: int) -> bool:
        return all(m[f"{n.name}.up"] for n in members[k])

    def lose(m: Any) -> None:
        m[active] = 0
        widen(m, below)

    def take_over(m: Any) -> None:
        up = [k for k in range(group.n) if whole(m, k)]
        right = [k for k in up if not any(m[place] for place in states[k])]
        m[active] = 1 + (right or up)[0]

    part.instant("loses", when=lambda m: m[active] and not whole(m, m[active] - 1), then=lose, priority=1)
    ready = lambda m: not m[active] and any(whole(m, k) for k in range(group.n))
    part.timed("takes over", Deterministic(group.failover_s), when=ready, then=take_over)
    return part


def vote_part(graph: Unfolded, operator: str, first: int) -> Network:
    """An element of copy k is new if copy k has sent more than was let through since the last punctuation."""
    nodes = graph.of(operator)
    part = Network(f"vote {operator}")
    _, reached = readers(graph, nodes[0])
    for mark in ("", "*"):
        part.place(f"passed{mark}")
        for node in nodes:
            part.place(f"sent[{node.copy}]{mark}")
            borrow(part, f"{node.name}.voted{mark}")
        borrow(part, *(place + mark for place in reached))
        for node in nodes:
            first -= 1
            part.instant(
                f"counts[{node.copy}]{mark}",
                takes=f"{node.name}.voted{mark}",
                cases=[
                    Case(
                        1.0,
                        then=_counting(
                            f"sent[{node.copy}]{mark}", f"passed{mark}", [place + mark for place in reached]
                        ),
                    )
                ],
                priority=first,
            )
    counts = [place for place in part.places if place.startswith(("sent", "passed"))]

    def clear(m: Any) -> None:
        for place in counts:
            m[place] = 0

    part.timed("punctuation", Deterministic(PUNCTUATION_S), then=clear)
    return part


def _counting(sent: str, passed: str, reached: list[str]) -> Callable[[Any], None]:
    def count(m: Any) -> None:
        m[sent] += 1
        if m[sent] > m[passed]:
            m[passed] += 1
            for place in reached:
                m[place] += 1

    return count
