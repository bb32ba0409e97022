"""No protection: nothing is kept, and every frame that was missed is said to be lost.

Promise: a unit that restarts knows nothing and does not pretend otherwise: it takes
its place behind every frame that anybody may have seen from it (`placing`) and seals
the numbers in between as LOST, so that no consumer waits for a number for ever. No
running consumer meets one number with two contents.

Acks follow processing two frames late: the last committed frame may have to be run
again on the same host, which needs it and the one before.

Pure: no clock, randomness, thread, file, socket or Spark. Driven by `unit`.
"""

from __future__ import annotations

from holdfast.protocols.dialogue import (
    CheckpointEvent,
    CheckpointInstruction,
    FrameProcessed,
    FramesSkipped,
    Restored,
    SendAck,
)
from holdfast.protocols.wiring import Frame, Wiring

__all__ = ["ACK_LAG", "NoProtection"]

ACK_LAG = 2
"""Frames between processed and acked; see above."""


class NoProtection:
    """State changes only through `handle`."""

    lossy = True
    # Queues empty as consumers process; there is no checkpoint to ask for.
    asking = True

    def __init__(self, wiring: Wiring, every: int, epoch: int, restored: Restored) -> None:
        self._wiring = wiring
        self._processed = restored.frame

    @property
    def stored(self) -> Frame:
        """What may be acked: nothing is stored, the lag alone decides."""
        return max(self._processed - ACK_LAG, 0)

    @property
    def pending(self) -> tuple[Frame, ...]:
        return ()

    def start(self) -> list[CheckpointInstruction]:
        return []

    def handle(self, event: CheckpointEvent) -> list[CheckpointInstruction]:
        if isinstance(event, FrameProcessed | FramesSkipped):
            self._processed = event.frame
            return self._acks()
        # Requests, extensions and wishes of neighbours find nothing to checkpoint.
        return []

    def _acks(self) -> list[CheckpointInstruction]:
        return [
            SendAck(e.edge, max(self.stored - e.delay, 0), {})
            for e in self._wiring.inputs
            if self.stored > e.delay
        ]
