"""Protocols with one rule broken each, to prove that the simulator can see.

Every mutant changes one real class in the place where the rule lives; the simulator
is not told. `test_mutants` demands that each is found within 1,000 seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.protocols.activation import Activation
from holdfast.protocols.dialogue import SendExtension, StoreCheckpoint
from holdfast.protocols.ecoc import Ecoc
from holdfast.protocols.extended import Extended
from holdfast.protocols.fencing import EpochRegister, Fence
from holdfast.protocols.intake import Arrival, Intake
from holdfast.protocols.messages import (
    AckSent,
    ClaimSent,
    ExtensionSent,
    FrameSent,
    OfferSent,
    RequestSent,
    ResumeSent,
)
from holdfast.protocols.placing import Placing
from holdfast.protocols.queue import OutputQueue
from holdfast.protocols.shipping import Shipping
from holdfast.protocols.storing import (
    BackupStore,
    DeleteFiles,
    SyncManifest,
    SyncRegister,
    VerifyFiles,
    WriteFiles,
)
from holdfast.protocols.synchronised import Synchronised
from holdfast.protocols.uncoordinated import Uncoordinated
from holdfast.protocols.unit import Unit
from holdfast.simulation.schedule import Parts

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """Where a broken rule is played, and the classes that break it."""

    rule: str
    protocol: str
    graph: str
    parts: Parts


# ---- acks ------------------------------------------------------------------------------


class AckBeforeStored(Ecoc):
    def _settle(self):
        out = super()._settle()
        for order in list(out):
            if isinstance(order, StoreCheckpoint):
                stored, self._stored = self._stored, order.frame
                out += [self._ack(e.edge) for e in self._wiring.inputs]
                self._stored = stored
        return out


class UncoordinatedAckBeforeStored(Uncoordinated):
    def _take(self, frame):
        out = super()._take(frame)
        if out:
            stored, self._stored = self._stored, frame
            out += [self._ack(e.edge) for e in self._wiring.inputs]
            self._stored = stored
        return out


class AcksProcessed(Uncoordinated):
    """On a feedback edge the delay is forgotten: acks one frame too far."""

    def _ack(self, edge):
        ack = super()._ack(edge)
        return type(ack)(edge, self._stored, ack.loads)


# ---- queues ----------------------------------------------------------------------------


class TrimsAtFirstAck(OutputQueue):
    def _trim(self, port):
        acked = self.acked
        most = max(acked[e] for e in self._edges[port])
        self.acked = {**acked, **dict.fromkeys(self._edges[port], most)}
        super()._trim(port)
        self.acked = acked


class TrimsWhenSent(Unit):
    def _flush(self, edge):
        out = super()._flush(edge)
        if out and edge.startswith("join"):
            self.queue.ack(edge, self.queue.sealed)
        return out


class UnitTrimsAtFirstAck(Unit):
    queue_type = TrimsAtFirstAck


class NeverAsks(OutputQueue):
    is_half_full = False


class UnitNeverAsks(Unit):
    queue_type = NeverAsks


class NoReplay(Unit):
    """Goes on where it stopped sending, whatever the consumer says."""

    def _replay(self, edge, after, acked, lossy=False):
        sent = self._sent[edge]
        return super()._replay(edge, max(after, sent or after), acked, lossy)


class SkipsGaps(Intake):
    def accept(self, edge, number, frame):
        arrival = super().accept(edge, number, frame)
        if arrival is Arrival.GAP:
            self._held[edge][number] = frame
            self.received[edge] = number
            return Arrival.NEW
        return arrival


class UnitSkipsGaps(Unit):
    intake_type = SkipsGaps


# ---- ecoc ------------------------------------------------------------------------------


class ForgetsAConsumer(Ecoc):
    def _edge_covers(self, pending, edge):
        return edge == self._wiring.outputs[-1] or super()._edge_covers(pending, edge)


class ForgetsTheSink(Ecoc):
    """The thesis ignores outputs to the outside world."""

    def _edge_covers(self, pending, edge):
        return edge.outside or super()._edge_covers(pending, edge)


class NeverRequestsAgain(Ecoc):
    def _request_again(self, edge):
        return []


class StoresTooEarly(Ecoc):
    """One ack is taken for all: permanent when any consumer covers it."""

    def _edge_covers(self, pending, edge):
        return any(acked >= pending.frame for acked in self._acked.values())


class ThesisCycleRule(Extended):
    """Extends with the frames behind the receiver's pending checkpoint, without waiting."""

    def _decide(self, request):
        return [
            SendExtension(o.edge, o.epoch, o.serial, self._pending[0].frame, True)
            if isinstance(o, SendExtension) and o.whole
            else o
            for o in super()._decide(request)
        ]

    def _extend(self, event):
        if event.whole:
            self._after = {**getattr(self, "_after", {}), (event.serial, event.edge): event.after}
        return super()._extend(event)

    def _queues(self, pending):
        after = getattr(self, "_after", {})
        queues = []
        for edge, acked in super()._queues(pending):
            low = max(acked, min(after.get((pending.serial, edge), 0), pending.frame))
            queues.append((edge, low))
        return tuple(queues)


class ThesisMergeRule(Extended):
    """Keeps the first request's id only: merged rounds wait for each other."""

    def _merge(self, pending, request, asker):
        return []


class ThesisWaitsOnCycles(Extended):
    """Obeys a request that came round as any other."""

    def _came_round(self, request, asker):
        return False


class ExtendsWithNothing(Extended):
    def _queues(self, pending):
        return ()


class ExtendsTooLittle(Extended):
    def _queues(self, pending):
        return tuple((edge, min(after + 1, pending.frame)) for edge, after in super()._queues(pending))


class NoQueueInside(Uncoordinated):
    def _take(self, frame):
        return [
            StoreCheckpoint(o.serial, o.frame, ()) if isinstance(o, StoreCheckpoint) else o
            for o in super()._take(frame)
        ]


# ---- fencing ---------------------------------------------------------------------------


def unfenced(*kinds):
    class Unfenced(Unit):
        def _receive(self, message):
            if isinstance(message, kinds):
                fence, self.fence = self.fence, Fence()
                try:
                    return super()._receive(message)
                finally:
                    self.fence = fence
                    fence.admit(message.stamp)
            return super()._receive(message)

    return Unfenced


class UnfencedStore(BackupStore):
    def _begin(self, unit):
        work = self._work[unit]
        if work and not isinstance(work[0], ClaimSent):
            current, self._register(unit).current = self._register(unit).current, 0
            out = super()._begin(unit)
            self._register(unit).current = max(current, self._register(unit).current)
            return out
        return super()._begin(unit)


class GrantsTwice(EpochRegister):
    def grants(self, epoch):
        if epoch < self.current:
            return False
        self.current = epoch
        return True


class StoreGrantsTwice(BackupStore):
    register_type = GrantsTwice


class ClaimsWithOneGrant(Activation):
    def __init__(self, *args):
        super().__init__(*args)
        self._quorum = 1


class TrustsAnyNear(Activation):
    def _won(self):
        if self._near is not None:
            newest = next(iter(self._granted.values())).manifest
            return self._begin(self._near, newest, None)
        return super()._won()


class AcksWhatOneStoreHolds(Activation):
    def _confirmed(self):
        held = [g.manifest for g in self._granted.values() if g.manifest is not None]
        return max((m.frame for m in held), default=0)


class TakesAnOlderCopy(Activation):
    def _won(self):
        out = super()._won()
        held = [g.manifest for g in self._granted.values() if g.manifest is not None]
        if self._chosen is not None and held:
            self._chosen = min(held, key=lambda m: m.key)
            return self._fetch()
        return out


# ---- backup ----------------------------------------------------------------------------


class ManifestFirst(BackupStore):
    """Writes the manifest without waiting for its files to be synced."""

    def _begin(self, unit):
        out = []
        for order in super()._begin(unit):
            if isinstance(order, VerifyFiles):
                out.append(SyncManifest(self._work[unit][0].manifest, False))
            else:
                out.append(order)
        return out


class DeletesFirst(BackupStore):
    """Makes room before the new manifest is synced."""

    def _begin(self, unit):
        out = super()._begin(unit)
        if any(isinstance(order, WriteFiles) for order in out):
            keep = frozenset(self._work[unit][0].manifest.files)
            out.insert(0, DeleteFiles(unit, keep))
        return out


class ForgetsItsRegister(BackupStore):
    """Answers a claim before the register is on disk."""

    def __init__(self, *args):
        super().__init__(*args)
        for unit, register in self.registers.items():
            if unit not in self.manifests:
                register.current = 1

    def _begin(self, unit):
        out = []
        for order in super()._begin(unit):
            out += self._granted(unit) if isinstance(order, SyncRegister) else [order]
        return out


class JoinsAtOnce(BackupStore):
    """A store that lost its folder takes part as if it had never held anything."""

    def joined(self, unit):
        return True


class ForgetsLives(Shipping):
    """Counts an answer that a store gave before it lost its folder."""

    def answered(self, answer):
        return super().answered(replace(answer, lives=()))


class CountsOneCopy(Shipping):
    def __init__(self, stamp, stores, needed):
        super().__init__(stamp, stores, 1)


# ---- two phases, places, and what a restart says -------------------------------------------


class CommitsWithoutAcks(Synchronised):
    def _edge_covers(self, pending, edge):
        return True


class AcksWhenPrepared(Synchronised):
    def _prepared(self, serial):
        stored, self._stored = self._stored, self._pending[0].frame
        acks = [self._ack(e.edge) for e in self._wiring.inputs]
        self._stored = stored
        return super()._prepared(serial) + acks


class ResumesWithProcessed(Unit):
    """Says on contact that it needs nothing of what it has processed."""

    def _resume(self, edge):
        said = super()._resume(edge)
        acked = max(self.processed - self.wiring.delays[edge], 0)
        return replace(said, message=replace(said.message, acked=acked))


class IgnoresConsumers(Placing):
    """Takes a place by its inputs alone."""

    def decide(self):
        place = super().decide()
        if place is None:
            return None
        gone = [self._gone[e.edge] + e.delay for e in self._wiring.inputs if e.edge in self._gone]
        return replace(place, frame=max([self._restored, *gone]))


class UnitIgnoresConsumers(Unit):
    placing_type = IgnoresConsumers


class WaitsForNothing(Extended):
    """An extension by cost does not wait, and holds only what was asked for."""

    def _extend(self, event):
        if not event.whole:
            self._after = {**getattr(self, "_after", {}), (event.serial, event.edge): event.after}
        return super()._extend(replace(event, whole=True))

    def _queues(self, pending):
        after = getattr(self, "_after", {})
        return tuple(
            (edge, max(acked, min(after.get((pending.serial, edge), 0), pending.frame)))
            for edge, acked in super()._queues(pending)
        )


MUTANTS = [
    Mutant(
        "commit without acks",
        "two_phase",
        "sp1",
        Parts(protections={"two_phase": CommitsWithoutAcks}),
    ),
    Mutant(
        "ack when prepared",
        "two_phase",
        "sp1",
        Parts(protections={"two_phase": AcksWhenPrepared}),
    ),
    Mutant("ack of what was processed", "ecoc", "sp1", Parts(unit=ResumesWithProcessed)),
    Mutant("a place regardless of consumers", "none", "sp2", Parts(unit=UnitIgnoresConsumers)),
    Mutant(
        "extension at a join without waiting",
        "extended",
        "sp2",
        Parts(protections={"extended": WaitsForNothing}),
    ),
    Mutant("ack before stored", "ecoc", "sp2", Parts(protections={"ecoc": AckBeforeStored})),
    Mutant(
        "ack before stored (uncoordinated)",
        "uncoordinated",
        "sp1",
        Parts(protections={"uncoordinated": UncoordinatedAckBeforeStored}),
    ),
    Mutant(
        "ack forgets the delay of feedback",
        "uncoordinated",
        "sp3",
        Parts(protections={"uncoordinated": AcksProcessed}),
    ),
    Mutant("trim before all acks", "uncoordinated", "random", Parts(unit=UnitTrimsAtFirstAck)),
    Mutant("trim when sent", "ecoc", "sp2", Parts(unit=TrimsWhenSent)),
    Mutant(
        "bound below the interval, nobody asks",
        "ecoc",
        "sp1",
        Parts(unit=UnitNeverAsks, bytes_max=200),
    ),
    Mutant("no replay", "ecoc", "sp1", Parts(unit=NoReplay)),
    Mutant("gaps are skipped", "uncoordinated", "sp1", Parts(unit=UnitSkipsGaps)),
    Mutant("forgotten consumer", "ecoc", "random", Parts(protections={"ecoc": ForgetsAConsumer})),
    Mutant("forgotten sink", "ecoc", "sp1", Parts(protections={"ecoc": ForgetsTheSink})),
    Mutant("requests are not repeated", "ecoc", "sp1", Parts(protections={"ecoc": NeverRequestsAgain})),
    Mutant("one ack for all", "ecoc", "random", Parts(protections={"ecoc": StoresTooEarly})),
    Mutant(
        "the thesis' cycle rule",
        "extended",
        "sp4",
        Parts(protections={"extended": ThesisCycleRule}),
    ),
    Mutant(
        "the thesis' merge rule",
        "extended",
        "sp4",
        Parts(protections={"extended": ThesisMergeRule}),
    ),
    Mutant(
        "cycles are not found",
        "extended",
        "sp3",
        Parts(protections={"extended": ThesisWaitsOnCycles}),
    ),
    Mutant(
        "extension without frames",
        "extended",
        "sp2",
        Parts(protections={"extended": ExtendsWithNothing}),
    ),
    Mutant(
        "extension one frame short",
        "extended",
        "sp3",
        Parts(protections={"extended": ExtendsTooLittle}),
    ),
    Mutant(
        "no queue in the checkpoint",
        "uncoordinated",
        "sp1",
        Parts(protections={"uncoordinated": NoQueueInside}),
    ),
    Mutant("unfenced ack", "extended", "sp2", Parts(unit=unfenced(AckSent))),
    Mutant("unfenced frames", "uncoordinated", "sp1", Parts(unit=unfenced(FrameSent, OfferSent))),
    Mutant(
        "unfenced requests",
        "extended",
        "sp2",
        Parts(unit=unfenced(RequestSent, ExtensionSent, ResumeSent)),
    ),
    Mutant("unfenced store", "uncoordinated", "sp1", Parts(store=UnfencedStore)),
    Mutant("two issuers of an epoch", "ecoc", "sp1", Parts(store=StoreGrantsTwice)),
    Mutant("claim with one grant", "ecoc", "sp1", Parts(activation=ClaimsWithOneGrant)),
    Mutant("any near checkpoint will do", "ecoc", "sp1", Parts(activation=TrustsAnyNear)),
    Mutant("ack of a lone copy", "uncoordinated", "sp1", Parts(activation=AcksWhatOneStoreHolds)),
    Mutant("an older copy will do", "uncoordinated", "sp1", Parts(activation=TakesAnOlderCopy)),
    Mutant("manifest first", "uncoordinated", "sp1", Parts(store=ManifestFirst)),
    Mutant("delete first", "uncoordinated", "sp1", Parts(store=DeletesFirst)),
    Mutant("register not synced", "ecoc", "sp1", Parts(store=ForgetsItsRegister)),
    Mutant("empty store joins at once", "uncoordinated", "sp1", Parts(store=JoinsAtOnce)),
    Mutant("answers of a former life count", "uncoordinated", "sp1", Parts(shipping=ForgetsLives)),
    Mutant("one copy is enough", "uncoordinated", "sp1", Parts(shipping=CountsOneCopy)),
]
