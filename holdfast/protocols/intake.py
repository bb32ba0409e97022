"""The input side of a unit: no duplicate, no gap, and frame n only when it is whole.

Promise: frame n is handed over once, with exactly one frame per input edge, number
n - delay of each, and in the order of n.

Why it holds. A duplicate is a number already held; a gap is a number above the
next one, answered by asking the producer to resume; a frame is ready when every
edge has reached it. Order between edges never enters, so replays need no log of
interleavings.

A frame that overtook others waits for them: were it dropped, nobody would ask for it
again before the next one comes, and behind the last one none does. It waits only as
long as the same instance sends: the next one may have sealed that number anew.

Pure: no clock, randomness, thread, file or socket. Driven by `unit`.
"""

from __future__ import annotations

from enum import Enum

from holdfast.protocols.dialogue import InputFrame
from holdfast.protocols.invariants import invariant
from holdfast.protocols.wiring import EdgeId, Frame, InputEdge

__all__ = ["Arrival", "Intake"]


class Arrival(Enum):
    NEW = "new"
    DUPLICATE = "duplicate"
    GAP = "gap"


class Intake:
    """Frames received and not yet processed, by edge and number."""

    def __init__(self, inputs: tuple[InputEdge, ...], processed: Frame) -> None:
        self._inputs = inputs
        self.received: dict[EdgeId, Frame] = {}
        self._held: dict[EdgeId, dict[Frame, InputFrame]] = {}
        self._ahead: dict[EdgeId, dict[Frame, InputFrame]] = {}
        for source in inputs:
            # Before its first frame a feedback edge delivers nothing.
            self.received[source.edge] = max(processed - source.delay, 0)
            self._held[source.edge] = {}
            self._ahead[source.edge] = {}
        self._asked: dict[EdgeId, Frame] = {}

    def accept(self, edge: EdgeId, number: Frame, frame: InputFrame) -> Arrival:
        invariant(edge in self.received, f"frame on unknown edge {edge!r}")
        received = self.received[edge]
        if number <= received:
            held = self._held[edge].get(number)
            invariant(
                held is None or (held.checksum == frame.checksum and held.kind is frame.kind),
                f"frame {number} of {edge!r} came again with other content",
            )
            return Arrival.DUPLICATE
        if number > received + 1:
            self._ahead[edge][number] = frame
            return Arrival.GAP
        held, ahead = self._held[edge], self._ahead[edge]
        held[number] = frame
        while number + 1 in ahead:
            number += 1
            held[number] = ahead.pop(number)
        self.received[edge] = number
        return Arrival.NEW

    def should_ask(self, edge: EdgeId) -> bool:
        """Ask once per gap: the frames behind the first one of it bring no news."""
        if self._asked.get(edge) == self.received[edge]:
            return False
        self._asked[edge] = self.received[edge]
        return True

    def contact(self, edge: EdgeId) -> None:
        """A new connection: an asking sent over the old one may be lost."""
        self._asked.pop(edge, None)
        self._ahead[edge].clear()

    def skip(self, edge: EdgeId, number: Frame) -> None:
        """Take missing frames up to `number` as lost; only partial protections may."""
        self.received[edge] = max(self.received[edge], number)
        self._ahead[edge].clear()

    def forget(self, edge: EdgeId) -> None:
        """Drop what was received and not processed: the producer may number anew."""
        held = self._held[edge]
        self._ahead[edge].clear()
        if held:
            self.received[edge] = min(held) - 1
            held.clear()

    def forward(self, processed: Frame) -> None:
        """Go on after `processed`; frames before it are of no use any more."""
        for source in self._inputs:
            done = processed - source.delay
            self.skip(source.edge, max(done, 0))
            held = self._held[source.edge]
            for number in [n for n in held if n <= done]:
                del held[number]

    def ready(self, number: Frame) -> bool:
        received = self.received
        return all(received[e.edge] >= number - e.delay for e in self._inputs)

    def take(self, number: Frame) -> tuple[InputFrame | None, ...]:
        """Hand over the inputs of a frame; None where the edge had not begun or skipped."""
        return tuple(self._held[e.edge].pop(number - e.delay, None) for e in self._inputs)
