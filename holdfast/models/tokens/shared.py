"""What the parts of `tokens.net` have in common: places they borrow from the whole, and who reads whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.models.san import Network
from holdfast.models.tokens.unfolded import Node, Unfolded

__all__ = ["borrow", "readers", "sender", "widen"]


def borrow(part: Network, *names: str) -> None:
    """Places of the whole that a part uses under the same name; they start as the whole says."""
    for name in names:
        if name not in part.places:
            part.place(name, 1 if name.endswith((".up", ".active")) else 0)


def sender(graph: Unfolded, node: Node, part: Network) -> Callable[[Any, int, str], None]:
    """send(m, n, mark): n elements of a node to whoever reads it now."""
    group = graph.group(node)
    if group is not None and group.kind == "replicate":
        borrow(part, f"{node.name}.voted", f"{node.name}.voted*")

        def vote(m: Any, n: int, mark: str) -> None:
            m[f"{node.name}.voted{mark}"] += n

        return vote
    inside, outside = readers(graph, node)
    for place in (*inside, *outside):
        borrow(part, place, f"{place}*")
    active = f"group {node.group}.active"
    if group is not None:
        borrow(part, active)

    def send(m: Any, n: int, mark: str) -> None:
        for place in inside:
            m[place + mark] += n
        if group is None or m[active] == node.copy + 1:
            for place in outside:
                m[place + mark] += n

    return send


def readers(graph: Unfolded, node: Node) -> tuple[list[str], list[str]]:
    """Places that take a node's elements: of its own copy, and of all others."""
    inside: list[str] = []
    outside: list[str] = []
    for reader in graph.nodes:
        for p in range(len(reader.operator.ports)):
            for feed in graph.feeds(reader, p):
                if node in feed.nodes:
                    own = graph.is_ha(node.group) and reader.group == node.group
                    (inside if own else outside).append(f"{reader.name}.in[{p}]")
    outside += [f"{output.operator}.got" for output in graph.model.outputs if output.operator == node.operator.name]
    return inside, outside


def widen(m: Any, below: Sequence[tuple[str, int]]) -> None:
    for place, z in below:
        m[place] = max(m[place], z)
