"""What goes wrong: drawn from the seed, some at random moments, some at bad ones.

Random moments alone rarely meet the short windows where protocols break. So part of
the faults are aimed: when a unit pins a checkpoint, ships one, or is being
activated, chance may strike it, its store or its neighbour right then. Every fault
ends: hosts and stores come back, cuts heal, the weather clears, the frozen wake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.protocols.messages import Manifest
from holdfast.simulation.instances import Instance
from holdfast.simulation.network import Weather
from holdfast.simulation.stores import SimulatedStore
from holdfast.simulation.supervision import Host

if TYPE_CHECKING:
    from holdfast.simulation.schedule import Schedule

__all__ = ["Faults"]

# Faults per schedule: enough to overlap, few enough that data flows in between.
_FAULTS_MAX = 6


class Faults:
    """Plans and carries out the faults of one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._world = schedule.world
        self.done = 0
        self._rotten = 0
        self._folders_lost = 0

    def plan(self) -> None:
        world = self._world
        end = self._schedule.frames * self._schedule.frame_time
        for _ in range(world.rng.randint(1, 4)):
            world.at(world.between(2.0, end), self._strike)
        if world.rng.random() < 0.25:
            # Several at once: both ends of an edge in the same moment.
            world.at(world.between(2.0, end), self._strike_both_ends)
        if world.rng.random() < 0.1:
            # Behind the last frame nothing comes that would show what went astray.
            world.at(world.between(0.8 * end, end), self._spoil_the_end)

    def _open(self) -> bool:
        return self.done < _FAULTS_MAX and not self._schedule.calm

    def _strike(self) -> None:
        if not self._open():
            return
        rng = self._world.rng
        unit = rng.choice(self._schedule.graph.inner)
        kind = rng.random()
        if kind < 0.23:
            self.kill_unit(unit, near_valid=rng.random() < 0.6)
        elif kind < 0.35:
            self.lose_host(self._host_of(unit))
        elif kind < 0.44:
            self.power_cycle(self._host_of(unit))
        elif kind < 0.6:
            self.freeze_host(self._host_of(unit))
        elif kind < 0.66:
            self.suspect_wrongly(unit)
        elif kind < 0.74:
            self.cut_edge()
        elif kind < 0.83:
            self.spoil_edge()
        elif kind < 0.86:
            self.cut_store_link(unit, rng.choice(self._schedule.store_names))
        else:
            stores = list(self._schedule.stores.values())
            if len(stores) > 1 and rng.random() < 0.4:
                self.besiege(unit, *rng.sample(stores, 2))
            else:
                self.hurt_store(rng.choice(stores))

    def _spoil_the_end(self) -> None:
        if self._open():
            self.spoil_edge()

    def _strike_both_ends(self) -> None:
        if not self._open():
            return
        schedule = self._schedule
        inner = [e for e in schedule.graph.edges if ":" not in e.producer + e.consumer]
        edge = self._world.rng.choice(inner)
        self.kill_unit(edge.producer, near_valid=self._world.rng.random() < 0.2)
        if edge.consumer != edge.producer:
            self.kill_unit(edge.consumer, near_valid=self._world.rng.random() < 0.2)

    def _host_of(self, unit: str) -> Host:
        return self._schedule.hosts[self._schedule.current[unit].host]

    # ---- aimed at bad moments ----------------------------------------------------------

    def pinned(self, instance: Instance) -> None:
        if self._open() and self._world.rng.random() < 0.02:
            self._world.after(self._world.between(0.0, 1.5), self._hit_pending, instance)

    def _hit_pending(self, instance: Instance) -> None:
        if self._open() and instance.alive and instance.machine.protection.pending:
            if self._world.rng.random() < 0.5:
                self.kill_unit(instance.unit, near_valid=self._world.rng.random() < 0.3)
            else:
                self.freeze_host(self._schedule.hosts[instance.host])

    def shipping(self, instance: Instance, store: str) -> None:
        if not self._open():
            return
        chance = self._world.rng.random()
        if chance < 0.015:
            self._world.after(self._world.between(0.1, 1.6), self._hit_shipping, instance, store)
        elif chance < 0.02:
            # The claim and the checkpoint race to the stores.
            self.suspect_wrongly(instance.unit)

    def kept(self, store: SimulatedStore, manifest: Manifest) -> None:
        """The first of several copies is written: its store may lose it at once."""
        stores = self._schedule.stores.values()
        if len(stores) == 1 or not self._open() or self._rotten or self._folders_lost:
            return
        copies = sum(s.disk.manifests.get(manifest.unit) == manifest for s in stores)
        if copies == 1 and self._world.rng.random() < 0.05:
            self._world.after(self._world.between(0.0, 0.5), self._hit_first_copy, store)

    def _hit_first_copy(self, store: SimulatedStore) -> None:
        if self._open() and store.up and not self._rotten and not self._folders_lost:
            self._count("first_copies_lost")
            self._folders_lost += 1
            store.lose_folder()
            self._world.after(self._world.between(0.0, 0.3), self._store_back, store)

    def _hit_shipping(self, instance: Instance, store: str) -> None:
        if not self._open() or instance.shipping.travelling is None:
            return
        chance = self._world.rng.random()
        if chance < 0.4:
            self.kill_unit(instance.unit, near_valid=False)
        elif chance < 0.7:
            self.freeze_host(self._schedule.hosts[instance.host])
        else:
            self.hurt_store(self._schedule.stores[store])
            if self._world.rng.random() < 0.5:
                self.kill_unit(instance.unit, near_valid=False)

    def racing(self) -> None:
        """Two claims are on their way: a store may crash between them."""
        if self._open() and self._world.rng.random() < 0.3:
            store = self._world.rng.choice(list(self._schedule.stores.values()))
            self._world.after(self._world.between(0.4, 1.2), self._hit_registers, store)

    def _hit_registers(self, store: SimulatedStore) -> None:
        if self._open() and store.up:
            self._count("stores_hurt")
            store.crash()
            self._world.after(self._world.between(0.1, 0.4), self._store_back, store)

    def activating(self, unit: str) -> None:
        if self._open() and self._world.rng.random() < 0.15:
            self._world.after(self._world.between(0.1, 2.5), self._hit_recovery, unit)

    def _hit_recovery(self, unit: str) -> None:
        schedule, rng = self._schedule, self._world.rng
        if not self._open() or not schedule.supervision.runs.get(unit):
            return
        run = schedule.supervision.runs[unit][0]
        chance = rng.random()
        if chance < 0.4:
            neighbours = {
                name
                for e in schedule.graph.edges
                if unit in (e.producer, e.consumer)
                for name in (e.producer, e.consumer)
                if ":" not in name and name != unit
            }
            if neighbours:
                self.kill_unit(rng.choice(sorted(neighbours)), near_valid=rng.random() < 0.3)
        elif chance < 0.6:
            self.lose_host(run.host)
        elif chance < 0.8:
            self.freeze_host(run.host)
        else:
            self.hurt_store(rng.choice(list(schedule.stores.values())))

    # ---- the faults --------------------------------------------------------------------

    def _count(self, what: str) -> None:
        self.done += 1
        self._schedule.counts[what] += 1
        if self._schedule.supervision.busy:
            self._schedule.probe("fault_during_recovery")

    def _struck(self, instance: Instance) -> None:
        """Note what state the victim was in."""
        schedule = self._schedule
        if instance.machine.protection.pending:
            schedule.probe("fault_while_pending")
        if instance.shipping.travelling is not None:
            schedule.probe("fault_while_shipping")
        for edge in schedule.graph.edges:
            ends = (edge.producer, edge.consumer)
            if instance.unit in ends and edge.producer != edge.consumer:
                other = schedule.current[ends[ends[0] == instance.unit]]
                if not other.alive or other.frozen:
                    schedule.probe("fault_at_both_ends")

    def kill_unit(self, unit: str, near_valid: bool) -> None:
        instance = self._schedule.current[unit]
        if not instance.alive:
            return
        self._count("killed")
        self._struck(instance)
        instance.kill(near_valid)
        self._schedule.supervision.suspect(unit, self._world.between(0.5, 3.0))

    def _on_host(self, host: Host) -> list[Instance]:
        return [i for i in self._schedule.instances.values() if i.host == host.number and ":" not in i.unit]

    def lose_host(self, host: Host) -> None:
        """The folder is gone: near checkpoints, queues, activations under way."""
        self._end_host(host, "hosts_lost", self._world.between(4.0, 15.0))

    def power_cycle(self, host: Host) -> None:
        """A changed boot id: what is on disk may be torn, so nobody starts from it."""
        self._end_host(host, "hosts_rebooted", self._world.between(1.0, 4.0))

    def _end_host(self, host: Host, what: str, away: float) -> None:
        if not host.up or host.frozen:
            return
        self._count(what)
        host.up = False
        host.near.clear()
        for instance in self._on_host(host):
            if instance.alive:
                self._struck(instance)
            instance.kill(near_valid=False)
        self._schedule.supervision.host_gone(host)
        for unit, instance in self._schedule.current.items():
            if not instance.alive:
                self._schedule.supervision.suspect(unit, self._world.between(0.5, 4.0))
        self._world.after(away, self._host_back, host)

    def _host_back(self, host: Host) -> None:
        host.up = True

    def freeze_host(self, host: Host) -> None:
        if not host.up or host.frozen:
            return
        self._count("hosts_frozen")
        host.frozen = True
        for instance in self._on_host(host):
            if instance.alive and not instance.frozen:
                self._struck(instance)
                instance.frozen = True
                self._schedule.supervision.suspect(instance.unit, self._world.between(2.0, 5.0))
        self._schedule.supervision.host_frozen(host)
        self._world.after(self._world.between(1.5, 18.0), self._thaw, host)

    def _thaw(self, host: Host) -> None:
        host.frozen = False
        for instance in self._on_host(host):
            if instance.frozen:
                current = self._schedule.current[instance.unit]
                if instance.alive and current.epoch > instance.epoch:
                    self._schedule.probe("zombie_after_activation")
                instance.thaw()
        self._schedule.supervision.host_thawed(host)

    def suspect_wrongly(self, unit: str) -> None:
        """A detector that errs: a second instance starts beside a healthy one."""
        self._count("suspected_wrongly")
        self._schedule.supervision.suspect(unit, 0.0, even_if_alive=True)

    def cut_edge(self) -> None:
        schedule = self._schedule
        edge = self._world.rng.choice(schedule.graph.edges)
        if edge.producer == edge.consumer:
            return
        self._count("edges_cut")
        schedule.network.cut(edge.producer, edge.consumer)
        self._world.after(self._world.between(0.5, 8.0), self._heal, edge.producer, edge.consumer)

    def _heal(self, x: str, y: str) -> None:
        if self._schedule.network.heal(x, y):
            self._connect_anew(x, y)

    def _connect_anew(self, x: str, y: str) -> None:
        """Each transport notices in its own time; until then it goes on as before."""
        world = self._world
        self._schedule.each_edge_of(
            x, y, lambda unit, edge: world.after(world.between(0.0, 2.0), self._notice, unit, edge)
        )

    def spoil_edge(self) -> None:
        """Messages late, out of order, twice; in every second storm some are lost."""
        schedule, world = self._schedule, self._world
        edge = world.rng.choice(schedule.graph.edges)
        x, y = edge.producer, edge.consumer
        loses = world.rng.random() < 0.5
        weather = Weather(held_up=0.3, doubled=0.3, lost=0.3 if loses else 0.0)
        if x != y and schedule.network.spoil(x, y, weather):
            self._count("edges_spoilt")
            world.after(world.between(2.0, 12.0), self._clear, x, y, loses)

    def _clear(self, x: str, y: str, lost: bool) -> None:
        self._schedule.network.clear(x, y)
        if lost and not self._schedule.network.is_cut(x, y):
            self._connect_anew(x, y)

    def cut_store_link(self, unit: str, store: str) -> None:
        """One unit and one store do not hear of each other for a while."""
        schedule = self._schedule
        if (unit, store) in schedule.store_links_cut:
            return
        self._count("store_links_cut")
        schedule.store_links_cut.add((unit, store))
        self._world.after(self._world.between(1.0, 10.0), self._heal_store_link, unit, store)

    def _heal_store_link(self, unit: str, store: str) -> None:
        self._schedule.store_links_cut.discard((unit, store))
        self._schedule.current[unit].store_found(store)

    def _notice(self, unit: str, edge: str) -> None:
        self._schedule.current[unit].peer_found(edge)

    def hurt_store(self, store: SimulatedStore) -> None:
        schedule, rng = self._schedule, self._world.rng
        if not store.up:
            return
        copies = len(schedule.stores)
        chance = rng.random()
        if chance < 0.3 and copies > 1 and self._rotten == 0 and self._folders_lost == 0:
            self._rot(store)
            return
        self._count("stores_hurt")
        for instance in schedule.current.values():
            if instance.alive and instance.shipping.travelling is not None:
                schedule.probe("fault_while_shipping")
        # One folder at a time: with two of three copies gone at once the promise is off.
        if chance < 0.6 and copies > 1 and self._rotten == 0 and self._folders_lost == 0:
            self._folders_lost += 1
            store.lose_folder()
        else:
            store.crash()
        self._world.after(self._world.between(1.0, 8.0), self._store_back, store)

    def besiege(self, unit: str, first: SimulatedStore, second: SimulatedStore) -> None:
        """One store away while a checkpoint is taken, then unit and second folder lost."""
        if not first.up or not second.up or self._rotten or self._folders_lost:
            return
        self._count("besieged")
        self._folders_lost += 1
        away = self._world.between(3.0, 7.0)
        first.crash()
        self._world.after(away + self._world.between(0.0, 2.0), self._store_back, first)
        self._world.after(away, self._finish_siege, unit, second)

    def _finish_siege(self, unit: str, store: SimulatedStore) -> None:
        if self._schedule.calm or not store.up:
            return
        self.kill_unit(unit, near_valid=False)
        store.lose_folder()
        self._world.after(self._world.between(0.2, 2.0), self._store_back, store)

    def _rot(self, store: SimulatedStore) -> None:
        """One file of one copy gets a wrong hash; nobody is told."""
        files = sorted(store.disk.files)
        if not files:
            return
        self._count("files_rotten")
        self._rotten += 1
        store.disk.rotten.add(self._world.rng.choice(files))

    def _store_back(self, store: SimulatedStore) -> None:
        if not store.up:
            store.restart()
        if not store.joined_before:
            for peer in self._schedule.stores.values():
                if peer is not store and peer.up and peer.joined_before:
                    store.learn_from(peer)
            if not store.joined_before:
                self._world.after(2.0, self._store_back, store)
                return
        for instance in list(self._schedule.current.values()):
            if ":" not in instance.unit:
                instance.store_found(store.name)
