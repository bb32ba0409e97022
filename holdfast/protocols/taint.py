"""Which frames are TAINTED: made from something that is missing, though nobody can tell by their rows.

A LOST frame is empty and says so. What is computed from it is not: a window that lacks
seventeen frames looks like any other. So a frame is marked if an input of it is LOST or
marked, or if the state it was made from has a gap; the mark stays until the state has
refilled. How long that takes is a matter of the operator:

| operator | a gap is over |
|---|---|
| frame operator, filter, map, union, split | at once: only the frame whose input is LOST or marked is |
| aggregate over windows of time | when every window that was open in the gap has closed: window + lateness after it |
| join | when no row of the gap could have a partner any more: within + lateness after it |
| running aggregate | never |
| windows of rows, sessions | never: where they end is a matter of rows, and those of the gap are not known |
| keyed function, over="stream" | never |

"Never" ends where `stabilises="5 minutes"` is declared for the operator: so long after a gap
its answers no longer depend on it. (Spark's own windows answer after their watermark, and a
frame late: lateness and one frame are added.) Operators with rows whose time is after the
boundary of their frame may be tainted for longer than is said here; sources have none.

A mark carries its origin, the boundary of the gap it comes from, and keeps it on its way. A
frame that goes round a cycle is an input of the next round, so a cycle would never heal:
what came over a feedback edge is passed over by an operator that declares `stabilises` once
that long has passed since the origin. Nothing else forgets a marked input.

What is not tainted: rows that a policy drops (`late=`, `bad=`, `on_error=`) are lost and
counted as lost; an operator that begins with empty state because the user said so
(`--fresh`) has no gap, it begins there.

The mark is an upper bound: a marked frame may be right, an unmarked one is not wrong by a gap.
It depends on permits and commit records alone, so a frame that is made again is marked again.

Pure: no clock, randomness, thread, file or Spark. Driven by `engine.flow.marking`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.frames.identity import FrameRecord
from holdfast.graph.model import STATEFUL, Graph, Operator
from holdfast.graph.refilling import refills_us

__all__ = ["TAINTED", "Gap", "Input", "Mark", "Taint", "mark_of"]

TAINTED = "tainted"
# Later than any boundary: a gap that never ends.
NEVER_US = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Mark:
    """Of a frame. `origin_us`: the boundary of the last frame that is missing."""

    origin_us: int
    why: str

    def to_json(self) -> list[Any]:
        return [self.origin_us, self.why]

    @staticmethod
    def fields(found: Sequence[Any] | None) -> dict[str, Any]:
        """Of a mark in its JSON form: what a frame's side record says."""
        return {} if found is None else {"mark": TAINTED, "mark_us": int(found[0]), "reason": str(found[1])}


@dataclass(frozen=True, slots=True)
class Gap:
    """In the state of an operator. Frames that begin before `until_us` are made from it."""

    origin_us: int
    until_us: int
    why: str

    def to_json(self) -> list[Any]:
        return [self.origin_us, self.until_us, self.why]


@dataclass(frozen=True, slots=True)
class Input:
    """What a unit reads at one port in one frame."""

    stream: str
    feedback_frames: int
    n: int
    is_lost: bool = False
    mark: Mark | None = None


def mark_of(record: FrameRecord) -> Mark | None:
    """The mark that a sealed frame carries in its side record."""
    return Mark(record.mark_us, record.reason) if record.mark == TAINTED else None


class Taint:
    """Of one unit: its operators, upstream first, and the gaps in their state."""

    def __init__(self, graph: Graph, operators: Sequence[str], outputs: Sequence[str]) -> None:
        self._operators = [graph.operator(name) for name in operators]
        self._outputs = tuple(outputs)
        self._refills = {each.name: refills_us(each, graph.frame_ms) for each in self._operators}
        self._inside = {stream for each in self._operators for stream in each.outputs}
        self.gaps: dict[str, Gap] = {}

    def to_json(self) -> dict[str, list[Any]]:
        return {name: gap.to_json() for name, gap in self.gaps.items()}

    def load(self, found: Mapping[str, Sequence[Any]]) -> None:
        known = {each.name for each in self._operators}
        self.gaps = {name: Gap(int(gap[0]), int(gap[1]), str(gap[2])) for name, gap in found.items() if name in known}

    def skipped(self, boundary_us: int, why: str) -> None:
        """The state of every operator lacks frames, the last of which ended at `boundary_us`."""
        for operator in self._operators:
            if operator.kind in STATEFUL:
                self._widen(operator, Mark(boundary_us, why), boundary_us)

    def frame(self, boundary_us: int, since_us: int, inputs: Sequence[Input]) -> dict[str, Mark]:
        """The marks of the unit's outputs in the frame from `since_us` to `boundary_us`; gaps are as after it."""
        read = {(each.stream, each.feedback_frames): self._of_input(each, boundary_us) for each in inputs}
        made: dict[str, Mark] = {}
        for operator in self._operators:
            mark = None
            for edge in operator.inputs:
                if edge.stream in self._inside and not edge.is_feedback:
                    found = made.get(edge.stream)
                else:
                    found = read.get((edge.stream, edge.feedback_frames))
                if found is None or (edge.is_feedback and self._has_outlived(operator, found, since_us)):
                    continue
                # What comes again over feedback is no new gap: it is as old as its origin.
                mark = _newer(mark, found)
                if operator.kind in STATEFUL:
                    declared = edge.is_feedback and operator.stabilises_ms is not None
                    self._widen(operator, found, found.origin_us if declared else boundary_us)
            gap = self.gaps.get(operator.name)
            if gap is not None and since_us >= gap.until_us:
                del self.gaps[operator.name]
            elif gap is not None:
                mark = _newer(mark, Mark(gap.origin_us, gap.why))
            if mark is not None:
                made |= dict.fromkeys(operator.outputs, mark)
        return {stream: made[stream] for stream in self._outputs if stream in made}

    def _has_outlived(self, operator: Operator, mark: Mark, since_us: int) -> bool:
        if operator.stabilises_ms is None:
            return False
        return since_us >= mark.origin_us + operator.stabilises_ms * 1000

    def _widen(self, operator: Operator, mark: Mark, from_us: int) -> None:
        refills = self._refills[operator.name]
        until = NEVER_US if refills is None else from_us + refills
        known = self.gaps.get(operator.name)
        if known is None or until > known.until_us or mark.origin_us > known.origin_us:
            gap = Gap(mark.origin_us, until, mark.why)
            if known is not None:
                gap = replace(gap, origin_us=max(known.origin_us, gap.origin_us), until_us=max(known.until_us, until))
            self.gaps[operator.name] = gap

    @staticmethod
    def _of_input(found: Input, boundary_us: int) -> Mark | None:
        if found.is_lost:
            return Mark(boundary_us, f"frame {found.n} of {found.stream} is LOST")
        return found.mark


def _newer(one: Mark | None, other: Mark) -> Mark:
    return other if one is None or other.origin_us > one.origin_us else one
