"""Synchronised backups in two phases, beside plain ones in the same process.

Promise: lossless after any number of simultaneous failures on acyclic graphs; the
backups of neighbours are of the same frame whenever that frame can still be had, so a
recovery repeats the least; and making a backup count is one short message.

Why it holds (docs/protocols/synchronised.md). Phase one ships the backup of frame m,
which stands beside the former one and does not replace it, and asks all consumers for
a backup of m. Phase two lets it replace the former one, only when every consumer acked
m: its own backup of m or later is in force. So on every edge stored safe_out(x) <=
safe_in(y), as with ecoc. A unit that dies in between restarts from its former backup;
what it had prepared is dropped by the claim of its successor.

A consumer with a plain protection (uncoordinated, ecoc) answers the same request with
a checkpoint of its own kind, and a plain producer accepts our acks, so both kinds mix.

One backup is under way at a time: requests that come meanwhile wait for it.

Pure: no clock, randomness, thread, file, socket or Spark.
Made by `engine.protect.wiring` and by `simulation.protections`. See `driving` for how.
"""

from __future__ import annotations

from holdfast.protocols.dialogue import (
    CheckpointInstruction,
    CommitCheckpoint,
    FrameProcessed,
    PinFrame,
    PrepareCheckpoint,
    RequestArrived,
    Restored,
    SendRequest,
)
from holdfast.protocols.ecoc import Asker, Ecoc, Pending
from holdfast.protocols.invariants import invariant
from holdfast.protocols.messages import CheckId
from holdfast.protocols.wiring import Frame, Wiring

__all__ = ["Synchronised"]


class Synchronised(Ecoc):
    """State changes only through `handle`."""

    # What was prepared is dropped by the claim, so a pin alone is not worth keeping.
    _takes_up_pins = False

    def __init__(
        self,
        wiring: Wiring,
        every: int,
        epoch: int,
        restored: Restored,
        phase: int = 0,
        triggers: bool | None = None,
        back: int | None = None,
    ) -> None:
        """`back`: how many frames before the last one can still be pinned; None for all since the start."""
        super().__init__(wiring, every, epoch, restored, phase, triggers)
        self._back = back
        # States before this one died with the instance that made them.
        self._oldest = restored.frame
        self._prepared_serial: int | None = None

    def _processed_frame(self, event: FrameProcessed) -> list[CheckpointInstruction]:
        self._processed = event.frame
        due = self._triggers and (event.due or event.frame % self._every == self._phase)
        return self._serve_waiting() + (self._take_own() if due else [])

    def _take_own(self, extendable: bool = True) -> list[CheckpointInstruction]:
        # The next interval, or the queue's next asking, comes soon enough.
        return [] if self.asking else super()._take_own(extendable)

    def _decide(self, request: RequestArrived) -> list[CheckpointInstruction]:
        if self._stored >= request.frame:
            return [self._ack(request.edge)]
        if any(frame >= request.frame for frame in self.pending):
            return []
        if self.asking or self._processed < request.frame:
            self._wanted.append(request)
            return []
        # The frame asked for, though it may lie a little back; the oldest there is if that is gone.
        oldest = self._oldest if self._back is None else max(self._oldest, self._processed - self._back)
        return self._take(max(request.frame, oldest), self._inherit(request))

    def _serve_waiting(self) -> list[CheckpointInstruction]:
        waiting, self._wanted = sorted(self._wanted, key=lambda r: r.frame), []
        out: list[CheckpointInstruction] = []
        for request in waiting:
            out += self._decide(request)
        return out

    def _take(
        self, frame: Frame, ids: dict[CheckId, Asker | None], extendable: bool = True
    ) -> list[CheckpointInstruction]:
        self._serial += 1
        self._pending.append(Pending(self._serial, frame, ids, extendable=False))
        out: list[CheckpointInstruction] = [
            PinFrame(self._serial, frame),
            PrepareCheckpoint(self._serial, frame, ()),
        ]
        out += [
            SendRequest(e.edge, self._serial, frame, frozenset(ids), extendable=False)
            for e in self._wiring.outputs
            if not e.outside
        ]
        return out

    def _prepared(self, serial: int) -> list[CheckpointInstruction]:
        invariant(
            bool(self._pending) and self._pending[0].serial == serial,
            f"prepared {serial}, which was not on its way",
        )
        self._prepared_serial = serial
        return self._settle()

    def _settle(self) -> list[CheckpointInstruction]:
        if self._storing is not None or not self._pending:
            return []
        pending = self._pending[0]
        if pending.serial != self._prepared_serial:
            return []
        if not all(self._edge_covers(pending, edge) for edge in self._wiring.outputs):
            return []
        self._storing = self._pending.pop(0)
        return [CommitCheckpoint(pending.serial)]

    def _permanent(self, serial: int, size: int) -> list[CheckpointInstruction]:
        return super()._permanent(serial, size) + self._serve_waiting()
