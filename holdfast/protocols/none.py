"""No protection: nothing is kept, and every frame that was missed is said to be lost.

Promise: a unit that restarts knows nothing and does not pretend otherwise: it takes
its place behind every frame that anybody may have seen from it (`placing`) and seals
the numbers in between as LOST, so that no consumer waits for a number for ever. No
running consumer meets one number with two contents.

Acks follow processing two frames late: the last committed frame may have to be run
again on the same host, which needs it and the one before.

Consumers may have protections that ack what they stored. When the queue is half full
they are asked to checkpoint, as by any producer: nobody else may ever ask them.

Pure: no clock, randomness, thread, file, socket or Spark.
Made by `engine.protect.wiring` and by `simulation.protections`. See `driving` for how.
"""

from __future__ import annotations

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointEvent,
    CheckpointInstruction,
    CheckpointWanted,
    EdgeResumed,
    FrameProcessed,
    FramesSkipped,
    Restored,
    SendAck,
    SendRequest,
)
from holdfast.protocols.wiring import EdgeId, Frame, Wiring

__all__ = ["ACK_LAG", "NoProtection"]

ACK_LAG = 2
"""Frames between processed and acked; see above."""


class NoProtection:
    """State changes only through `handle`."""

    lossy = True

    def __init__(self, wiring: Wiring, every: int, epoch: int, restored: Restored) -> None:
        self._wiring = wiring
        self._processed = restored.frame
        self._acked: dict[EdgeId, Frame] = {e.edge: restored.frame for e in wiring.outputs}
        self._acked.update(restored.acked)
        self._asked: Frame | None = None

    @property
    def stored(self) -> Frame:
        """What may be acked: nothing is stored, the lag alone decides."""
        return max(self._processed - ACK_LAG, 0)

    @property
    def pending(self) -> tuple[Frame, ...]:
        return ()

    @property
    def asking(self) -> bool:
        """A consumer that was asked has not acknowledged yet."""
        asked = self._asked
        return asked is not None and any(self._acked[e.edge] < asked - e.delay for e in self._wiring.outputs)

    def start(self) -> list[CheckpointInstruction]:
        return []

    def handle(self, event: CheckpointEvent) -> list[CheckpointInstruction]:
        match event:
            case FrameProcessed(frame=frame) | FramesSkipped(frame=frame):
                self._processed = frame
                return self._acks()
            case AckArrived(edge, frame, _):
                self._acked[edge] = max(self._acked[edge], frame)
                return []
            case CheckpointWanted():
                self._asked = self._processed
                return self._ask([e.edge for e in self._wiring.outputs])
            case EdgeResumed(edge):
                # A consumer that restarted may have forgotten that it was asked.
                return self._ask([edge])
            case _:
                # Requests and extensions of neighbours find nothing to checkpoint.
                return []

    def _ask(self, edges: list[EdgeId]) -> list[CheckpointInstruction]:
        if self._asked is None:
            return []
        return [
            SendRequest(e.edge, 0, self._asked, frozenset(), extendable=False)
            for e in self._wiring.outputs
            if e.edge in edges and not e.outside and self._acked[e.edge] < self._asked - e.delay
        ]

    def _acks(self) -> list[CheckpointInstruction]:
        return [SendAck(e.edge, self.stored - e.delay, {}) for e in self._wiring.inputs if self.stored > e.delay]
