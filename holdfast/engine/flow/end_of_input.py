"""Stages that answer a frame late, and the closing frames they make necessary.

Spark's own event-time operators act on a watermark one batch after it: what ends with
frame n comes out in frame n + 1. So behind each such stage the end of a bounded input
arrives a frame later. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.graph.model import Graph
from holdfast.graph.units import Unit

__all__ = ["closing_frames", "late_stages"]


def _has_late_stage(graph: Graph, unit: Unit) -> bool:
    """Spark's own event-time operators answer one frame later."""
    return isinstance(graph.time, str) and any(graph.operator(name).kind == "stream" for name in unit.operators)


def late_stages(graph: Graph, units: Sequence[Unit], unit: Unit) -> int:
    """Stages upstream of the unit that answer a frame late, on the longest way."""
    makers = {stream: other for other in units for stream in other.outputs}
    depths = [
        late_stages(graph, units, maker) + _has_late_stage(graph, maker)
        for port in unit.inputs
        if not port.feedback_frames and (maker := makers.get(port.stream)) is not None
    ]
    return max(depths, default=0)


def closing_frames(graph: Graph, units: Sequence[Unit]) -> int:
    """The end frame, and one more for every late stage on the longest way to it."""
    return 1 + max((late_stages(graph, units, unit) + _has_late_stage(graph, unit) for unit in units), default=0)
