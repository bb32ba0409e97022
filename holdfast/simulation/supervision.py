"""Who notices that a unit is gone, and who starts it again.

A supervisor suspects; it cannot know. It may start a second instance beside a living
one, and two supervisors may try at once: only the epoch registers decide who runs.
An activation lives on the host where the unit is to start; it freezes and dies with
that host, and a supervisor that sees no unit come up tries again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from holdfast.protocols.activation import (
    ActivationEvent,
    ActivationInstruction,
    ClaimAnswered,
    CopyFetched,
    EpochPassed,
    FetchCopy,
    GiveWay,
    NearCheckpoint,
    RetryDue,
    SendClaim,
    StartUnit,
)
from holdfast.protocols.messages import ClaimGranted, ClaimRefused, Manifest
from holdfast.simulation.instances import Instance

if TYPE_CHECKING:
    from holdfast.simulation.schedule import Schedule

__all__ = ["ActivationRun", "Host", "Supervision"]


class Host:
    """A folder and a process: up or lost, awake or frozen."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.up = True
        self.frozen = False
        self.near: dict[str, Instance] = {}


class ActivationRun:
    """One attempt to start a unit on one host."""

    def __init__(self, schedule: Schedule, unit: str, host: Host, claimant: str, known_epoch: int) -> None:
        self.schedule = schedule
        self.unit = unit
        self.host = host
        self.claimant = claimant
        self.alive = True
        self._inbox: list[ActivationEvent] = []
        self.fetched_whole: set[tuple[str, Manifest]] = set()
        left = host.near.get(unit)
        usable = left is not None and left.near_valid and not left.alive
        self.left = left if usable and schedule.protections.keeps_near(unit) else None
        near = None
        if self.left is not None:
            pins = tuple((serial, pin[0]) for serial, pin in self.left.pins_left.items())
            near = NearCheckpoint(self.left.epoch, self.left.machine.processed, pins)
        self.machine = schedule.parts.activation(
            unit,
            claimant,
            schedule.store_names,
            schedule.needed,
            # What the directory said; others may claim the same number at this moment.
            known_epoch,
            near,
        )

    def begin(self) -> None:
        self._carry_out(self.machine.start())
        self.schedule.world.after(8.0, self._retry)

    def _retry(self) -> None:
        if self.alive and not self.machine.over:
            self.handle(RetryDue())
            self.schedule.world.after(self.schedule.world.between(5.0, 9.0), self._retry)

    def handle(self, event: ActivationEvent) -> None:
        if not self.alive or self.machine.over:
            return
        if self.host.frozen:
            self._inbox.append(event)
            return
        self._carry_out(self.machine.handle(event))

    def thaw(self) -> None:
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            self.handle(event)

    def claim_answered(self, answer: ClaimGranted | ClaimRefused) -> None:
        self.handle(ClaimAnswered(answer))

    def _carry_out(self, instructions: list[ActivationInstruction]) -> None:
        schedule, world = self.schedule, self.schedule.world
        for instruction in instructions:
            match instruction:
                case SendClaim(store, claim):
                    heard = schedule.supervision.epochs_heard
                    heard[self.unit] = max(heard.get(self.unit, 0), claim.epoch)
                    schedule.ask_store(self.unit, store, claim)
                case FetchCopy(store, epoch, manifest):
                    world.after(world.between(0.2, 1.2), self._fetched, store, epoch, manifest)
                case GiveWay():
                    self.alive = False
                    schedule.supervision.finished(self)
                case StartUnit():
                    self.alive = False
                    schedule.supervision.finished(self)
                    schedule.start_unit(self, instruction)
                case _:
                    assert_never(instruction)

    def _fetched(self, store: str, epoch: int, manifest: Manifest) -> None:
        target = self.schedule.stores[store]
        if (self.unit, store) in self.schedule.store_links_cut:
            return
        promised = target.promised.get(self.unit, 0)
        if target.up and promised > epoch:
            self.handle(EpochPassed(promised))
        elif target.up:
            good = target.reads_well(manifest)
            if good:
                self.fetched_whole.add((store, manifest))
            else:
                self.schedule.probe("damaged_copy_met")
            held = target.disk.manifests.get(self.unit)
            self.handle(CopyFetched(store, manifest, good, held))


class Supervision:
    """Suspicion and activation of all units."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.runs: dict[str, list[ActivationRun]] = {}
        self.by_claimant: dict[str, ActivationRun] = {}
        self.epochs_heard: dict[str, int] = {}
        self._count = 0

    @property
    def busy(self) -> bool:
        return any(self.runs.values())

    def suspect(self, unit: str, delay: float, even_if_alive: bool = False) -> None:
        self._schedule.world.after(delay, self._look, unit, even_if_alive)

    def _look(self, unit: str, even_if_alive: bool) -> None:
        schedule = self._schedule
        if self.runs.get(unit):
            # One attempt is under way; look again whether it got anywhere.
            self.suspect(unit, schedule.world.between(4.0, 8.0))
            return
        instance = schedule.current[unit]
        healthy = instance.alive and not instance.frozen
        if healthy and not even_if_alive:
            return
        host = self._choose(unit, instance, healthy)
        if host is None:
            self.suspect(unit, 3.0)
            return
        self.activate(unit, host, instance.epoch)
        if schedule.world.rng.random() < 0.1:
            # Repository away, network split: another supervisor decides the same.
            other = self._choose(unit, instance, True)
            if other is not None:
                schedule.probe("two_activations_at_once")
                # It read the directory now and may be slow to act on that.
                late = schedule.world.between(0.0, 2.0)
                schedule.world.after(late, self.activate, unit, other, instance.epoch)
                schedule.faults.racing()

    def _choose(self, unit: str, instance: Instance, elsewhere: bool) -> Host | None:
        schedule = self._schedule
        hosts = [h for h in schedule.hosts if h.up and not h.frozen]
        home, rng = schedule.hosts[instance.host], schedule.world.rng
        if home in hosts and not elsewhere and not instance.frozen and rng.random() < 0.85:
            return home
        hosts = [h for h in hosts if h is not home]
        # Where it ran before, something old may be left: a tempting place.
        known = [h for h in hosts if unit in h.near]
        if known and rng.random() < 0.5:
            hosts = known
        return rng.choice(hosts) if hosts else None

    def activate(self, unit: str, host: Host, known_epoch: int) -> None:
        if not host.up or host.frozen:
            return
        self._count += 1
        run = ActivationRun(self._schedule, unit, host, f"{unit}~{self._count}", known_epoch)
        self.runs.setdefault(unit, []).append(run)
        self.by_claimant[run.claimant] = run
        self._schedule.activating(unit)
        run.begin()
        # The host may die or freeze before the unit comes up.
        self.suspect(unit, self._schedule.world.between(9.0, 12.0))

    def finished(self, run: ActivationRun) -> None:
        self.runs[run.unit].remove(run)

    def host_gone(self, host: Host) -> None:
        for runs in self.runs.values():
            for run in [r for r in runs if r.host is host]:
                run.alive = False
                runs.remove(run)

    def host_frozen(self, host: Host) -> None:
        """A frozen attempt does not count as one; it may still wake and go on."""
        for runs in self.runs.values():
            for run in [r for r in runs if r.host is host]:
                runs.remove(run)

    def host_thawed(self, host: Host) -> None:
        for run in self.by_claimant.values():
            if run.host is host and run.alive:
                if run not in self.runs[run.unit]:
                    self.runs[run.unit].append(run)
                run.thaw()
