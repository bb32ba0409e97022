"""The two ends of an edge with a wire between: `Sender` at the producer, `Receiver` at the consumer.

Promise: whatever the wire does (loss with a connection, duplicates, messages that
overtake each other, senders that have been replaced), the consumer gets each frame of
the edge once and in order, and the producer keeps every frame that is not acknowledged.

Why it holds. Frames are numbered. A duplicate is a number the receiver has; a gap is a
number above the next one, answered by asking the sender to resume behind the last frame
held. The sender keeps what is not acknowledged (`queue.FrameQueue`), sends nothing until
the consumer has said where it stands, and then everything behind that point. Each asking
has a number of its own, so one that comes again moves nobody back; and an ack that
overtook an asking of the same instance is newer than it. Every message passes the fence
of its end before anything else looks at it: what an instance says that has been replaced
has no effect and is answered by a refusal.

A frame that overtook others waits for them: were it dropped, it would not be asked for
again before the next one comes, and behind the last one none does. It waits only as long
as the same instance sends: the next one may have sealed that number with other content.
For the same reasons an offer drops no frame of its own instance that overtook it.

Several frames may be under way: on the wire, held and not yet handed over, or handed
over and not yet processed. An edge inside one host needs no wire and has neither end:
its readers take frames by number from the same `FrameQueue` (`engine.flow.queues`), and
the number they want is `wanted` in both cases.

Pure: no clock, randomness, thread, file, socket or Spark.
Driven by `protocols.unit` (both ends) and by `engine.flow.scheduler` (`wanted`).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from holdfast.protocols.dialogue import InputFrame, OutputFrame
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
from holdfast.protocols.queue import FrameQueue
from holdfast.protocols.wiring import EdgeId, Frame, InputEdge, OutputEdge

__all__ = ["FrameArrival", "Receiver", "Sender", "wanted"]


def wanted(number: Frame, delay: int, first: Frame = 1) -> Frame | None:
    """Which frame of an edge belongs to frame `number` of its consumer; None before the edge's first."""
    return number - delay if number - delay >= first else None


class _End:
    """What both ends do: refuse what was replaced."""

    def __init__(self, stamp: Stamp, fence: Fence) -> None:
        self._stamp = stamp
        self._fence = fence  # one for all ends of a unit: who is replaced on one edge is so on all

    def refuses(
        self, message: FrameSent | RequestSent | OfferSent | AckSent | ExtensionSent | ResumeSent
    ) -> RefusalSent | None:
        """The answer to a lower epoch than one heard before; None: the message may have an effect."""
        sender = message.stamp
        if self._fence.admit(sender):
            return None
        return RefusalSent(self._stamp, sender, self._fence.highest(sender.unit, sender.slot))


class Sender(_End):
    """The producer's end of one edge, over the queue of its stream."""

    def __init__(self, edge: OutputEdge, queue: FrameQueue[EdgeId, OutputFrame], stamp: Stamp, fence: Fence) -> None:
        super().__init__(stamp, fence)
        self.edge = edge
        self.queue = queue
        self._is_in_contact = False
        self._asked = (0, 0)  # (epoch, contact) of the newest asking
        self._acked: tuple[int, Frame] = (0, 0)  # (epoch, frame) of the newest ack

    def offer(self) -> OfferSent:
        """On contact. Nothing flows until the consumer says where it stands: what was in flight is lost."""
        self._is_in_contact = False
        return OfferSent(self._stamp, self.edge.edge, self.queue.trimmed + 1, answer=False)

    def note_ack(self, message: AckSent) -> None:
        """Whether or not the queue may be trimmed yet: an asking that comes later may be older than this."""
        self._acked = max(self._acked, (message.stamp.epoch, message.frame))

    def ack(self, number: Frame) -> None:
        self.queue.ack(self.edge.edge, number)
        self.queue.trim()

    def asked(self, message: ResumeSent) -> ResumeSent | None:
        """The asking as it counts now; None if a later one of that consumer came before."""
        contact = (message.stamp.epoch, message.contact)
        if contact <= self._asked:
            return None
        self._asked = contact
        epoch, overtook = self._acked
        if message.after is not None and epoch == message.stamp.epoch:
            # A later ack of the same instance came first: it holds more by now.
            return replace(message, after=max(message.after, overtook))
        return message

    def replay(self, message: ResumeSent) -> list[OfferSent | FrameSent]:
        """Everything behind the point that the consumer names."""
        self.ack(message.acked)
        out: list[OfferSent | FrameSent] = []
        after = message.after
        if after is None or message.lossy:
            # A consumer with a partial protection takes what is left.
            after = max(after or 0, self.queue.trimmed)
            out.append(self._answer(after + 1))
        return out + self._serve(after)

    def place(self, received: Frame) -> list[OfferSent | FrameSent]:
        """The producer lost its place and found another: the consumer, which holds `received`, is told and served."""
        after = min(received, self.queue.sealed)
        return [self._answer(after + 1), *self._serve(after)]

    def flush(self) -> list[FrameSent]:
        """Every sealed frame that was not sent yet."""
        edge, queue = self.edge.edge, self.queue
        if not self._is_in_contact or queue.taken[edge] >= queue.sealed:
            return []
        # A consumer that skipped frames may have acknowledged what was never sent.
        first = max(queue.taken[edge], queue.trimmed) + 1
        queue.taken[edge] = queue.sealed
        return [
            FrameSent(self._stamp, edge, number, frame.kind, frame.checksum, frame.size)
            for number, frame in ((number, queue.frames[number]) for number in range(first, queue.sealed + 1))
        ]

    def _serve(self, after: Frame) -> list[FrameSent]:
        gone = self.queue.resume(self.edge.edge, after)
        invariant(after >= gone, f"{self.edge.edge!s} needs frame {after + 1} again, trimmed up to {gone}")
        self._is_in_contact = True
        return self.flush()

    def _answer(self, first: Frame) -> OfferSent:
        return OfferSent(self._stamp, self.edge.edge, first, answer=True)


class FrameArrival(Enum):
    NEW = "new"
    DUPLICATE = "duplicate"
    GAP = "gap"


class Receiver(_End):
    """The consumer's end of one edge: frames received and not yet handed over."""

    def __init__(self, edge: InputEdge, processed: Frame, stamp: Stamp, fence: Fence) -> None:
        super().__init__(stamp, fence)
        self.edge = edge
        # Before its first frame a feedback edge delivers nothing.
        self.received: Frame = max(processed - edge.delay, 0)
        self._held: dict[Frame, InputFrame] = {}
        self._ahead: dict[Frame, InputFrame] = {}
        self._sender = 0  # epoch of the instance that sends
        self._contact = 0  # askings so far
        self._gap: Frame | None = None  # the gap behind this number has been asked for

    def accept(self, message: FrameSent) -> FrameArrival:
        self._hear(message.stamp)
        number, frame = message.frame, InputFrame(message.kind, message.checksum, message.size)
        if number <= self.received:
            held = self._held.get(number)
            invariant(
                held is None or (held.checksum == frame.checksum and held.kind is frame.kind),
                f"frame {number} of {self.edge.edge!s} came again with other content",
            )
            return FrameArrival.DUPLICATE
        if number > self.received + 1:
            self._ahead[number] = frame
            return FrameArrival.GAP
        self._held[number] = frame
        self.received = number
        self._catch_up()
        return FrameArrival.NEW

    def _hear(self, sender: Stamp) -> None:
        if self._sender != sender.epoch:
            self._sender = sender.epoch
            self.contact()

    def _catch_up(self) -> None:
        """Frames that overtook others have waited for the number before theirs."""
        while (number := self.received + 1) in self._ahead:
            self._held[number] = self._ahead.pop(number)
            self.received = number

    def should_ask(self) -> bool:
        """Once per gap: the frames behind the first one of it bring no news."""
        if self._gap == self.received:
            return False
        self._gap = self.received
        return True

    def ask(self, acked: Frame, *, lossy: bool, has_place: bool) -> ResumeSent:
        """Send what I do not hold. Who has no place sets no condition, and keeps no frame of an earlier producer."""
        self._contact += 1
        if not has_place:
            self._forget()
        after = self.received if has_place else None
        return ResumeSent(self._stamp, self.edge.edge, self._contact, after, acked, lossy)

    def contact(self) -> None:
        """A new connection: an asking sent over the old one may be lost."""
        self._gap = None
        self._ahead.clear()

    def offered(self, message: OfferSent) -> bool:
        """Take what is missing before the first frame that is left as lost; only partial protections may.

        Says whether anything was missing. The frames of an offer may overtake it: they are not sent again.
        """
        self._hear(message.stamp)
        missed = message.first - 1 > self.received
        self._skip(message.first - 1)
        return missed

    def _skip(self, number: Frame) -> None:
        self.received = max(self.received, number)
        self._ahead = {ahead: frame for ahead, frame in self._ahead.items() if ahead > self.received}
        self._catch_up()

    def _forget(self) -> None:
        """Drop what was received and not processed: the producer may number otherwise."""
        self._ahead.clear()
        if self._held:
            self.received = min(self._held) - 1
            self._held.clear()

    def forward(self, processed: Frame) -> None:
        """Go on after `processed`; frames before it are of no use any more."""
        done = processed - self.edge.delay
        self._skip(max(done, 0))
        self._held = {number: frame for number, frame in self._held.items() if number > done}

    def has(self, processing: Frame) -> bool:
        """Whether the edge has reached what frame `processing` of its consumer needs."""
        number = wanted(processing, self.edge.delay)
        return number is None or self.received >= number

    def take(self, processing: Frame) -> InputFrame | None:
        """Hand over the input of a frame; None where the edge had not begun or skipped."""
        number = wanted(processing, self.edge.delay)
        return None if number is None else self._held.pop(number, None)
