"""Uncoordinated checkpoints: state and unacknowledged queue, whenever it suits.

Promise: lossless after any number of simultaneous failures, cycles included, without
a word between units about when to checkpoint.

Why it holds (Lemma 5.20, docs/protocols/uncoordinated.md). A checkpoint at frame m
holds, for every output edge, the frames behind the consumer's last ack up to m. An
ack says that the consumer's *stored* checkpoint covers it. So whatever a restored
consumer lacks up to m is in the restored producer's queue, and what comes after m the
producer makes again. Upstream is acked only once the checkpoint is stored.

The interval is drawn in [0.5, 1.5] of the declared one, so that units do not fall
into step by accident; chance arrives as `IntervalDrawn`. A request from a neighbour
that is coordinated, or whose queue is half full, is served at once.

Pure: no clock, randomness, thread, file, socket or Spark. Driven by `unit`.
"""

from __future__ import annotations

from typing import assert_never

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointEvent,
    CheckpointInstruction,
    CheckpointPrepared,
    CheckpointStored,
    CheckpointWanted,
    DrawInterval,
    EdgeResumed,
    ExtensionArrived,
    FrameProcessed,
    FramesSkipped,
    IntervalDrawn,
    PinFrame,
    RequestArrived,
    Restored,
    SendAck,
    SendRequest,
    StoreCheckpoint,
    UnpinFrame,
)
from holdfast.protocols.invariants import invariant
from holdfast.protocols.messages import Loads
from holdfast.protocols.wiring import EdgeId, Frame, Wiring

__all__ = ["Uncoordinated"]


class Uncoordinated:
    """State changes only through `handle`."""

    lossy = False

    def __init__(self, wiring: Wiring, every: int, epoch: int, restored: Restored) -> None:
        invariant(every >= 1, f"checkpoint every {every} frames")
        self._wiring = wiring
        self._every = every
        self._acked: dict[EdgeId, Frame] = {e.edge: restored.frame for e in wiring.outputs}
        self._acked.update(restored.acked)
        self._processed = restored.frame
        self._stored = restored.stored
        self._left: int | None = None
        self._serial = restored.serial
        self._left_over = restored.pinned
        self._storing: tuple[int, Frame] | None = None
        self._wanted: Frame | None = None
        self._asked: Frame | None = None
        self._size = 0

    @property
    def stored(self) -> Frame:
        return self._stored

    @property
    def pending(self) -> tuple[Frame, ...]:
        return () if self._storing is None else (self._storing[1],)

    @property
    def asking(self) -> bool:
        """A consumer that was asked has not stored yet."""
        asked = self._asked
        return asked is not None and any(self._acked[e.edge] < asked - e.delay for e in self._wiring.outputs)

    @property
    def loads(self) -> Loads:
        return {self._wiring.unit: self._size}

    def start(self) -> list[CheckpointInstruction]:
        # What was on its way is overtaken by the next checkpoint. The interval: half of
        # the declared one, rounded up, to one and a half of it.
        return [
            *(UnpinFrame(serial) for serial, _ in self._left_over),
            DrawInterval((self._every + 1) // 2, (3 * self._every) // 2),
        ]

    def handle(self, event: CheckpointEvent) -> list[CheckpointInstruction]:
        match event:
            case IntervalDrawn(frames):
                invariant(frames >= 1, f"interval of {frames} frames")
                self._left = frames
                return []
            case FrameProcessed(frame=frame, due=due):
                self._processed = frame
                return self._count(due)
            case CheckpointWanted():
                # The queue empties when the consumers checkpoint, not when this unit does.
                self._asked = self._processed
                return [
                    SendRequest(e.edge, 0, self._processed, frozenset(), extendable=False)
                    for e in self._wiring.outputs
                    if not e.outside
                ] + self._take(self._processed)
            case RequestArrived(edge=edge, frame=frame):
                return self._serve(edge, frame)
            case AckArrived(edge, frame, _):
                self._acked[edge] = max(self._acked[edge], frame)
                return []
            case EdgeResumed(edge):
                return self._ask_again(edge)
            case CheckpointStored(serial, size):
                return self._permanent(serial, size)
            case ExtensionArrived():
                # Its queue is always in the checkpoint: nothing to add.
                return []
            case CheckpointPrepared() | FramesSkipped():
                invariant(False, f"{type(event).__name__} in an uncoordinated unit")
                return []
            case _:
                assert_never(event)

    def _count(self, due: bool) -> list[CheckpointInstruction]:
        if self._left is not None:
            self._left -= 1
            due = due or self._left <= 0
        if self._wanted is not None and self._processed >= self._wanted:
            due = True
        return self._take(self._processed) if due else []

    def _serve(self, edge: EdgeId, frame: Frame) -> list[CheckpointInstruction]:
        if self._stored >= frame:
            return [self._ack(edge)]
        if self._storing is not None and self._storing[1] >= frame:
            return []
        if self._processed >= frame:
            return self._take(self._processed)
        self._wanted = max(self._wanted or 0, frame)
        return []

    def _take(self, frame: Frame) -> list[CheckpointInstruction]:
        """Checkpoint at the processed frame; one is on its way at most."""
        if self._storing is not None:
            self._wanted = max(self._wanted or 0, frame)
            return []
        self._serial += 1
        self._storing = (self._serial, frame)
        self._wanted = None
        self._left = None
        queues = tuple((edge, min(acked, frame)) for edge, acked in self._acked.items())
        return [
            PinFrame(self._serial, frame),
            StoreCheckpoint(self._serial, frame, queues),
            DrawInterval((self._every + 1) // 2, (3 * self._every) // 2),
        ]

    def _permanent(self, serial: int, size: int) -> list[CheckpointInstruction]:
        expected, frame = self._storing or (None, 0)
        invariant(expected == serial, f"stored {serial} while storing {expected}")
        self._stored = frame
        self._storing = None
        self._size = size
        out: list[CheckpointInstruction] = [UnpinFrame(serial)]
        out += [self._ack(e.edge) for e in self._wiring.inputs]
        if self._wanted is not None and self._processed >= self._wanted:
            out += self._take(self._processed)
        return out

    def _ack(self, edge: EdgeId) -> SendAck:
        return SendAck(edge, max(self._stored - self._wiring.delays[edge], 0), self.loads)

    def _ask_again(self, edge: EdgeId) -> list[CheckpointInstruction]:
        """A consumer that restarted may have forgotten that it was asked."""
        output = next(e for e in self._wiring.outputs if e.edge == edge)
        if output.outside or self._asked is None:
            return []
        if self._acked[edge] >= self._asked - output.delay:
            return []
        return [SendRequest(edge, 0, self._asked, frozenset(), extendable=False)]
