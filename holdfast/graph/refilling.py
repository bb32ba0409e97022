"""How long after a gap in its input the state of an operator may lack something. The table is in `protocols.taint`.

Pure.
"""

from __future__ import annotations

from holdfast.graph.model import STATEFUL, Operator

__all__ = ["refills_us"]


def refills_us(operator: Operator, frame_ms: int) -> int | None:
    """How long after a gap the operator's state may lack something; None: for ever."""
    if operator.kind not in STATEFUL:
        return 0
    options, declared = operator.options, operator.stabilises_ms
    lateness = options.get("lateness_ms") or 0
    if operator.kind == "aggregate" and options.get("window_ms"):
        return (options["window_ms"] + lateness) * 1000
    if operator.kind == "join":
        # A row at exactly that distance fits, and belongs to the frame after.
        return (options["within_ms"] + lateness) * 1000 + 1
    if declared is None:
        return None
    return (declared + (lateness + frame_ms if operator.kind == "stream" else 0)) * 1000
