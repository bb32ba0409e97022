"""The two ends of the world: a source log that can be read again, a sink's ledger.

Promise: a source frame can be read until the unit that reads it acked; a sink keeps
each number once and acks what its ledger holds. Neither fails: they stand for the
log outside the host's failure domain and for the sink's own transaction.

Why a sink is a consumer like any other: a checkpoint that ignores it could become
permanent while the last frames before it are still on their way out; the unit then
restarts behind them and nobody ever sends them again.

Pure: no clock, randomness, thread, file or socket. Made by `simulation.schedule`: on
Spark the board has both ends (`engine.flow.source_runner`, `engine.flow.sink_runner`).
"""

from __future__ import annotations

from holdfast.protocols.dialogue import (
    CheckpointEvent,
    CheckpointInstruction,
    FrameProcessed,
    SendAck,
)
from holdfast.protocols.wiring import Frame, Wiring

__all__ = ["SinkLedger", "SourceLog"]


class SourceLog:
    """Durable by assumption: nothing to checkpoint, nobody above to ack."""

    stored: Frame = 0
    pending: tuple[Frame, ...] = ()
    # A log is as long as its retention; no checkpoint of its own makes it shorter.
    asking = True
    lossy = False

    def start(self) -> list[CheckpointInstruction]:
        return []

    def handle(self, event: CheckpointEvent) -> list[CheckpointInstruction]:
        return []


class SinkLedger:
    """A processed frame is in the ledger: stored at once, acked at once."""

    pending: tuple[Frame, ...] = ()
    asking = False
    lossy = False

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self.stored: Frame = 0

    def start(self) -> list[CheckpointInstruction]:
        return []

    def handle(self, event: CheckpointEvent) -> list[CheckpointInstruction]:
        if not isinstance(event, FrameProcessed):
            return []
        self.stored = event.frame
        return [SendAck(e.edge, event.frame - e.delay, {}) for e in self._wiring.inputs]
