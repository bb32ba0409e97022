"""ECOC checkpoints of one unit: pending until its consumers acked, then stored.

Promise: lossless after any number of simultaneous failures on acyclic graphs, with
no queue in the checkpoint and no frame that waits for one.

Why it holds (Lemma 5.22, docs/protocols/ecoc.md). A checkpoint at frame m becomes
permanent only when every consumer acked m, that is, when each consumer's *stored*
checkpoint is at m or later. So on every edge stored safe_out(x) <= safe_in(y): a
restored producer makes again all that a restored consumer can miss. Requests (id, m)
follow the frames downstream until units whose outputs all leave the graph; acks come
back and make one pending checkpoint after the other permanent. A crash forgets the
pending ones, or some of them if their pins are still on the host's disk: those are
taken up again under ids of their own. Producers send their requests again when the
consumer is back.

Sinks are consumers too: a checkpoint waits until the ledger has what came before it.
A consumer with a partial protection is waited for until it has processed the frame.
If one ack completes several pending checkpoints, only the newest travels.

On a cycle every unit would wait for the next one for ever: refused, see `extended`.

Pure: no clock, randomness, thread, file, socket or Spark.
Made by `engine.protect.wiring` and by `simulation.protections`. See `driving` for how.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointEvent,
    CheckpointInstruction,
    CheckpointPrepared,
    CheckpointStored,
    CheckpointWanted,
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
from holdfast.protocols.invariants import ProtocolRefused, invariant
from holdfast.protocols.messages import CheckId, Loads
from holdfast.protocols.wiring import EdgeId, Frame, OutputEdge, Wiring

__all__ = ["Asker", "Ecoc", "Pending"]

Asker = tuple[EdgeId, int, int]
"""(edge, epoch, serial) of the pending checkpoint on whose behalf a request came."""


@dataclass(slots=True)
class Pending:
    """A pinned frame that waits for acks.

    `ids` says through whom each id came, None for one born here. `relaxed` maps an
    output edge to the ack that is enough because the frames behind it go into the
    checkpoint; 0 means no waiting at all.
    """

    serial: int
    frame: Frame
    ids: dict[CheckId, Asker | None]
    extendable: bool
    relaxed: dict[EdgeId, Frame] = field(default_factory=dict)


class Ecoc:
    """State changes only through `handle`."""

    lossy = False
    _can_extend = False
    _takes_up_pins = True

    def __init__(
        self,
        wiring: Wiring,
        every: int,
        epoch: int,
        restored: Restored,
        phase: int = 0,
        triggers: bool | None = None,
    ) -> None:
        """`triggers`: start rounds by its own interval. Units that read sources do; so
        must one whose producers all have protections that ask nobody for checkpoints."""
        invariant(every >= 1, f"checkpoint every {every} frames")
        self._refuse(wiring)
        self._wiring = wiring
        self._every = every
        self._phase = phase
        self._epoch = epoch
        self._triggers = wiring.is_source if triggers is None else triggers
        self._acked: dict[EdgeId, Frame] = {e.edge: restored.frame for e in wiring.outputs}
        self._acked.update(restored.acked)
        self._processed = restored.frame
        self._stored = restored.stored
        self._serial = restored.serial
        taken = [pin for pin in restored.pinned if self._takes_up_pins and pin[1] > self._stored]
        self._left_over = [serial for serial, frame in restored.pinned if (serial, frame) not in taken]
        self._pending: list[Pending] = [
            Pending(serial, frame, {CheckId(wiring.unit, epoch, serial): None}, self._can_extend)
            for serial, frame in sorted(taken, key=lambda pin: pin[1])
        ]
        self._storing: Pending | None = None
        self._wanted: list[RequestArrived] = []
        self._asked_at: Frame = restored.frame - every  # the last checkpoint here that was a part of another's round

    def _refuse(self, wiring: Wiring) -> None:
        if wiring.on_cycle:
            raise ProtocolRefused(
                f"unit {wiring.unit!r} lies on a cycle: plain ecoc would never complete a "
                "checkpoint there; use ecoc(extended=True) or uncoordinated"
            )
        late = [e.edge for e in wiring.outputs if e.delay > 0]
        if late:
            raise ProtocolRefused(
                f"unit {wiring.unit!r} feeds '{late[0]}' with a delay: even a perfect cut "
                "leaves frames on such an edge and plain ecoc stores none; use "
                "ecoc(extended=True) or uncoordinated"
            )

    @property
    def stored(self) -> Frame:
        return self._stored

    @property
    def pending(self) -> tuple[Frame, ...]:
        frames = tuple(p.frame for p in self._pending)
        return frames if self._storing is None else (self._storing.frame, *frames)

    @property
    def asking(self) -> bool:
        return self._storing is not None or bool(self._pending)

    @property
    def loads(self) -> Loads:
        return {}

    def start(self) -> list[CheckpointInstruction]:
        # Requests for what was taken up follow when each consumer is in contact.
        unpins: list[CheckpointInstruction] = [UnpinFrame(serial) for serial in self._left_over]
        return unpins + self._settle()

    def handle(self, event: CheckpointEvent) -> list[CheckpointInstruction]:
        match event:
            case FrameProcessed():
                return self._processed_frame(event)
            case RequestArrived():
                return self._decide(event)
            case AckArrived(edge, frame, loads):
                invariant(edge in self._acked, f"ack from unknown edge {edge!r}")
                # Acks are cumulative; an old one may arrive late.
                self._acked[edge] = max(self._acked[edge], frame)
                self._learn(edge, loads)
                return self._settle()
            case CheckpointStored(serial, size):
                return self._permanent(serial, size)
            case EdgeResumed(edge):
                return self._request_again(edge)
            case CheckpointWanted():
                # Its consumers must checkpoint for the queue to become shorter.
                return self._take_own(extendable=False)
            case ExtensionArrived():
                return self._extend(event)
            case CheckpointPrepared(serial):
                return self._prepared(serial)
            case IntervalDrawn() | FramesSkipped():
                invariant(False, f"{type(event).__name__} in a coordinated unit")
                return []
            case _:
                assert_never(event)

    # ---- planning ---------------------------------------------------------------------

    def _processed_frame(self, event: FrameProcessed) -> list[CheckpointInstruction]:
        self._processed = event.frame
        out: list[CheckpointInstruction] = []
        if self._triggers and (event.due or self._is_time(event.frame)):
            out += self._take_own()
        if self._wanted:
            ripe = [r for r in self._wanted if r.frame <= event.frame]
            self._wanted = [r for r in self._wanted if r.frame > event.frame]
            for request in ripe:
                out += self._decide(request)
        return _united(out)

    def _is_time(self, frame: Frame) -> bool:
        """Where the interval says so, unless somebody else's round has come through here within it.

        Units on one cycle ask each other: each would go round it once an interval, and all the others with it.
        """
        return frame % self._every == self._phase and frame - self._asked_at >= self._every

    def _take_own(self, extendable: bool = True) -> list[CheckpointInstruction]:
        if self._processed == 0:
            return []
        new = CheckId(self._wiring.unit, self._epoch, self._serial + 1)
        return self._take(self._processed, {new: None}, extendable)

    def _decide(self, request: RequestArrived) -> list[CheckpointInstruction]:
        """Serve a request: with what is stored or pending, now, or when its frame is here."""
        if self._stored >= request.frame:
            return [self._ack(request.edge)]
        if any(frame >= request.frame for frame in self.pending):
            return []
        if self._processed < request.frame:
            self._wanted.append(request)
            return []
        return self._take(self._processed, self._inherit(request))

    def _inherit(self, request: RequestArrived) -> dict[CheckId, Asker | None]:
        """The ids of a request; one from a unit that does not coordinate has none."""
        if request.ids:
            return dict.fromkeys(request.ids, (request.edge, request.epoch, request.serial))
        return {CheckId(self._wiring.unit, self._epoch, self._serial + 1): None}

    def _take(
        self, frame: Frame, ids: dict[CheckId, Asker | None], extendable: bool = True
    ) -> list[CheckpointInstruction]:
        self._serial += 1
        if any(asker is not None for asker in ids.values()):
            self._asked_at = frame
        pending = Pending(self._serial, frame, ids, extendable and self._can_extend)
        self._pending.append(pending)
        out: list[CheckpointInstruction] = [PinFrame(self._serial, frame)]
        names = frozenset(ids)
        out += [
            SendRequest(e.edge, pending.serial, frame, names, pending.extendable)
            for e in self._wiring.outputs
            if not e.outside
        ]
        return out + self._settle()

    def _request_again(self, edge: EdgeId) -> list[CheckpointInstruction]:
        """A consumer that restarted has forgotten its pending checkpoints."""
        output = next(e for e in self._wiring.outputs if e.edge == edge)
        if output.outside:
            return []
        return [
            SendRequest(edge, p.serial, p.frame, frozenset(p.ids), p.extendable)
            for p in self._pending
            if not self._edge_covers(p, output)
        ]

    # ---- permanence -------------------------------------------------------------------

    def _edge_covers(self, pending: Pending, edge: OutputEdge) -> bool:
        # A consumer that acks late has processed more than it acked. To wait for the ack
        # itself is to wait for frames that a producer at its bound will never make.
        return self._acked[edge.edge] >= pending.frame - edge.lag

    def _queues(self, pending: Pending) -> tuple[tuple[EdgeId, Frame], ...]:
        return ()

    def _settle(self) -> list[CheckpointInstruction]:
        """Store the newest pending checkpoint that all consumers cover; forget older ones."""
        if self._storing is not None:
            return []
        outputs = self._wiring.outputs
        for i in range(len(self._pending) - 1, -1, -1):
            pending = self._pending[i]
            if all(self._edge_covers(pending, edge) for edge in outputs):
                out: list[CheckpointInstruction] = [UnpinFrame(old.serial) for old in self._pending[:i]]
                del self._pending[: i + 1]
                self._storing = pending
                out.append(StoreCheckpoint(pending.serial, pending.frame, self._queues(pending)))
                return out
        return []

    def _permanent(self, serial: int, size: int) -> list[CheckpointInstruction]:
        pending = self._storing
        if pending is None or pending.serial != serial:
            invariant(False, f"stored {serial}, which was not on its way")
            return []
        self._storing = None
        self._stored = pending.frame
        self._measure(size)
        out: list[CheckpointInstruction] = [UnpinFrame(serial)]
        out += [self._ack(e.edge) for e in self._wiring.inputs]
        return out + self._settle()

    def _ack(self, edge: EdgeId) -> SendAck:
        return SendAck(edge, max(self._stored - self._wiring.delays[edge], 0), self.loads)

    # ---- what only its relatives do -----------------------------------------------------

    def _prepared(self, serial: int) -> list[CheckpointInstruction]:
        invariant(False, f"ecoc checkpoint {serial} has one phase")
        return []

    def _learn(self, edge: EdgeId, loads: Loads) -> None:
        """Plain ecoc decides nothing by cost."""

    def _measure(self, size: int) -> None:
        """Plain ecoc decides nothing by cost."""

    def _extend(self, event: ExtensionArrived) -> list[CheckpointInstruction]:
        invariant(False, f"{event.edge!r} answers a request that cannot be extended")
        return []


def _united(instructions: list[CheckpointInstruction]) -> list[CheckpointInstruction]:
    """Requests over one edge on behalf of one checkpoint become one: told apart, the second might go round a cycle alone."""
    ids: dict[tuple[EdgeId, int], frozenset[CheckId]] = {}
    for each in instructions:
        if isinstance(each, SendRequest):
            ids[each.edge, each.serial] = ids.get((each.edge, each.serial), frozenset()) | each.ids
    out: list[CheckpointInstruction] = []
    for each in instructions:
        if not isinstance(each, SendRequest):
            out.append(each)
        elif (each.edge, each.serial) in ids:
            out.append(replace(each, ids=ids.pop((each.edge, each.serial))))
    return out
