"""More protocols with one rule broken each: edges, recovery, backups, pins, mixtures."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from holdfast.protocols.activation import Activation, CopyFetched
from holdfast.protocols.checkpoint import PartialCheckpoint
from holdfast.protocols.dialogue import (
    CheckpointStored,
    EdgeResumed,
    MessageArrived,
    SendAck,
    UnpinFrame,
)
from holdfast.protocols.ecoc import Ecoc
from holdfast.protocols.edges import FrameArrival, Receiver, Sender
from holdfast.protocols.extended import Extended
from holdfast.protocols.fencing import Fence
from holdfast.protocols.messages import ClaimSent, RefusalSent, Stage, Verdict
from holdfast.protocols.none import NoProtection
from holdfast.protocols.placing import Placing
from holdfast.protocols.queue import FrameQueue
from holdfast.protocols.shipping import Shipping
from holdfast.protocols.storing import BackupStore, DeleteFiles, RegisterSynced, Reply, SyncManifest
from holdfast.protocols.synchronised import Synchronised
from holdfast.protocols.uncoordinated import Uncoordinated
from holdfast.protocols.unit import Unit
from holdfast.simulation.instances import Instance
from holdfast.simulation.schedule import Parts
from tests.simulation.mutants import Mutant

__all__ = ["MORE_MUTANTS"]


# ---- edges -----------------------------------------------------------------------------


class ReplaysOneLate(Sender):
    def replay(self, message):
        if message.after is not None:
            message = replace(message, after=min(message.after + 1, self.queue.sealed))
        return super().replay(message)


class LateResumesCount(Sender):
    """A resume that comes again moves the producer back."""

    def asked(self, message):
        self._asked = self._acked = (0, 0)
        return super().asked(message)


class OvertakingAcksAreForgotten(Sender):
    def note_ack(self, message):
        pass


class AcksWhatIsAsked(Sender):
    """A consumer that holds a frame is taken to need it never again."""

    def replay(self, message):
        out = super().replay(message)
        if message.after is not None:
            self.ack(message.after)
        return out


class OffersWhatIsGone(Sender):
    """Tells a consumer that may lose frames to wait for the first one, whatever is kept."""

    def _answer(self, first):
        return super()._answer(min(first, 1))


class GoesBack(Receiver):
    """A duplicate counts as the last frame received."""

    def accept(self, message):
        arrival = super().accept(message)
        if arrival is FrameArrival.DUPLICATE:
            self.received = message.frame
        return arrival


class DropsWhatOvertook(Receiver):
    def accept(self, message):
        arrival = super().accept(message)
        self._ahead.clear()
        return arrival


class KeepsWhatOvertook(Receiver):
    """What overtook others outlives the instance that sent it."""

    def contact(self):
        ahead = dict(self._ahead)
        super().contact()
        self._ahead = ahead


class OffersDropWhatOvertook(Receiver):
    """An offer that its own frames overtook makes the receiver drop them."""

    def _skip(self, number):
        self._ahead.clear()
        super()._skip(number)


class AsksOnce(Receiver):
    """A gap that was asked for over a connection that broke is not asked for again."""

    def contact(self):
        gap = self._gap
        super().contact()
        self._gap = gap

    def ask(self, acked, *, lossy, has_place):
        self._contact = 0
        return super().ask(acked, lossy=lossy, has_place=has_place)


class ResumesAtProcessed(Receiver):
    """Asks one frame too late: the last frame it waits for counts as held."""

    def ask(self, acked, *, lossy, has_place):
        said = super().ask(acked, lossy=lossy, has_place=has_place)
        return said if said.after is None else replace(said, after=said.after + 1)


class TakesFeedbackAtOnce(Receiver):
    """Over a feedback edge the frame before is not waited for."""

    def has(self, processing):
        return self.edge.delay > 0 or super().has(processing)


class TrimsWhatIsUnderWay(FrameQueue):
    """What was sent counts as acknowledged while more than one frame is on its way."""

    def floor(self):
        sent = min(self.taken.values(), default=0)
        return max(super().floor(), min(sent, self.sealed) - 1)


class NeverFull(FrameQueue):
    def has_room(self, under_way):
        return True


class BeginsOutOfOrder(Unit):
    """Hands out what it may begin, newest first."""

    def _advance(self):
        return super()._advance()[::-1]


def with_sender(kind):
    return type(f"Unit{kind.__name__}", (Unit,), {"sender_type": kind})


def with_receiver(kind):
    return type(f"Unit{kind.__name__}", (Unit,), {"receiver_type": kind})


def with_queue(kind):
    return type(f"Unit{kind.__name__}", (Unit,), {"queue_type": kind})


class TrimsWhatIsStored(Unit):
    """Its own checkpoint holds the queue; so it keeps the frames no longer."""

    def handle(self, event):
        out = super().handle(event)
        if isinstance(event, CheckpointStored):
            for sender in self.senders.values():
                sender.ack(self.protection.stored)
        return out


class ForgetfulFence(Fence):
    def admit(self, stamp):
        return True


class UnitWithForgetfulFence(Unit):
    fence_type = ForgetfulFence


class IgnoresRefusals(Unit):
    def handle(self, event):
        if isinstance(event, MessageArrived) and isinstance(event.message, RefusalSent):
            return []
        return super().handle(event)


class PlacesAtTheFirstAnswer(Placing):
    def decide(self):
        for output in self._wiring.outputs:
            self._answers.setdefault(output.edge, None)
        return super().decide()


class UnitPlacesAtTheFirstAnswer(Unit):
    placing_type = PlacesAtTheFirstAnswer


class SealsNothingAsLost(Placing):
    """Consumers are told to go on behind the gap, and wait for it."""

    def decide(self):
        place = super().decide()
        if place is None:
            return None
        return replace(place, acked=dict.fromkeys(place.acked, place.frame))


class UnitSealsNothingAsLost(Unit):
    placing_type = SealsNothingAsLost


# ---- coordination ------------------------------------------------------------------------


class AcksDropped(Ecoc):
    """A checkpoint given up for a newer one is acknowledged as if it were stored."""

    def _settle(self):
        frames = {p.serial: p.frame for p in self._pending}
        out = super()._settle()
        for order in list(out):
            if isinstance(order, UnpinFrame):
                out += [SendAck(e.edge, frames[order.serial], {}) for e in self._wiring.inputs]
        return out


class ClearsPending(Ecoc):
    """A consumer that comes back lets its producer start all over."""

    def handle(self, event):
        if isinstance(event, EdgeResumed):
            self._pending.clear()
        return super().handle(event)


class AnOlderOneWillDo(Ecoc):
    def _decide(self, request):
        return super()._decide(replace(request, frame=request.frame - 1))


class ForgetsEarlyRequests(Ecoc):
    def _decide(self, request):
        out = super()._decide(request)
        self._wanted.clear()
        return out


class AcksOneInput(Ecoc):
    def _permanent(self, serial, size):
        out = super()._permanent(serial, size)
        acks = [o for o in out if isinstance(o, SendAck)]
        return [o for o in out if o not in acks[1:]]


class AllAckLate(Ecoc):
    """Takes every consumer for one that acks late."""

    def _edge_covers(self, pending, edge):
        return super()._edge_covers(pending, replace(edge, lag=2))


class WaitsForLateAcks(Ecoc):
    def _edge_covers(self, pending, edge):
        return super()._edge_covers(pending, replace(edge, lag=0))


class AsksNobody(NoProtection):
    asking = True


class NeverTriggers(Ecoc):
    def __init__(self, wiring, every, epoch, restored, phase=0, triggers=None):
        super().__init__(wiring, every, epoch, restored, phase, None)


class NeverOnTime(Ecoc):
    """No unit starts a round by its interval; half-full queues alone ask."""

    def _is_time(self, frame):
        return False


class CountsNoInterval(PartialCheckpoint):
    """Checkpoints at frames that divide by twice the interval."""

    def __init__(self, wiring, every, epoch, restored):
        super().__init__(wiring, 2 * every, epoch, restored)


class KeepsSizes(Extended):
    """Forgets the size of no frame it has read."""

    def _measure(self, size):
        kept = {edge: dict(sizes) for edge, sizes in self._sizes.items()}
        super()._measure(size)
        self._sizes.update(kept)


class KeepsRequests(Ecoc):
    """A request that was served is kept with the others."""

    def _processed_frame(self, event):
        wanted = list(self._wanted)
        out = super()._processed_frame(event)
        self._wanted += [request for request in wanted if request not in self._wanted]
        return out


class LeavesOutFeedback(Extended):
    def _queues(self, pending):
        late = {e.edge for e in self._wiring.outputs if e.delay}
        return tuple(item for item in super()._queues(pending) if item[0] not in late)


class AddsUpLoads(Extended):
    """Loads are added along edges: diamonds count twice, cycles feed themselves."""

    @property
    def loads(self):
        united = super().loads
        below = sum(sum(loads.values()) for loads in self._downstream.values())
        return {**united, self._wiring.unit: united[self._wiring.unit] + below}


class ForgetsWhatIsUnacknowledged(Extended):
    """After a restart all that the checkpoint holds counts as acknowledged."""

    def __init__(self, wiring, every, epoch, restored, phase=0, triggers=None):
        known = replace(restored, acked=())
        super().__init__(wiring, every, epoch, known, phase, triggers)


class UncoordinatedForgetsQueues(Uncoordinated):
    def __init__(self, wiring, every, epoch, restored):
        super().__init__(wiring, every, epoch, replace(restored, acked=()))


class ExtendedForgetsDelay(Extended):
    def _ack(self, edge):
        return replace(super()._ack(edge), frame=self._stored)


class NeverDrawsAgain(Uncoordinated):
    def _take(self, frame):
        return super()._take(frame)[:2]


# ---- recovery ------------------------------------------------------------------------------


class SameEpochAgain(Activation):
    def start(self):
        out = super().start()
        self._epoch -= 1
        return [replace(o, claim=replace(o.claim, epoch=self._epoch)) for o in out]


class StartsDamaged(Activation):
    """Does not look at the hashes of what it fetched."""

    def handle(self, event):
        if isinstance(event, CopyFetched):
            event = replace(event, good=True)
        return super().handle(event)


class HandsOnAllPins(Activation):
    def _begin(self, near, manifest, store):
        out = super()._begin(near, manifest, store)
        return [replace(out[0], pinned=near.pins)] if near is not None else out


class TakesUpAllPins(Ecoc):
    def __init__(self, wiring, every, epoch, restored, phase=0, triggers=None):
        stored, all_pins = restored.stored, replace(restored, stored=0)
        super().__init__(wiring, every, epoch, all_pins, phase, triggers)
        self._stored = stored


class SerialsBeginAnew(Ecoc):
    def __init__(self, wiring, every, epoch, restored, phase=0, triggers=None):
        super().__init__(wiring, every, epoch, restored, phase, triggers)
        self._serial = 0


class LeavesPins(Synchronised):
    def start(self):
        return [o for o in super().start() if not isinstance(o, UnpinFrame)]


# ---- backup ----------------------------------------------------------------------------------


class VerifiesNothing(BackupStore):
    def _verified(self, unit, good):
        return super()._verified(unit, frozenset(self._work[unit][0].manifest.files))


class ClaimsBesideTheLock(BackupStore):
    """A claim is granted while a checkpoint is being written, which then goes on."""

    def handle(self, event):
        request = getattr(event, "request", None)
        if isinstance(request, ClaimSent) and self._work.get(request.unit):
            work, self._work[request.unit] = self._work[request.unit], deque()
            orders = super().handle(event)
            replies = super().handle(RegisterSynced(request.unit)) if self._work[request.unit] else []
            self._work[request.unit] = work
            return [o for o in [*orders, *replies] if isinstance(o, Reply)]
        return super().handle(event)


class DeletesWhatIsPrepared(BackupStore):
    def _finished(self, unit):
        out = super()._finished(unit)
        held = self.manifests.get(unit)
        keep = frozenset(() if held is None else held.files)
        return [DeleteFiles(unit, keep) if isinstance(o, DeleteFiles) else o for o in out]


class KeepsPreparedInForce(BackupStore):
    """Phase one replaces the former checkpoint at once."""

    def _verified(self, unit, good):
        return [
            SyncManifest(o.manifest, prepared=False) if isinstance(o, SyncManifest) else o
            for o in super()._verified(unit, good)
        ]


class NeverSendsAgain(Shipping):
    def answered(self, answer):
        return [] if answer.verdict is Verdict.MISSING else super().answered(answer)


class ForgetsStoresThatComeBack(Shipping):
    def store_found(self, store):
        return []


class PhaseOneWillDo(Shipping):
    """Answers to phase one count for phase two."""

    def ship(self, manifest, stage):
        return [] if stage is Stage.COMMIT else super().ship(manifest, stage)


class StaleBase(Instance):
    """The delta is taken against a newer base than the one named beside it."""

    def _pack(self, serial, frame, queues):
        before = self._base
        manifest = super()._pack(serial, frame, queues)
        if before is not None and before != self._base:
            files = (before[1], *manifest.files[1:])
            manifest = self._manifests[serial] = replace(manifest, files=files)
        return manifest


def _ecoc(rule, machine, graph="sp1", **parts):
    return Mutant(rule, "ecoc", graph, Parts(protections={"ecoc": machine}, **parts))


def _extended(rule, machine, graph):
    return Mutant(rule, "extended", graph, Parts(protections={"extended": machine}))


def _uncoordinated(rule, machine, graph="sp1"):
    return Mutant(rule, "uncoordinated", graph, Parts(protections={"uncoordinated": machine}))


MORE_MUTANTS = [
    Mutant("replay one frame late", "uncoordinated", "sp1", Parts(unit=with_sender(ReplaysOneLate))),
    Mutant("a late resume counts", "uncoordinated", "sp1", Parts(unit=with_sender(LateResumesCount))),
    Mutant("a duplicate moves the consumer back", "uncoordinated", "sp1", Parts(unit=with_receiver(GoesBack))),
    Mutant("what overtook is dropped", "extended", "sp1", Parts(unit=with_receiver(DropsWhatOvertook))),
    Mutant("a queue without bound", "uncoordinated", "sp1", Parts(unit=with_queue(NeverFull))),
    Mutant(
        "acks that overtake are forgotten",
        "uncoordinated",
        "random",
        Parts(unit=with_sender(OvertakingAcksAreForgotten)),
    ),
    Mutant("an asking is taken for an ack", "ecoc", "sp1", Parts(unit=with_sender(AcksWhatIsAsked))),
    Mutant("frames that are gone are offered", "checkpoint", "sp1", Parts(unit=with_sender(OffersWhatIsGone))),
    Mutant("what overtook outlives its sender", "none", "random", Parts(unit=with_receiver(KeepsWhatOvertook))),
    Mutant("an offer drops what overtook it", "none", "sp3", Parts(unit=with_receiver(OffersDropWhatOvertook))),
    Mutant("askings have no number", "uncoordinated", "sp1", Parts(unit=with_receiver(AsksOnce))),
    Mutant("resume one frame late", "uncoordinated", "sp1", Parts(unit=with_receiver(ResumesAtProcessed))),
    Mutant("feedback is not waited for", "uncoordinated", "sp3", Parts(unit=with_receiver(TakesFeedbackAtOnce))),
    Mutant("what is under way counts as acknowledged", "ecoc", "sp1", Parts(unit=with_queue(TrimsWhatIsUnderWay))),
    Mutant("frames under way end out of order", "ecoc", "sp1", Parts(unit=BeginsOutOfOrder)),
    Mutant("trim of what the checkpoint holds", "uncoordinated", "sp1", Parts(unit=TrimsWhatIsStored)),
    Mutant("a fence that forgets", "ecoc", "sp1", Parts(unit=UnitWithForgetfulFence)),
    Mutant("refusals are ignored", "ecoc", "sp1", Parts(unit=IgnoresRefusals)),
    Mutant("a place at the first answer", "none", "random", Parts(unit=UnitPlacesAtTheFirstAnswer)),
    Mutant("missed numbers are not sealed", "mixed_lossy", "sp1", Parts(unit=UnitSealsNothingAsLost)),
    _ecoc("ack of a dropped checkpoint", AcksDropped),
    _ecoc("pending cleared at recovery", ClearsPending),
    _ecoc("a request served by an older one", AnOlderOneWillDo),
    _ecoc("a request for a frame to come is forgotten", ForgetsEarlyRequests),
    _ecoc("one input is acknowledged", AcksOneInput, "sp2"),
    _ecoc("all consumers count as late", AllAckLate),
    Mutant("late acks are waited for", "mixed_lossy", "sp1", Parts(protections={"ecoc": WaitsForLateAcks})),
    Mutant(
        "lossy units ask nobody, and nobody triggers",
        "mixed_lossy",
        "sp1",
        Parts(protections={"none": AsksNobody, "ecoc": NeverTriggers}),
    ),
    _ecoc("rounds never start by the interval", NeverOnTime),
    Mutant("twice the declared interval", "checkpoint", "sp1", Parts(protections={"checkpoint": CountsNoInterval})),
    _extended("sizes of frames are kept for ever", KeepsSizes, "sp2"),
    _ecoc("served requests are kept for ever", KeepsRequests, "sp2"),
    _extended("extension without feedback", LeavesOutFeedback, "sp3"),
    _extended("loads are added up", AddsUpLoads, "diamond"),
    _extended("a restart forgets what is unacknowledged", ForgetsWhatIsUnacknowledged, "sp2"),
    _uncoordinated("a restart forgets its queue", UncoordinatedForgetsQueues),
    _extended("ack forgets the delay of feedback (extended)", ExtendedForgetsDelay, "sp3"),
    _uncoordinated("one interval only", NeverDrawsAgain),
    Mutant("the epoch is not raised", "ecoc", "sp1", Parts(activation=SameEpochAgain)),
    Mutant("a damaged copy will do", "uncoordinated", "sp1", Parts(activation=StartsDamaged)),
    _ecoc("all pins are taken up", TakesUpAllPins, activation=HandsOnAllPins),
    _ecoc("serials begin anew", SerialsBeginAnew),
    Mutant("left pins stay", "two_phase", "sp1", Parts(protections={"two_phase": LeavesPins})),
    Mutant("nothing is verified", "uncoordinated", "sp1", Parts(store=VerifiesNothing)),
    Mutant("claims beside the lock", "uncoordinated", "sp1", Parts(store=ClaimsBesideTheLock)),
    Mutant("prepared files are deleted", "two_phase", "sp1", Parts(store=DeletesWhatIsPrepared)),
    Mutant("phase one is in force", "two_phase", "sp1", Parts(store=KeepsPreparedInForce)),
    Mutant("missing files are not sent again", "two_phase", "sp1", Parts(shipping=NeverSendsAgain)),
    Mutant("stores that come back are forgotten", "uncoordinated", "sp1", Parts(shipping=ForgetsStoresThatComeBack)),
    Mutant("phase one is enough", "two_phase", "sp1", Parts(shipping=PhaseOneWillDo)),
    Mutant("a stale base", "uncoordinated", "sp1", Parts(instance=StaleBase)),
]
