"""One running instance of a unit: fence, intake, queue and protection, glued.

Promise: whatever the wire does (loss with a connection, duplicates, senders that
have been replaced), the unit processes each frame once, in order, and its neighbours
can always get from it what they have not acknowledged.

Why it holds. Every message passes the fence before anything else looks at it. Frames
are numbered, so the intake can tell new from old. A producer keeps what is not
acknowledged and, when a consumer says where it stands, sends everything behind that
point again, requests of pending checkpoints included. A unit is held only when a
queue is at its bound.

Pure: no clock, randomness, thread, file, socket or Spark.
Driven by `hosts` on Spark and by `simulation.instances`.
"""

from __future__ import annotations

from typing import assert_never

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointInstruction,
    CheckpointMachine,
    CheckpointPrepared,
    CheckpointStored,
    CheckpointWanted,
    CommitCheckpoint,
    DrawInterval,
    EdgeResumed,
    ExtensionArrived,
    FrameProcessed,
    FramesSkipped,
    InputFrame,
    IntervalDrawn,
    MessageArrived,
    OutputFrame,
    PeerFound,
    PinFrame,
    PrepareCheckpoint,
    ProcessFrame,
    RequestArrived,
    Restored,
    Send,
    SendAck,
    SendExtension,
    SendRequest,
    SkipFrames,
    StepDown,
    StoreCheckpoint,
    UnitEvent,
    UnitInstruction,
    UnitMessage,
    UnpinFrame,
)
from holdfast.protocols.fencing import Fence
from holdfast.protocols.intake import Arrival, Intake
from holdfast.protocols.invariants import invariant
from holdfast.protocols.messages import (
    AckSent,
    ExtensionSent,
    FrameSent,
    Kind,
    OfferSent,
    RefusalSent,
    RequestSent,
    ResumeSent,
    Stamp,
)
from holdfast.protocols.placing import Placing
from holdfast.protocols.queue import OutputQueue
from holdfast.protocols.wiring import EdgeId, Frame, Wiring

__all__ = ["LOST_CHECKSUM", "Unit"]

LOST_CHECKSUM = 1
"""A lost frame is empty; all of them have one content."""


class Unit:
    """State changes only through `start` and `handle`."""

    fence_type = Fence
    placing_type = Placing
    intake_type = Intake
    queue_type = OutputQueue

    def __init__(
        self,
        wiring: Wiring,
        protection: CheckpointMachine,
        stamp: Stamp,
        restored: Restored,
        bytes_max: int,
    ) -> None:
        self.wiring = wiring
        self.protection = protection
        self.stamp = stamp
        self.processed = restored.frame
        self.fence = self.fence_type()
        self.intake = self.intake_type(wiring.inputs, restored.frame)
        self.queue = self.queue_type(wiring.outputs, bytes_max, restored.frame, restored.acked, restored.frames)
        self._outputs = {e.edge: e for e in wiring.outputs}
        self._producers = {e.edge: e.producer for e in wiring.inputs}
        self._sent: dict[EdgeId, Frame | None] = {e.edge: None for e in wiring.outputs}
        self._contacts: dict[EdgeId, tuple[int, int]] = {}
        self._senders: dict[EdgeId, int] = {}
        self._acks: dict[EdgeId, tuple[int, Frame]] = {}
        self._asked = 0
        self._bytes_max = bytes_max
        self._placing = None if restored.placed else self.placing_type(wiring, restored.frame)
        self._working: Frame | None = None
        self._input_bytes: tuple[int, ...] = ()
        self.stepped_down = False

    @property
    def placed(self) -> bool:
        """Whether it knows where it goes on; until then it seals and sends nothing."""
        return self._placing is None

    def start(self) -> list[UnitInstruction]:
        """Make contact on every edge; producers replay, consumers say where they stand."""
        out = self._wire(self.protection.start())
        out += [self._resume(e.edge) for e in self.wiring.inputs]
        out += [self._offer(e.edge) for e in self.wiring.outputs]
        return out + self._relieve() + self._advance()

    def handle(self, event: UnitEvent) -> list[UnitInstruction]:
        if self.stepped_down:
            return []
        match event:
            case MessageArrived(message):
                return self._receive(message)
            case FrameProcessed():
                return self._seal(event)
            case PeerFound(edge):
                if edge in self._outputs:
                    # Nothing flows until the consumer says where it stands.
                    self._sent[edge] = None
                    return [self._offer(edge)]
                self.intake.contact(edge)
                return [self._resume(edge)]
            case CheckpointWanted() | CheckpointPrepared() | CheckpointStored() | IntervalDrawn():
                out = self._wire(self.protection.handle(event))
                return out + self._relieve() + self._advance()
            case _:
                assert_never(event)

    # ---- messages -------------------------------------------------------------------

    def _receive(self, message: UnitMessage) -> list[UnitInstruction]:
        if isinstance(message, RefusalSent):
            return self._refused(message)
        if not self.fence.admit(message.stamp):
            sender = message.stamp
            return [
                Send(
                    sender.unit,
                    RefusalSent(self.stamp, sender, self.fence.highest(sender.unit, sender.slot)),
                )
            ]
        match message:
            case FrameSent(stamp, edge, number, kind, checksum, size):
                if self._senders.get(edge) != stamp.epoch:
                    self._senders[edge] = stamp.epoch
                    self.intake.contact(edge)
                arrival = self.intake.accept(edge, number, InputFrame(kind, checksum, size))
                if arrival is Arrival.GAP:
                    return [self._resume(edge)] if self.intake.should_ask(edge) else []
                return self._advance() if arrival is Arrival.NEW else []
            case AckSent(stamp, edge, number, loads):
                self._acks[edge] = max(self._acks.get(edge, (0, 0)), (stamp.epoch, number))
                if self._placing is not None:
                    self._placing.acked(edge, number)
                    return []
                self.queue.ack(edge, number)
                out = self._wire(self.protection.handle(AckArrived(edge, number, loads)))
                return out + self._relieve() + self._advance()
            case RequestSent(stamp, edge, serial, number, ids, extendable):
                request = RequestArrived(edge, stamp.epoch, serial, number, ids, extendable)
                return self._wire(self.protection.handle(request))
            case ExtensionSent(_, edge, epoch, serial, after, whole):
                extension = ExtensionArrived(edge, epoch, serial, after, whole)
                return self._wire(self.protection.handle(extension))
            case ResumeSent(stamp, edge, contact, after, acked, lossy):
                if (stamp.epoch, contact) <= self._contacts.get(edge, (0, 0)):
                    return []
                self._contacts[edge] = (stamp.epoch, contact)
                epoch, overtook = self._acks.get(edge, (0, 0))
                if after is not None and epoch == stamp.epoch:
                    # A later ack of the same instance came first: it holds more by now.
                    after = max(after, overtook)
                if self._placing is not None:
                    self._placing.resumed(edge, after, acked)
                    return self._place()
                return self._replay(edge, after, acked, lossy)
            case OfferSent(_, edge, first, answer):
                if answer:
                    return self._take_offer(edge, first)
                self.intake.contact(edge)
                return [self._resume(edge)]
            case _:
                assert_never(message)

    def _refused(self, message: RefusalSent) -> list[UnitInstruction]:
        if message.epoch <= self.stamp.epoch:
            return []
        self.stepped_down = True
        return [StepDown(message.epoch)]

    def _replay(self, edge: EdgeId, after: Frame | None, acked: Frame, lossy: bool = False) -> list[UnitInstruction]:
        self.queue.ack(edge, acked)
        out: list[UnitInstruction] = []
        if after is None or lossy:
            # A consumer with a partial protection takes what is left.
            after = max(after or 0, self.queue.trimmed(edge))
            out.append(self._offer(edge, answer=True, first=after + 1))
        invariant(
            after >= self.queue.trimmed(edge),
            f"{edge!r} needs frame {after + 1} again, trimmed up to {self.queue.trimmed(edge)}",
        )
        self._sent[edge] = after
        out += self._flush(edge)
        out += self._wire(self.protection.handle(AckArrived(edge, acked, {})))
        out += self._wire(self.protection.handle(EdgeResumed(edge)))
        return out + self._relieve() + self._advance()

    # ---- finding a place after a loss -------------------------------------------------

    def _take_offer(self, edge: EdgeId, first: Frame) -> list[UnitInstruction]:
        if not self.protection.lossy:
            return []
        missed = first - 1 > self.intake.received[edge]
        self.intake.skip(edge, first - 1)
        if self._placing is not None:
            self._placing.offered(edge, first)
            return self._place()
        lost: list[UnitInstruction] = []
        if missed:
            lost.append(SkipFrames(self.processed, self.processed))
        return lost + self._advance()

    def _place(self) -> list[UnitInstruction]:
        placing = self._placing
        placement = None if placing is None else placing.decide()
        if placement is None:
            return []
        self._placing = None
        frame, behind = placement.frame, self.processed
        self.processed = frame
        self.intake.forward(frame)
        lost = [
            (number, OutputFrame(port, Kind.LOST, LOST_CHECKSUM, 0))
            for port in self.wiring.ports
            for number in range(min(placement.acked.values(), default=frame) + 1, frame + 1)
        ]
        self.queue = self.queue_type(self.wiring.outputs, self._bytes_max, frame, placement.acked.items(), lost)
        out: list[UnitInstruction] = []
        if frame > behind or lost:
            out.append(SkipFrames(behind, frame))
        out += self._wire(self.protection.handle(FramesSkipped(frame)))
        for edge, received in placement.received.items():
            self._sent[edge] = min(received, frame)
            out.append(self._offer(edge, answer=True, first=self._sent[edge] + 1))
            out += self._flush(edge)
        out += [self._resume(e.edge) for e in self.wiring.inputs]
        return out + self._advance()

    # ---- frames ---------------------------------------------------------------------

    def _seal(self, event: FrameProcessed) -> list[UnitInstruction]:
        invariant(event.frame == self._working, f"frame {event.frame} was not asked for")
        self._working = None
        self.processed = event.frame
        self.queue.append(event.frame, event.outputs)
        out: list[UnitInstruction] = []
        for edge in self._outputs:
            out += self._flush(edge)
        processed = FrameProcessed(event.frame, event.outputs, event.state_bytes, self._input_bytes)
        out += self._wire(self.protection.handle(processed))
        return out + self._relieve() + self._advance()

    def _relieve(self) -> list[UnitInstruction]:
        """At half the bound ask for a checkpoint at once, before the queue is full."""
        if self.protection.asking or not self.queue.is_half_full:
            return []
        return self._wire(self.protection.handle(CheckpointWanted()))

    def _advance(self) -> list[UnitInstruction]:
        """Ask for the next frame when it is whole and there is room for its outputs."""
        number = self.processed + 1
        if self._working is not None or not self.intake.ready(number) or self.queue.is_full:
            return []
        if self._placing is not None:
            return []
        self._working = number
        inputs = self.intake.take(number)
        self._input_bytes = tuple(0 if frame is None else frame.size for frame in inputs)
        return [ProcessFrame(number, inputs)]

    def _flush(self, edge: EdgeId) -> list[UnitInstruction]:
        sent = self._sent[edge]
        if sent is None or sent >= self.queue.sealed:
            return []
        target = self._outputs[edge].consumer
        out: list[UnitInstruction] = []
        # A consumer that skipped frames may have acknowledged what was never sent.
        for number in range(max(sent, self.queue.trimmed(edge)) + 1, self.queue.sealed + 1):
            frame = self.queue.frame(edge, number)
            message = FrameSent(self.stamp, edge, number, frame.kind, frame.checksum, frame.size)
            out.append(Send(target, message))
        self._sent[edge] = self.queue.sealed
        return out

    # ---- from the protection's words to the wire -------------------------------------

    def _wire(self, instructions: list[CheckpointInstruction]) -> list[UnitInstruction]:
        out: list[UnitInstruction] = []
        for instruction in instructions:
            match instruction:
                case SendAck(edge, number, loads):
                    message = AckSent(self.stamp, edge, number, loads)
                    out.append(Send(self._producers[edge], message))
                case SendRequest(edge, serial, number, ids, extendable):
                    request = RequestSent(self.stamp, edge, serial, number, ids, extendable)
                    out.append(Send(self._outputs[edge].consumer, request))
                case SendExtension(edge, epoch, serial, after, whole):
                    extension = ExtensionSent(self.stamp, edge, epoch, serial, after, whole)
                    out.append(Send(self._producers[edge], extension))
                case (
                    PinFrame()
                    | UnpinFrame()
                    | StoreCheckpoint()
                    | PrepareCheckpoint()
                    | CommitCheckpoint()
                    | DrawInterval()
                ):
                    out.append(instruction)
                case _:
                    assert_never(instruction)
        return out

    def _resume(self, edge: EdgeId) -> UnitInstruction:
        acked = max(self.protection.stored - self.wiring.delays[edge], 0)
        self._asked += 1
        after: Frame | None = self.intake.received[edge]
        if self._placing is not None:
            # Who sets no condition must not hold on to frames of an earlier producer.
            after = None
            self.intake.forget(edge)
        lossy = self.protection.lossy
        message = ResumeSent(self.stamp, edge, self._asked, after, acked, lossy)
        return Send(self._producers[edge], message)

    def _offer(self, edge: EdgeId, answer: bool = False, first: Frame | None = None) -> UnitInstruction:
        if first is None:
            first = self.queue.trimmed(edge) + 1
        message = OfferSent(self.stamp, edge, first, answer)
        return Send(self._outputs[edge].consumer, message)
