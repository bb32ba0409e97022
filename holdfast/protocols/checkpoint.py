"""Partial fault tolerance: own state every so often, no queue, no coordination.

Promise: a restarted unit has its state of a declared age; the frames between that and
its new place are LOST and named so; everything else is as without a failure. Cheap,
and right where the newest answer matters more than the complete one.

Why no more is promised. Upstream is acked when a frame is processed, not when it is
stored, so inputs of the lost frames may be gone; and the checkpoint holds no queue, so
frames in flight may be gone too. `placing` finds the first number that nobody has seen
and for which inputs exist; what lies before it is sealed LOST.

Pure: no clock, randomness, thread, file, socket or Spark.
Made by `engine.protect.wiring` and by `simulation.protections`. See `driving` for how.
"""

from __future__ import annotations

from holdfast.protocols.dialogue import (
    CheckpointEvent,
    CheckpointInstruction,
    CheckpointStored,
    CheckpointWanted,
    FrameProcessed,
    PinFrame,
    Restored,
    StoreCheckpoint,
    UnpinFrame,
)
from holdfast.protocols.invariants import invariant
from holdfast.protocols.none import NoProtection
from holdfast.protocols.wiring import Frame, Wiring

__all__ = ["PartialCheckpoint"]


class PartialCheckpoint(NoProtection):
    """State changes only through `handle`."""

    def __init__(self, wiring: Wiring, every: int, epoch: int, restored: Restored) -> None:
        super().__init__(wiring, every, epoch, restored)
        invariant(every >= 1, f"checkpoint every {every} frames")
        self._every = every
        self._serial = restored.serial
        self._left_over = restored.pinned
        self._storing: tuple[int, Frame] | None = None

    @property
    def pending(self) -> tuple[Frame, ...]:
        return () if self._storing is None else (self._storing[1],)

    def start(self) -> list[CheckpointInstruction]:
        return [UnpinFrame(serial) for serial, _ in self._left_over]

    def handle(self, event: CheckpointEvent) -> list[CheckpointInstruction]:
        out = super().handle(event)
        match event:
            case FrameProcessed(frame=frame, due=due) if due or frame % self._every == 0:
                return out + self._take()
            case CheckpointWanted():
                return out + self._take()
            case CheckpointStored(serial):
                invariant(
                    self._storing is not None and self._storing[0] == serial,
                    f"stored {serial} while storing {self._storing}",
                )
                self._storing = None
                return [UnpinFrame(serial)]
            case _:
                return out

    def _take(self) -> list[CheckpointInstruction]:
        if self._storing is not None or self._processed == 0:
            return []
        self._serial += 1
        self._storing = (self._serial, self._processed)
        return [
            PinFrame(self._serial, self._processed),
            StoreCheckpoint(self._serial, self._processed, ()),
        ]
