"""What `durability="fast"` contradicts: hosts, and promises that nothing is lost.

Pure: a graph in, findings out.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import Finding
from holdfast.graph.model import Graph
from holdfast.graph.promises import Loses
from holdfast.graph.wellformed import EFFECT

__all__ = ["check_durability"]


def check_durability(graph: Graph) -> Iterator[Finding]:
    if graph.durability != "fast":
        return
    if graph.homes:
        yield Finding(
            "HF-R050",
            "FastWithHosts",
            "durability='fast' is declared where units have hosts.",
            where=graph.line,
            why="a unit on a host acknowledges what its stores have synced, or may lose anyway: 'fast' would change nothing",
            effect=EFFECT,
            do="drop durability='fast', or the hosts and protections",
        )
        return
    for sink in graph.sinks:
        if any(isinstance(promise, Loses) and promise.level == "LOLE" for promise in sink.promises):
            yield Finding(
                "HF-R054",
                "LosslessWithPower",
                f"sink '{sink.name}' promises hf.lossless, and durability='fast' keeps that only as long as the machine has power.",
                where=sink.line,
                why="with 'fast' the system decides when things reach the disk; inputs may be forgotten before",
                effect="it runs; the death of the process loses nothing, a loss of power may",
                do="drop durability='fast'",
                warning=True,
            )
