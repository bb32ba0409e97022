"""One seed, from the first frame to the calm end.

Everything random about a schedule comes from its seed: the graph (if random), the
sizes, delays and phases, the number of backup copies, the faults. The calm end heals
everything, lets the data flow out, asks for a last checkpoint and then requires what
`checks.at_rest` says.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.protocols.activation import Activation, StartUnit
from holdfast.protocols.dialogue import CheckpointMachine, Restored, UnitMessage
from holdfast.protocols.invariants import BrokenInvariant, ProtocolRefused
from holdfast.protocols.messages import (
    ClaimSent,
    Manifest,
    RefusalSent,
    StoreAnswered,
    StoreSent,
)
from holdfast.protocols.outside import SinkLedger, SourceLog
from holdfast.protocols.queue import refuse_small_bound
from holdfast.protocols.shipping import Shipping
from holdfast.protocols.storing import BackupStore, Kept
from holdfast.protocols.unit import Unit
from holdfast.protocols.wiring import Wiring
from holdfast.simulation.checks import Checks
from holdfast.simulation.faults import Faults
from holdfast.simulation.graphs import FRAME_BYTES_MAX, first_state, graph_for, ideal_run, lagging
from holdfast.simulation.instances import Instance, restored_from
from holdfast.simulation.network import Address, Network
from holdfast.simulation.protections import INTERVAL_MAX, PROTECTIONS, Protections
from holdfast.simulation.stores import SimulatedStore
from holdfast.simulation.supervision import ActivationRun, Host, Supervision
from holdfast.simulation.world import ScheduleBroken, World

__all__ = ["Outcome", "Parts", "Schedule"]

# One round does where every request is obeyed. With extensions a round may end with
# frames that are in a stored checkpoint but not acknowledged.
_CALM_ROUNDS_MAX = 3

_STORE_MESSAGES_DOUBLED = 0.02


@dataclass(frozen=True, slots=True)
class Parts:
    """The protocol classes under test; mutants replace one of them."""

    unit: type[Unit] = Unit
    shipping: type[Shipping] = Shipping
    store: type[BackupStore] = BackupStore
    activation: type[Activation] = Activation
    instance: type[Instance] = Instance
    protections: dict[str, Any] = field(default_factory=dict)
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one schedule showed."""

    seed: int
    steps: int
    faults: int
    probes: frozenset[str]
    counts: Counter[str]
    broken: str | None = None
    story: tuple[str, ...] = ()


class Schedule:
    """The world of one seed. `play` runs it."""

    def __init__(self, protocol: str, graph: str, seed: int, parts: Parts | None = None) -> None:
        if protocol not in PROTECTIONS:
            raise ValueError(f"no protocol {protocol!r}; there are {', '.join(PROTECTIONS)}")
        self.parts = parts or Parts()
        self.seed = seed
        self.world = world = World(seed * 7919 + 17)
        rng = world.rng
        self.graph = graph_for(graph, rng)
        self.frames = rng.randint(16, 26)
        self.frame_time = 1.4 + 0.8 * rng.random()
        every = rng.randint(3, INTERVAL_MAX)
        self.protections = Protections(protocol, self.graph, every, rng, self.parts.protections)
        self.graph = lagging(self.graph, self.protections.lossy)
        self.bytes_max = self.parts.bytes_max or ((2 * (every + 1) + rng.randint(0, 8)) * FRAME_BYTES_MAX)
        if self.parts.bytes_max is None:
            refuse_small_bound(self.bytes_max, every, FRAME_BYTES_MAX)
        self.ideal = ideal_run(self.graph, self.frames)
        self.blobs: dict[str, Any] = {}
        self.network = Network(world, self._deliver)
        self.probes: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.calm = False
        self.store_links_cut: set[tuple[str, str]] = set()

        copies, self.needed = rng.choice(((1, 1), (1, 1), (3, 2)))
        self.store_names = tuple(f"store{i}" for i in range(copies))
        self.stores = {
            name: SimulatedStore(
                world,
                name,
                self.graph.inner,
                copies - self.needed + 1,
                self.parts.store,
                self._store_answers,
                self._store_kept,
            )
            for name in self.store_names
        }
        for store in self.stores.values():
            kept = [Kept(unit, 1, None) for unit in self.graph.inner]
            store.machine = self.parts.store(store.name, kept)
            for unit in self.graph.inner:
                store.disk.registers[unit] = store.promised[unit] = 1
        self.hosts = [Host(i) for i in range(len(self.graph.inner) + 1)]
        self.instances: dict[Address, Instance] = {}
        self.current: dict[str, Instance] = {}
        self.supervision = Supervision(self)
        self.checks = Checks(self)
        self.faults = Faults(self)

    # ---- playing ---------------------------------------------------------------------

    def play(self) -> Outcome:
        broken: str | None = None
        story: list[str] = []
        try:
            self._start_all()
            self.faults.plan()
            self.world.run(self.checks.after_step)
            self._calm_end()
        except ScheduleBroken as failure:
            broken, story = str(failure), self.world.story(failure.subject)
        except BrokenInvariant as failure:
            subject = self.world.trace[-1][1] if self.world.trace else "schedule"
            broken, story = f"{subject}: {failure}", self.world.story(subject)
        except ProtocolRefused:
            raise
        except Exception as failure:  # a machine that stumbles is as broken as one that errs
            subject = self.world.trace[-1][1] if self.world.trace else "schedule"
            broken = f"{subject}: {type(failure).__name__}: {failure}"
            story = [*self.world.story(subject), *traceback.format_exc().splitlines()[-12:]]
        return Outcome(
            self.seed,
            self.world.steps,
            self.faults.done,
            frozenset(self.probes | self.network.seen),
            self.counts,
            broken,
            tuple(story),
        )

    def _start_all(self) -> None:
        rng = self.world.rng
        for unit in self.graph.wirings:
            host = rng.randrange(len(self.hosts))
            self._install(unit, 1, host, Restored(), first_state(unit), None)
        for instance in list(self.current.values()):
            instance.start()
        self.checks.after_step(set(self.graph.wirings))
        self.world.touched.clear()

    def _calm_end(self) -> None:
        self.calm = True
        self.checks.all_delivered()
        for number in range(_CALM_ROUNDS_MAX):
            for unit in self.graph.inner:
                if self.protections.asks(self.graph.wirings[unit], number):
                    self.current[unit].want_checkpoint()
            self.world.run(self.checks.after_step)
            self.checks.at_rest()
            if self.checks.all_acknowledged() is None:
                return
        self.checks.fail_unacknowledged()

    # ---- units -----------------------------------------------------------------------

    def protection(self, wiring: Wiring, epoch: int, restored: Restored) -> CheckpointMachine:
        if wiring.unit.startswith("log:"):
            return SourceLog()
        if wiring.unit.startswith("sink:"):
            return SinkLedger(wiring)
        return self.protections.machine(wiring, epoch, restored)

    def _install(
        self,
        unit: str,
        epoch: int,
        host: int,
        restored: Restored,
        state: int,
        base: tuple[int, str] | None,
        pins: dict[int, tuple[int, int]] | None = None,
    ) -> Instance:
        instance = self.parts.instance(self, unit, epoch, host, restored, state, base, pins or {})
        self.instances[instance.address] = instance
        if unit not in self.current or self.current[unit].epoch < epoch:
            self.current[unit] = instance
        if not instance.address[0].startswith(("log:", "sink:")):
            self.hosts[host].near[unit] = instance
        return instance

    def start_unit(self, run: ActivationRun, order: StartUnit) -> None:
        unit = run.unit
        if (unit, order.epoch) in self.instances:
            raise ScheduleBroken(unit, f"two instances hold epoch {order.epoch}")
        base: tuple[int, str] | None
        pins: dict[int, tuple[int, int]] = {}
        if order.near is not None and run.left is not None:
            restored, state, base = run.left.near(order.stored)
            if order.pinned:
                self.probe("pins_survived_a_crash")
                pins = {serial: run.left.pins_left[serial] for serial, _ in order.pinned}
                restored = replace(restored, pinned=order.pinned)
        elif order.manifest is not None:
            if (order.store, order.manifest) not in run.fetched_whole:
                raise ScheduleBroken(unit, f"starts from a copy that {order.store} does not hold")
            restored, state, base = restored_from(order.manifest, self.blobs, order.stored)
        else:
            restored, state, base = Restored(), first_state(unit), None
        if unit in self.protections.lossy and order.near is None:
            restored = replace(restored, placed=False)
        before = self.current[unit]
        if before.alive and before.epoch < order.epoch:
            self.probe("started_beside_a_living_one")
        self.world.note(unit, f"epoch {order.epoch} starts at {restored.frame}, near {order.near is not None}")
        instance = self._install(unit, order.epoch, run.host.number, restored, state, base, pins)
        self.world.touched.add(unit)
        instance.start()

    def stepped_down(self, instance: Instance, epoch: int | None) -> None:
        """A store or a peer refused it; right only if a higher epoch was claimed."""
        unit = instance.unit
        if instance.epoch >= self.supervision.epochs_heard.get(unit, 1):
            raise ScheduleBroken(unit, f"epoch {instance.epoch} refused, but none is higher")
        instance.alive = False
        instance.near_valid = False
        self.counts["stepped_down"] += 1
        self.world.note(unit, f"epoch {instance.epoch} steps down")
        self.world.touched.add(unit)
        if self.current[unit] is instance:
            # The claim that fenced it may have died half-way: somebody must look.
            self.supervision.suspect(unit, 2.0)

    # ---- messages --------------------------------------------------------------------

    def send(self, sender: Instance, to: str, message: UnitMessage) -> None:
        if isinstance(message, RefusalSent):
            epoch = message.refused.epoch
        else:
            # Whom it has heard of; before that, whom the directory names.
            epoch = sender.machine.fence.highest(to) or self.current[to].epoch
        self.network.send(sender.address, (to, epoch), message)

    def _deliver(self, receiver: Address, message: UnitMessage) -> None:
        instance = self.instances.get(receiver)
        if instance is not None:
            instance.receive(message)

    def send_to_store(self, sender: Instance, store: str, request: StoreSent) -> None:
        self.ask_store(sender.unit, store, request)
        self.faults.shipping(sender, store)

    def ask_store(self, unit: str, store: str, request: StoreSent | ClaimSent) -> None:
        """Requests may overtake each other, and a few come twice."""
        target = self.stores[store]
        if (unit, store) not in self.store_links_cut:
            delay = self.world.between(0.1, 0.9)
            self._post(delay, target.receive, request, target.life)

    def _store_answers(self, answer: Any) -> None:
        if (answer.unit, answer.store) in self.store_links_cut:
            return
        delay = self.world.between(0.1, 0.6)
        if isinstance(answer, StoreAnswered):
            instance = self.instances.get((answer.unit, answer.epoch))
            if instance is not None:
                self._post(delay, instance.store_answered, answer)
        else:
            run = self.supervision.by_claimant.get(answer.claimant)
            if run is not None:
                self._post(delay, run.claim_answered, answer)

    def _post(self, delay: float, deliver: Callable[..., None], *letter: Any) -> None:
        self.world.after(delay, deliver, *letter)
        if self.world.rng.random() < _STORE_MESSAGES_DOUBLED:
            self.world.after(delay + self.world.between(0.0, 6.0), deliver, *letter)

    def _store_kept(self, store: SimulatedStore, manifest: Manifest) -> None:
        self.faults.kept(store, manifest)

    # ---- what others want to know ------------------------------------------------------

    def probe(self, name: str) -> None:
        self.probes.add(name)

    def skipped(self, instance: Instance, after: int, upto: int) -> None:
        self.counts["frames_lost"] += upto - after
        self.world.note(instance.unit, f"frames {after + 1} to {upto} are lost")
        self.checks.skipped(instance.unit)

    def pinned(self, instance: Instance) -> None:
        self.counts["pinned"] += 1
        self.faults.pinned(instance)

    def shipped(self, instance: Instance, manifest: Manifest) -> None:
        self.counts["stored"] += 1
        self.counts["stored_bytes"] += 60 * len(manifest.files)
        self.checks.shipped(instance, manifest)

    def activating(self, unit: str) -> None:
        self.counts["activations"] += 1
        self.faults.activating(unit)

    def each_edge_of(self, x: str, y: str, action: Callable[[str, str], None]) -> None:
        """Both ends of every edge between two units."""
        for edge in self.graph.edges:
            if {edge.producer, edge.consumer} == {x, y}:
                action(edge.producer, edge.name)
                action(edge.consumer, edge.name)
