"""Extended ECOC: joins merge checkpoints by cost, cycles are broken by extension.

Promise: lossless after any number of simultaneous failures, cycles included, with
fewer and smaller checkpoints than plain ecoc where requests meet.

Why it is lossless (Lemma 5.23, docs/protocols/extended.md). A pending checkpoint at
frame m becomes permanent when on each output edge the consumer acked m, or the frames
behind its last ack up to m go into the checkpoint. That is ecoc's rule on the first
kind of edge and the uncoordinated rule on the second; a restored consumer finds what
it needs in either case. What is put in is always everything unacknowledged on that
edge, never only the frames behind the consumer's pending checkpoint: that one may die
with its unit. (The thesis adds the latter and does not wait on cycles; if both ends
die in that moment the consumer restarts before the first of them.)

Why it completes. A unit answers a request by cost: if a pending checkpoint of its own
is a little older, extending the asker by the frames between may be cheaper than a new
checkpoint here and all below (sizes of those come up with the acks as a map
unit -> bytes, united, so a diamond counts once and a cycle does not feed itself). Then
the asker waits for the older one. Waiting can go round a cycle; ids find that. Every
pending checkpoint carries the ids of all requests it answers and passes each id on
along the edges of its cycle, also an id that was merged into it later. So if units
waited in a circle, each would have got each id from the one before, which cannot be
true of all. The unit that meets an id it already has, through another asker, tells the
sender to extend with the whole queue and not to wait. From then on nobody waits over that
edge for that checkpoint, so ids that come the same way later are answered likewise and go
no further: sent on, they would make a unit extend that is waited for anyway. (The thesis
keeps the id of the first request only; two merged rounds then wait for each other for ever.)

On a feedback edge with delay k even a perfect cut leaves k frames between the two
checkpoints, so the producer asks for an ack of m - k and puts the rest in.

Pure: no clock, randomness, thread, file, socket or Spark.
Made by `engine.protect.wiring` and by `simulation.protections`. See `driving` for how.
"""

from __future__ import annotations

from holdfast.protocols.dialogue import (
    CheckpointInstruction,
    ExtensionArrived,
    FrameProcessed,
    RequestArrived,
    Restored,
    SendExtension,
    SendRequest,
)
from holdfast.protocols.ecoc import Asker, Ecoc, Pending
from holdfast.protocols.messages import Loads
from holdfast.protocols.wiring import EdgeId, Frame, OutputEdge, Wiring

__all__ = ["Extended"]


class Extended(Ecoc):
    """State changes only through `handle`."""

    _can_extend = True

    def __init__(
        self,
        wiring: Wiring,
        every: int,
        epoch: int,
        restored: Restored,
        phase: int = 0,
        triggers: bool | None = None,
    ) -> None:
        super().__init__(wiring, every, epoch, restored, phase, triggers)
        self._cyclic = {e.edge for e in wiring.inputs if e.on_cycle}
        self._cyclic_outputs = [e for e in wiring.outputs if e.on_cycle]
        self._sizes: dict[EdgeId, dict[Frame, int]] = {e.edge: {} for e in wiring.inputs}
        self._downstream: dict[EdgeId, Loads] = {}
        self._whole: dict[EdgeId, Asker] = {}
        self._measured = 0
        self._measured_bytes = 0
        self._state_bytes = 0

    def _refuse(self, wiring: Wiring) -> None:
        """Every wiring will do."""

    # ---- what a checkpoint costs --------------------------------------------------------

    @property
    def loads(self) -> Loads:
        """Mean bytes of a checkpoint of this unit and of every unit below it."""
        united: Loads = {}
        for loads in self._downstream.values():
            united.update(loads)
        own = self._measured_bytes // self._measured if self._measured else self._state_bytes
        united[self._wiring.unit] = own
        return united

    def _learn(self, edge: EdgeId, loads: Loads) -> None:
        if loads:
            self._downstream[edge] = loads

    def _measure(self, size: int) -> None:
        self._measured += 1
        self._measured_bytes += size
        for source in self._wiring.inputs:
            # Frames that a stored checkpoint covers are never extended over.
            sizes, safe = self._sizes[source.edge], self._stored - source.delay
            for frame in [f for f in sizes if f <= safe]:
                del sizes[frame]

    def _processed_frame(self, event: FrameProcessed) -> list[CheckpointInstruction]:
        self._state_bytes = event.state_bytes
        for source, size in zip(self._wiring.inputs, event.input_bytes, strict=False):
            self._sizes[source.edge][event.frame - source.delay] = size
        return super()._processed_frame(event)

    def _bytes_between(self, edge: EdgeId, after: Frame, upto: Frame) -> int:
        sizes = self._sizes[edge]
        return sum(sizes.get(frame, 0) for frame in range(after + 1, upto + 1))

    # ---- requests -----------------------------------------------------------------------

    def _decide(self, request: RequestArrived) -> list[CheckpointInstruction]:
        edge = request.edge
        if self._stored >= request.frame:
            return [self._ack(edge)]
        asker = (edge, request.epoch, request.serial)
        if edge in self._cyclic and (self._whole.get(edge) == asker or self._came_round(request, asker)):
            self._whole[edge] = asker
            return [SendExtension(edge, request.epoch, request.serial, 0, whole=True)]
        if self._storing is not None and self._storing.frame >= request.frame:
            return []
        for pending in self._pending:
            if pending.frame >= request.frame:
                return self._merge(pending, request, asker)
        if self._processed < request.frame:
            self._wanted.append(request)
            return []
        if self._pending and request.extendable:
            older = self._pending[-1]
            after = max(older.frame - self._wiring.delays[edge], 0)
            # The asker asks for `frame` of the common clock; of a feedback edge it puts
            # the last frames in anyway.
            upto = request.frame - self._wiring.delays[edge]
            if self._bytes_between(edge, after, upto) < sum(self.loads.values()):
                extension = SendExtension(edge, request.epoch, request.serial, after, whole=False)
                return [extension, *self._merge(older, request, asker)]
        return self._take(self._processed, self._inherit(request))

    def _came_round(self, request: RequestArrived, asker: Asker) -> bool:
        """Whether a pending checkpoint here got one of the ids from somebody else."""
        return any(pending.ids.get(name, asker) != asker for pending in self._pending for name in request.ids)

    def _merge(self, pending: Pending, request: RequestArrived, asker: Asker) -> list[CheckpointInstruction]:
        """Let a pending checkpoint answer this request too; its ids travel on."""
        new = [name for name in request.ids if name not in pending.ids]
        for name in new:
            pending.ids[name] = asker
        if not new or request.edge not in self._cyclic:
            return []
        return [
            SendRequest(e.edge, pending.serial, pending.frame, frozenset(new), pending.extendable)
            for e in self._cyclic_outputs
            if not self._edge_covers(pending, e)
        ]

    # ---- extension ------------------------------------------------------------------------

    def _extend(self, event: ExtensionArrived) -> list[CheckpointInstruction]:
        for pending in self._pending:
            if event.epoch == self._epoch and pending.serial == event.serial:
                before = pending.relaxed.get(event.edge, pending.frame)
                pending.relaxed[event.edge] = min(before, 0 if event.whole else event.after)
                return self._settle()
        # The checkpoint is stored or was forgotten: the next ack says all.
        return []

    def _edge_covers(self, pending: Pending, edge: OutputEdge) -> bool:
        enough = pending.relaxed.get(edge.edge, pending.frame)
        return self._acked[edge.edge] >= min(enough, pending.frame - edge.delay) - edge.lag

    def _queues(self, pending: Pending) -> tuple[tuple[EdgeId, Frame], ...]:
        return tuple((edge, acked) for edge, acked in self._acked.items() if acked < pending.frame)
