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
from holdfast.protocols.extended import Extended
from holdfast.protocols.fencing import Fence
from holdfast.protocols.intake import Arrival, Intake
from holdfast.protocols.messages import ClaimSent, RefusalSent, ResumeSent, Stage, Verdict
from holdfast.protocols.none import NoProtection
from holdfast.protocols.placing import Placing
from holdfast.protocols.queue import OutputQueue
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


class ReplaysOneLate(Unit):
    def _replay(self, edge, after, acked, lossy=False):
        late = after if after is None else min(after + 1, self.queue.sealed)
        return super()._replay(edge, late, acked, lossy)


class LateResumesCount(Unit):
    """A resume that comes again moves the producer back."""

    def _receive(self, message):
        if isinstance(message, ResumeSent):
            self._contacts.pop(message.edge, None)
            self._acks.pop(message.edge, None)
        return super()._receive(message)


class GoesBack(Intake):
    """A duplicate counts as the last frame received."""

    def accept(self, edge, number, frame):
        arrival = super().accept(edge, number, frame)
        if arrival is Arrival.DUPLICATE:
            self.received[edge] = number
        return arrival


class UnitGoesBack(Unit):
    intake_type = GoesBack


class DropsWhatOvertook(Intake):
    def accept(self, edge, number, frame):
        arrival = super().accept(edge, number, frame)
        self._ahead[edge].clear()
        return arrival


class UnitDropsWhatOvertook(Unit):
    intake_type = DropsWhatOvertook


class NeverFull(OutputQueue):
    is_full = False


class UnitNeverFull(Unit):
    queue_type = NeverFull


class TrimsWhatIsStored(Unit):
    """Its own checkpoint holds the queue; so it keeps the frames no longer."""

    def handle(self, event):
        out = super().handle(event)
        if isinstance(event, CheckpointStored):
            for edge in self._outputs:
                self.queue.ack(edge, self.protection.stored)
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
    Mutant("replay one frame late", "uncoordinated", "sp1", Parts(unit=ReplaysOneLate)),
    Mutant("a late resume counts", "uncoordinated", "sp1", Parts(unit=LateResumesCount)),
    Mutant("a duplicate moves the consumer back", "uncoordinated", "sp1", Parts(unit=UnitGoesBack)),
    Mutant("what overtook is dropped", "uncoordinated", "sp1", Parts(unit=UnitDropsWhatOvertook)),
    Mutant("a queue without bound", "uncoordinated", "sp1", Parts(unit=UnitNeverFull)),
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
