"""A stream graph with its copies written out: who reads whom, and what a fault does to whom.

An operator in a group of copies stands for as many *nodes* as there are copies, any other for one.
Rules are those of `models.stream`; the numbers here are what it calls 3, 4 and 7.

Written without looking at the fluid model's layout: the two are compared by their results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from holdfast.models.schedules import Hit
from holdfast.models.stream import Copies, Fault, Operator, State, StreamModel, refused

__all__ = ["Feed", "Node", "Struck", "Unfolded"]

# Stands for "never right again": more elements than any run has.
NEVER_RIGHT = 10**15


@dataclass(frozen=True)
class Node:
    """One copy of an operator."""

    operator: Operator
    copy: int
    group: int  # -1: none

    @property
    def name(self) -> str:
        return self.operator.name if self.group < 0 else f"{self.operator.name}/{self.copy}"

    @cached_property
    def states(self) -> dict[int, State]:
        """By port."""
        return {p: port.state for p, port in enumerate(self.operator.ports) if port.state is not None}


@dataclass(frozen=True)
class Feed:
    """What a port reads of one operator. `active`: of these nodes only the active copy of that group; else each."""

    nodes: tuple[Node, ...]
    active: int  # -1: all of them


@dataclass(frozen=True)
class Struck:
    """What one fault hits: `wrong` is (node, port, Z) of states below, rule 4."""

    fault: Fault
    nodes: tuple[Node, ...]
    wrong: tuple[tuple[Node, int, int], ...]


class Unfolded:
    def __init__(self, model: StreamModel) -> None:
        if model.flow != "drops":
            raise refused(
                "its flow waits.",
                f"model {model.name!r}",
                "elements are followed where the flow drops",
                'flow = "drops"',
            )
        self.model = model
        self.nodes = [
            Node(operator, k, g)
            for operator in model.operators
            for g in [next((g for g, group in enumerate(model.copies) if operator.name in group.members), -1)]
            for k in range(model.copies[g].n if g >= 0 else 1)
        ]
        self._of = {operator.name: [n for n in self.nodes if n.operator is operator] for operator in model.operators}

    def of(self, operator: str) -> list[Node]:
        return self._of[operator]

    def group(self, node: Node) -> Copies | None:
        return self.model.copies[node.group] if node.group >= 0 else None

    def is_ha(self, group: int) -> bool:
        return group >= 0 and self.model.copies[group].kind == "ha"

    def members(self, group: int, copy: int) -> list[Node]:
        return [n for n in self.nodes if n.group == group and n.copy == copy]

    def feeds(self, node: Node, port: int) -> list[Feed]:
        found = []
        for name in node.operator.ports[port].reads:
            nodes = self.of(name)
            group = nodes[0].group
            if self.is_ha(group) and group == node.group:
                found.append(Feed((nodes[node.copy],), -1))
            else:
                found.append(Feed(tuple(nodes), group if self.is_ha(group) else -1))
        return found

    # -- faults --------------------------------------------------------------------

    def struck(self, fault: Fault, target: str, copy: int) -> Struck:
        names = dict(self.model.targets(fault))[target]
        nodes = tuple(n for name in names for n in self.of(name) if fault.kind == "driver" or n.copy == copy)
        return Struck(fault, nodes, self._below(nodes, fault.repair_s))

    def all_struck(self) -> list[tuple[str, Struck]]:
        """Every target of every fault, copy by copy, with a name."""
        found = []
        for fault in self.model.faults:
            for target, names in self.model.targets(fault):
                copies = 1 if fault.kind == "driver" else max(len(self.of(name)) for name in names)
                found += [(f"{fault.kind} {target}/{k}", self.struck(fault, target, k)) for k in range(copies)]
        return found

    def planned(self, hit: Hit) -> Struck:
        for fault in self.model.faults:
            if fault.kind == hit.kind and hit.target in dict(self.model.targets(fault)):
                return self.struck(fault, hit.target, hit.copy)
        raise refused(f"the model has no fault {hit.kind!r} of {hit.target!r}.", f"model {self.model.name!r}")

    def own_wrong(self, node: Node, port: int, repair_s: float) -> int | None:
        """Z of a node that was hit, rule 3; None: its state is gone and refills."""
        if not node.operator.protect.keeps_state:
            return None
        rate = self.model.rates[node.operator.name][0][port]
        return elements(node.states[port].to_refill((node.operator.protect.every_s + repair_s) * rate))

    def when_lost(self, group: int) -> list[tuple[Node, int, int]]:
        """(node, port, Z) outside of an "ha" group that loses its active copy, rule 7."""
        gone = set(self.model.copies[group].members)
        failover_s = self.model.copies[group].failover_s
        return [found for n in self.nodes if n.group != group for found in self._lacking(n, gone, failover_s)]

    def _below(self, hit: tuple[Node, ...], repair_s: float) -> tuple[tuple[Node, int, int], ...]:
        found = []
        for n in self.nodes:
            if n not in hit:
                mine = {
                    h.operator.name
                    for h in hit
                    if h.group < 0 or (self.is_ha(h.group) and (h.group, h.copy) == (n.group, n.copy))
                }
                found += self._lacking(n, mine, repair_s)
        return tuple(found)

    def _lacking(self, node: Node, gone: set[str], for_s: float) -> list[tuple[Node, int, int]]:
        found = []
        for p, state in node.states.items():
            whole = sum(self._rate(name, frozenset()) for name in node.operator.ports[p].reads)
            left = sum(self._rate(name, frozenset(gone)) for name in node.operator.ports[p].reads)
            if whole - left > 1e-12 * whole:
                found.append((node, p, elements(state.to_refill((whole - left) * for_s))))
        return found

    def _rate(self, name: str, gone: frozenset[str]) -> float:
        """Elements a second that an operator sends while those in `gone` are silent."""
        if name in gone:
            return 0.0
        operator = self.model.operator(name)
        return operator.rate + sum(
            port.selectivity * self._rate(each, gone) for port in operator.ports for each in port.reads
        )


def elements(z: float) -> int:
    """Whole ones: the last part of an element is an element."""
    return NEVER_RIGHT if math.isinf(z) else math.ceil(z - 1e-9)
