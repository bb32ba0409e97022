"""Where a unit that lost its place goes on: behind all that anybody has seen.

Promise: the new instance seals no number that a consumer already holds with another
content, waits for no input that is gone, and loses no more than that requires.

Why it holds. It asks every consumer how far it has received and every producer what
it still has, and takes the highest of those positions. The question itself carries
the new epoch, so a consumer that has answered refuses the old instance from then on:
nobody can receive a lower epoch's frame behind the answer. Feedback inputs are not
waited for: their producer may wait for this unit; what they lost counts as LOST. A
neighbour that lost its own place answers so, and sets no condition.

Pure: no clock, randomness, thread, file or socket. Driven by `engine.recover.skip_lost` and by
`protocols.unit`.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.protocols.wiring import EdgeId, Frame, Wiring

__all__ = ["Placement", "Placing"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Go on after `frame`. `acked` and `received` say how far each consumer is."""

    frame: Frame
    acked: dict[EdgeId, Frame]
    received: dict[EdgeId, Frame]


class Placing:
    """Collects answers until the place is known."""

    def __init__(self, wiring: Wiring, restored: Frame) -> None:
        self._wiring = wiring
        self._restored = restored
        self._gone: dict[EdgeId, Frame] = {}
        self._answers: dict[EdgeId, tuple[Frame, Frame] | None] = {}

    def offered(self, edge: EdgeId, first: Frame) -> None:
        """A producer has nothing before `first`."""
        self._gone[edge] = first - 1

    def resumed(self, edge: EdgeId, after: Frame | None, acked: Frame) -> None:
        """A consumer holds frames up to `after`; None if it lost its place too."""
        self._answers[edge] = None if after is None else (after, min(acked, after))

    def acked(self, edge: EdgeId, frame: Frame) -> None:
        """A consumer goes on storing while we wait for the others."""
        answer = self._answers.get(edge)
        if answer is not None:
            self._answers[edge] = (max(answer[0], frame), max(answer[1], frame))

    def decide(self) -> Placement | None:
        for source in self._wiring.inputs:
            if source.delay == 0 and source.edge not in self._gone:
                return None
        if any(output.edge not in self._answers for output in self._wiring.outputs):
            return None
        places = [self._restored]
        # Of a producer that still has its first frame nothing is gone: a feedback edge is empty then, not lost.
        places += [self._gone[e.edge] + e.delay for e in self._wiring.inputs if self._gone.get(e.edge, 0) > 0]
        places += [answer[0] for answer in self._answers.values() if answer is not None]
        frame = max(places)
        received = {e: frame if a is None else a[0] for e, a in self._answers.items()}
        acked = {e: frame if a is None else a[1] for e, a in self._answers.items()}
        return Placement(frame, acked, received)
