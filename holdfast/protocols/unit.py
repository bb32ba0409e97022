"""One running instance of a unit: the ends of its edges and its protection, glued.

Promise: whatever the wire does, the unit processes each frame once, in order, and its
neighbours can always get from it what they have not acknowledged.

Why it holds. Both ends of an edge are `edges.Sender` and `edges.Receiver`, which refuse
what was replaced and tell new from old. When a consumer says where it stands, requests of
pending checkpoints are sent again too. Several frames may be under way (`ahead`); they
are begun in order, and end in it. A unit is held only when a queue is at its bound.

On Spark the board gives the permits (`engine.flow.scheduler`), with the same queues; this
glue stands for it where edges have wires.

Pure: no clock, randomness, thread, file, socket or Spark. Driven by `simulation.instances`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from holdfast.frames.identity import Kind
from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointEvent,
    CheckpointMachine,
    CheckpointPrepared,
    CheckpointStored,
    CheckpointWanted,
    EdgeResumed,
    ExtensionArrived,
    FrameProcessed,
    FramesSkipped,
    IntervalDrawn,
    LocalInstruction,
    MessageArrived,
    OutputFrame,
    PeerFound,
    ProcessFrame,
    RequestArrived,
    Restored,
    Send,
    SendAck,
    SendExtension,
    SendRequest,
    SkipFrames,
    StepDown,
    UnitEvent,
    UnitInstruction,
    UnitMessage,
)
from holdfast.protocols.driving import MachineDriver
from holdfast.protocols.edges import FrameArrival, Receiver, Sender
from holdfast.protocols.fencing import Fence
from holdfast.protocols.invariants import invariant
from holdfast.protocols.messages import (
    AckSent,
    ExtensionSent,
    FrameSent,
    OfferSent,
    RefusalSent,
    RequestSent,
    ResumeSent,
    Stamp,
)
from holdfast.protocols.placing import Placing
from holdfast.protocols.ports import InputPorts, OutputPorts
from holdfast.protocols.queue import FrameQueue
from holdfast.protocols.wiring import EdgeId, Frame, UnitId, Wiring

__all__ = ["LOST_CHECKSUM", "Unit"]

LOST_CHECKSUM = 1
"""A lost frame is empty; all of them have one content."""


class _Wire:
    """The words of a protection: to neighbours as messages, the others as they are."""

    is_over = False

    def __init__(self, stamp: Stamp, producers: Mapping[EdgeId, UnitId]) -> None:
        self._stamp = stamp
        self._producers = producers
        self._said: list[UnitInstruction] = []

    def taken(self) -> list[UnitInstruction]:
        said, self._said = self._said, []
        return said

    def ack(self, order: SendAck) -> None:
        self._say(self._producers[order.edge], AckSent(self._stamp, order.edge, order.frame, order.loads))

    def ask(self, order: SendRequest) -> None:
        request = RequestSent(self._stamp, order.edge, order.serial, order.frame, order.ids, order.extendable)
        self._say(order.edge.consumer.name, request)

    def extend(self, order: SendExtension) -> None:
        extension = ExtensionSent(self._stamp, order.edge, order.epoch, order.serial, order.after, order.whole)
        self._say(self._producers[order.edge], extension)

    def _say(self, to: UnitId, message: UnitMessage) -> None:
        self._said.append(Send(to, message))

    def _hand_on(self, order: LocalInstruction) -> None:
        self._said.append(order)

    pin = unpin = store = prepare = commit = draw = _hand_on


class Unit:
    """State changes only through `start` and `handle`."""

    fence_type = Fence
    placing_type = Placing
    queue_type: type[FrameQueue[EdgeId, OutputFrame]] = FrameQueue
    sender_type = Sender
    receiver_type = Receiver

    def __init__(
        self,
        wiring: Wiring,
        protection: CheckpointMachine,
        stamp: Stamp,
        restored: Restored,
        bytes_max: int,
        ahead: int = 1,
    ) -> None:
        """`ahead`: frames that may be begun beyond what is processed."""
        self.wiring = wiring
        self.protection = protection
        self.stamp = stamp
        self.processed = restored.frame
        self.fence = self.fence_type()
        self.queue = OutputPorts(
            wiring.outputs, bytes_max, restored.frame, restored.acked, restored.frames, self.queue_type
        )
        self.senders = {e.edge: self.sender_type(e, self.queue.of(e.edge), stamp, self.fence) for e in wiring.outputs}
        self.receivers = {e.edge: self.receiver_type(e, restored.frame, stamp, self.fence) for e in wiring.inputs}
        self._inputs = InputPorts(self.receivers)
        self._wire = _Wire(stamp, {e.edge: e.producer for e in wiring.inputs})
        self._driver = MachineDriver(protection, self._wire)
        self._ahead = ahead
        self._placing = None if restored.placed else self.placing_type(wiring, restored.frame)
        self._begun = restored.frame
        self._input_bytes: dict[Frame, tuple[int, ...]] = {}
        self.stepped_down = False

    @property
    def placed(self) -> bool:
        """Whether it knows where it goes on; until then it seals and sends nothing."""
        return self._placing is None

    def start(self) -> list[UnitInstruction]:
        """Make contact on every edge; producers replay, consumers say where they stand."""
        self._driver.start()
        out = self._wire.taken()
        out += [self._resume(edge) for edge in self.receivers]
        out += [self._down(edge, sender.offer()) for edge, sender in self.senders.items()]
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
                if edge in self.senders:
                    return [self._down(edge, self.senders[edge].offer())]
                self.receivers[edge].contact()
                return [self._resume(edge)]
            case CheckpointWanted() | CheckpointPrepared() | CheckpointStored() | IntervalDrawn():
                out = self._protect(event)
                return out + self._relieve() + self._advance()
            case _:
                assert_never(event)

    # ---- messages -------------------------------------------------------------------

    def _receive(self, message: UnitMessage) -> list[UnitInstruction]:
        if isinstance(message, RefusalSent):
            return self._refused(message)
        end: Sender | Receiver | None = self.senders.get(message.edge) or self.receivers.get(message.edge)
        if end is None:
            invariant(False, f"{type(message).__name__} on unknown edge {message.edge!s}")
            return []
        if (refusal := end.refuses(message)) is not None:
            return [Send(message.stamp.unit, refusal)]
        match message:
            case FrameSent(edge=edge):
                receiver = self.receivers[edge]
                arrival = receiver.accept(message)
                if arrival is FrameArrival.GAP:
                    return [self._resume(edge)] if receiver.should_ask() else []
                return self._advance() if arrival is FrameArrival.NEW else []
            case AckSent(edge=edge, frame=number, loads=loads):
                self.senders[edge].note_ack(message)
                if self._placing is not None:
                    self._placing.acked(edge, number)
                    return []
                self.senders[edge].ack(number)
                out = self._protect(AckArrived(edge, number, loads))
                return out + self._relieve() + self._advance()
            case RequestSent(stamp, edge, serial, number, ids, extendable):
                request = RequestArrived(edge, stamp.epoch, serial, number, ids, extendable)
                return self._protect(request)
            case ExtensionSent(_, edge, epoch, serial, after, whole):
                extension = ExtensionArrived(edge, epoch, serial, after, whole)
                return self._protect(extension)
            case ResumeSent(edge=edge):
                asking = self.senders[edge].asked(message)
                if asking is None:
                    return []
                if self._placing is not None:
                    self._placing.resumed(edge, asking.after, asking.acked)
                    return self._place()
                return self._replay(asking)
            case OfferSent(edge=edge):
                if message.answer:
                    return self._take_offer(message)
                self.receivers[edge].contact()
                return [self._resume(edge)]
            case _:
                assert_never(message)

    def _refused(self, message: RefusalSent) -> list[UnitInstruction]:
        if message.epoch <= self.stamp.epoch:
            return []
        self.stepped_down = True
        return [StepDown(message.epoch)]

    def _replay(self, asking: ResumeSent) -> list[UnitInstruction]:
        edge = asking.edge
        out = [self._down(edge, message) for message in self.senders[edge].replay(asking)]
        out += self._protect(AckArrived(edge, asking.acked, {}))
        out += self._protect(EdgeResumed(edge))
        return out + self._relieve() + self._advance()

    # ---- finding a place after a loss -------------------------------------------------

    def _take_offer(self, offer: OfferSent) -> list[UnitInstruction]:
        if not self.protection.lossy:
            return []
        missed = self.receivers[offer.edge].offered(offer)
        if self._placing is not None:
            self._placing.offered(offer.edge, offer.first)
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
        self.processed = self._begun = frame
        self._inputs.forward(frame)
        lost = [
            (number, OutputFrame(port, Kind.LOST, LOST_CHECKSUM, 0))
            for port in self.wiring.ports
            for number in range(min(placement.acked.values(), default=frame) + 1, frame + 1)
        ]
        self.queue.start_at(frame, placement.acked.items(), lost)
        out: list[UnitInstruction] = []
        if frame > behind or lost:
            out.append(SkipFrames(behind, frame))
        out += self._protect(FramesSkipped(frame))
        for edge, received in placement.received.items():
            out += [self._down(edge, message) for message in self.senders[edge].place(received)]
        out += [self._resume(edge) for edge in self.receivers]
        return out + self._advance()

    # ---- frames ---------------------------------------------------------------------

    def _seal(self, event: FrameProcessed) -> list[UnitInstruction]:
        invariant(
            event.frame == self.processed + 1 and event.frame in self._input_bytes,
            f"frame {event.frame} after {self.processed}, begun up to {self._begun}",
        )
        self.processed = event.frame
        self.queue.append(event.frame, event.outputs)
        out: list[UnitInstruction] = []
        for edge, sender in self.senders.items():
            out += [self._down(edge, message) for message in sender.flush()]
        sizes = self._input_bytes.pop(event.frame)
        out += self._protect(FrameProcessed(event.frame, event.outputs, event.state_bytes, sizes))
        return out + self._relieve() + self._advance()

    def _relieve(self) -> list[UnitInstruction]:
        """At half the bound ask for a checkpoint at once, before the queue is full."""
        if self.protection.asking or not self.queue.is_half_full:
            return []
        return self._protect(CheckpointWanted())

    def _advance(self) -> list[UnitInstruction]:
        """Begin every frame that is whole, not too far ahead, and has room for its outputs."""
        out: list[UnitInstruction] = []
        while self._placing is None:
            under_way = self._begun - self.processed
            number = self._begun + 1
            if under_way >= self._ahead or not self._inputs.ready(number) or not self.queue.has_room(under_way):
                break
            self._begun = number
            inputs = self._inputs.take(number)
            self._input_bytes[number] = tuple(0 if frame is None else frame.size for frame in inputs)
            out.append(ProcessFrame(number, inputs))
        return out

    def _protect(self, event: CheckpointEvent) -> list[UnitInstruction]:
        """What the protection says to an event, over the wire where it is said to a neighbour."""
        self._driver.handle(event)
        return self._wire.taken()

    def _resume(self, edge: EdgeId) -> UnitInstruction:
        receiver = self.receivers[edge]
        acked = max(self.protection.stored - receiver.edge.delay, 0)
        message = receiver.ask(acked, lossy=self.protection.lossy, has_place=self.placed)
        return Send(receiver.edge.producer, message)

    def _down(self, edge: EdgeId, message: OfferSent | FrameSent) -> UnitInstruction:
        return Send(edge.consumer.name, message)
