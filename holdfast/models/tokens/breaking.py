"""Parts of `tokens.net` that break: a fault takes nodes down and repairs them, a corruption spoils an element or a state.

Both are drawn from their rates, or happen once at a given time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from holdfast.models.san import Case, Deterministic, Exponential, Network
from holdfast.models.stream import refused
from holdfast.models.tokens.shared import borrow, widen
from holdfast.models.tokens.unfolded import Node, Struck, Unfolded, elements

__all__ = ["corruption_part", "fault_part"]


def fault_part(graph: Unfolded, struck: Struck, at_s: float | None) -> Network:
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
    borrow(part, *(f"{n.name}.up" for n in struck.nodes), *(place for place, _ in below))
    borrow(part, *(f"{n.name}.{word}[{p}]" for n, p, _ in own for word in ("wrong", "empty")))

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
                    widen(m, [(f"{n.name}.wrong[{p}]", z)])
        if taken:
            widen(m, below)

    def repair(m: Any) -> None:
        for n in struck.nodes:
            if m[f"took {n.name}"]:
                m[f"took {n.name}"] = 0
                m[f"{n.name}.up"] = 1

    delay = Exponential(1 / fault.mttf_s) if at_s is None else Deterministic(at_s)
    part.timed("hits", delay, takes="armed", gives="repairing", then=hit)
    part.timed(
        "repaired", Deterministic(fault.repair_s), takes="repairing", gives="armed" if at_s is None else (), then=repair
    )
    return part


def corruption_part(graph: Unfolded, struck: Struck, at_s: float | None) -> Network:
    """One node of the target: a port's state, or the element it works on."""
    part = Network("corruption")
    part.place("armed", 1)
    cases = []
    for node in struck.nodes:
        borrow(part, f"{node.name}.up", f"{node.name}.spoilt", *(f"{node.name}.wrong[{p}]" for p in node.states))
        share = 1 / len(struck.nodes)
        in_state = struck.fault.state_share if node.states else 0.0
        for p, state in node.states.items():
            cases.append(
                Case(share * in_state / len(node.states), then=_spoil_state(node, p, elements(state.to_refill_tainted)))
            )
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
            widen(m, [(f"{node.name}.wrong[{port}]", z)])

    return spoil


def _spoil_element(node: Node) -> Callable[[Any], None]:
    def spoil(m: Any) -> None:
        if m[f"{node.name}.up"]:
            m[f"{node.name}.spoilt"] += 1

    return spoil
