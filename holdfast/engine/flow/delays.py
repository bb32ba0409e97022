"""Watched while a run goes on: declared delays. Room on disks is `disks`'."""

from __future__ import annotations

from holdfast.graph.durations import show_ms
from holdfast.graph.model import Graph
from holdfast.graph.units import Unit

__all__ = ["DelayWatch"]


class DelayWatch:
    """Maximum delay per vertex (inputs complete to sealed) and edge (sealed to taken)."""

    def __init__(self, graph: Graph) -> None:
        self._vertices = {each.name: each.delay_ms_max for each in graph.operators if each.delay_ms_max}
        self._edges = {edge: edge.delay_ms_max for edge in graph.edges() if edge.delay_ms_max}
        self._moments: dict[tuple[str, int], float] = {}  # (stream or unit, n) -> when sealed or permitted
        self._broken: dict[str, tuple[int, int, int, float]] = {}  # name -> (bound, first frame, count, worst ms)

    def sealed(self, source: str, n: int, now_s: float) -> None:
        self._keep(source, n, now_s)

    def permitted(self, unit: Unit, n: int, now_s: float) -> None:
        """The inputs of frame n are complete."""
        self._keep(f"unit {unit.name}", n, now_s)

    def began(self, unit: Unit, n: int, now_s: float) -> None:
        for edge, bound in self._edges.items():
            if edge.consumer in unit.operators and (edge.stream, n) in self._moments:
                self._compare(str(edge), bound, n, (now_s - self._moments[edge.stream, n]) * 1000)

    def done(self, unit: Unit, n: int, now_s: float) -> None:
        """The unit's outputs are sealed: an operator is as late as its unit."""
        for stream in unit.outputs:
            self._keep(stream, n, now_s)
        begun = self._moments.pop((f"unit {unit.name}", n), None)
        for name in unit.operators:
            if begun is not None and name in self._vertices:
                self._compare(name, self._vertices[name], n, (now_s - begun) * 1000)

    def sentences(self) -> list[str]:
        return [
            f"{name} took up to {show_ms(round(worst))} where {show_ms(bound)} is declared: "
            f"{count} frames, the first {first}"
            for name, (bound, first, count, worst) in list(self._broken.items())
        ]

    def _keep(self, name: str, n: int, now_s: float) -> None:
        if self._vertices or self._edges:
            self._moments[name, n] = now_s
            # What is older than any queue we expect cannot be asked for again.
            self._moments.pop((name, n - 1000), None)

    def _compare(self, name: str, bound: int, n: int, ms: float) -> None:
        if ms > bound:
            _, first, count, worst = self._broken.get(name, (bound, n, 0, 0.0))
            self._broken[name] = (bound, first, count + 1, max(worst, ms))
