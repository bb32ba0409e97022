"""Who notices that a unit is gone, and who starts it again: the lives of the units, under the virtual clock.

Every inner unit has a `Life`, the machine that the engine drives; here it hears of deaths late, twice and in the
wrong order, and what it says is carried out. It suspects; it cannot know. It may start a second instance beside a
living one, and a second activation may try at once: only the epoch registers decide who runs.
An activation lives on the host where the unit is to start; it freezes and dies with
that host, and the attempt has failed then.

What a life says is held against the truth (`Truth`): what was damaged and not replaced, which loss was counted, and
what a board was told of the frames that were committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from holdfast.errors import Remedy
from holdfast.graph.restarting import RestartPolicy
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
from holdfast.protocols.lifecycle import (
    Abandon,
    Announce,
    AskMaker,
    AttemptFailed,
    Cause,
    Cured,
    Disown,
    EndRun,
    FrameUnreadable,
    HostLost,
    InputGone,
    LeaveOut,
    LifeEvent,
    LifeInstruction,
    Looked,
    LoseStreams,
    Note,
    Probe,
    ProbeFailed,
    PutBack,
    QueryEnded,
    RenewalWanted,
    Restore,
    Restored,
    Stalled,
    Start,
    Started,
    State,
    Stopping,
    Wake,
)
from holdfast.protocols.messages import ClaimGranted, ClaimRefused, Manifest
from holdfast.simulation.instances import Instance
from holdfast.simulation.world import ScheduleBroken

if TYPE_CHECKING:
    from holdfast.simulation.schedule import Schedule

__all__ = ["ActivationRun", "Host", "Supervision", "Truth"]

# More than the faults of a schedule and what follows from them: here nothing lasts, and nobody is to be given up.
_POLICY = RestartPolicy(tries=30, first_s=0.25, longest_s=2.0)
# The number of an instance that no attempt of a life is.
_NOBODYS = -1
# A loss is noticed by more than one: by who looks after the hosts, by a restart that fails over it.
_NOTICED_MAX = 3


class Host:
    """A folder and a process: up or lost, awake or frozen."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.up = True
        self.frozen = False
        self.near: dict[str, Instance] = {}


class ActivationRun:
    """One attempt to start a unit on one host; `near` says whether what lies there may be used."""

    def __init__(
        self, schedule: Schedule, unit: str, host: Host, claimant: str, known_epoch: int, attempt: int, near: bool
    ) -> None:
        self.schedule = schedule
        self.unit = unit
        self.host = host
        self.claimant = claimant
        self.attempt = attempt
        self.alive = True
        self._inbox: list[ActivationEvent] = []
        self.fetched_whole: set[tuple[str, Manifest]] = set()
        left = host.near.get(unit)
        usable = near and left is not None and left.near_valid and not left.alive
        self.left = left if usable and schedule.protections.keeps_near(unit) else None
        found = None
        if self.left is not None:
            pins = tuple((serial, pin[0]) for serial, pin in self.left.pins_left.items())
            found = NearCheckpoint(self.left.epoch, self.left.machine.processed, pins)
        self.machine = schedule.parts.activation(
            unit,
            claimant,
            schedule.store_names,
            schedule.needed,
            # What the directory said; others may claim the same number at this moment.
            known_epoch,
            found,
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
                    schedule.supervision.gave_way(self)
                case StartUnit():
                    self.alive = False
                    schedule.supervision.can_start(self, instruction)
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


@dataclass
class Truth:
    """Of one unit: what is so, whatever its life believes."""

    newest: int = 0  # the last attempt that was asked for
    is_made: bool = False  # it is being made
    near_ok: bool = True  # nothing that is known to be damaged or gone waits to be replaced
    frames_gone: bool = False  # its host is lost, and the board does not know it
    told: int = 0  # the last frame the board was told of
    noted: set[str] = field(default_factory=set)  # what it died of
    disowned: set[int] = field(default_factory=set)
    losses: set[int] = field(default_factory=set)
    full_s: float = 0.0  # how long its disk is full
    full_until: float = 0.0
    poison: int | None = None  # a frame on which it raises


class Supervision:
    """The lives of all inner units; carries out what they say."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._world = schedule, schedule.world
        self.runs: dict[str, list[ActivationRun]] = {}
        self.by_claimant: dict[str, ActivationRun] = {}
        self.epochs_heard: dict[str, int] = {}
        self.truths = {unit: Truth() for unit in schedule.graph.inner}
        self.lives = {
            unit: schedule.parts.life(unit, _POLICY, self._world.rng.random, has_host=True, can_restore=True)
            for unit in schedule.graph.inner
        }
        self._attempt_of: dict[tuple[str, int], int] = {}  # of instances, by address
        self._ready: dict[str, tuple[ActivationRun, StartUnit]] = {}  # can start, once its life says so
        self._count = self._causes = self._losses = 0

    @property
    def busy(self) -> bool:
        return any(self.runs.values())

    def begin(self) -> None:
        for unit in self.lives:
            self._attempt_of[self._schedule.current[unit].address] = 0
            self._happened(unit, Started(self._world.now, 0))

    # ---- what is noticed -------------------------------------------------------------

    def _cause(self, what: str, remedy: Remedy, doubtful: bool = False) -> Cause:
        self._causes += 1
        return Cause(f"{what} {self._causes}", remedy, passes=True, doubtful=doubtful)

    def died(self, instance: Instance, delay: float, remedy: Remedy = Remedy.RETRY) -> None:
        """Its process is gone; seen after a while, and sometimes once more by one that looked before."""
        doubtful = remedy in (Remedy.RESTORE, Remedy.REMAKE)
        event = (instance, instance.machine.processed + 1, self._cause("death", remedy, doubtful))
        self._world.after(delay, self._ended, *event)
        if self._world.rng.random() < 0.3:
            self._world.after(delay + self._world.between(0.0, 6.0), self._ended, *event)

    def raised(self, instance: Instance, frame: int) -> None:
        self._world.after(0.3, self._ended, instance, frame, Cause("ValueError", Remedy.RETRY, of_user=True))

    def _ended(self, instance: Instance, frame: int, cause: Cause) -> None:
        unit, attempt = instance.unit, self._attempt_of.get(instance.address, _NOBODYS)
        if attempt == _NOBODYS:
            return
        truth = self.truths[unit]
        is_news = attempt == truth.newest and self.lives[unit].state is State.RUNNING
        if is_news and cause.remedy is Remedy.RESTORE:
            truth.near_ok = False
        if is_news and cause.remedy is Remedy.WAIT:
            truth.full_until = self._world.now + truth.full_s
        self._happened(unit, QueryEnded(self._world.now, attempt, frame, cause))

    def stalls(self, instance: Instance, delay: float, even_if_alive: bool = False) -> None:
        """It makes nothing, or so it seems."""
        self._world.after(delay, self._stalled, instance, even_if_alive)

    def _stalled(self, instance: Instance, even_if_alive: bool) -> None:
        unit = instance.unit
        attempt = self._attempt_of.get(instance.address, _NOBODYS)
        if attempt != _NOBODYS and instance.alive and (instance.frozen or even_if_alive):
            frame = instance.machine.processed + 1
            self._happened(unit, Stalled(self._world.now, attempt, frame, self._cause("stall", Remedy.RETRY)))

    def host_lost(self, host: Host) -> None:
        """All that live there, or are about to, lose what they have; it is noticed once or more, in its own time."""
        self._losses += 1
        for unit, life in self.lives.items():
            runs = [run for run in self.runs.get(unit, ()) if run.host is host]
            if self._schedule.current[unit].host != host.number and not runs:
                continue
            cause = Cause(f"loss {self._losses}", Remedy.RESTORE, passes=True)
            delay = self._world.between(0.5, 4.0)
            for _ in range(self._world.rng.randint(1, _NOTICED_MAX)):
                self._world.after(delay, self._lost, unit, self._losses, life.attempt, cause)
                delay += self._world.between(0.0, 4.0)
            if self._world.rng.random() < 0.5:
                self.died(self._schedule.current[unit], self._world.between(0.2, 2.0), Remedy.RESTORE)

    def _lost(self, unit: str, number: int, attempt: int, cause: Cause) -> None:
        life, truth = self.lives[unit], self.truths[unit]
        if number not in truth.losses:
            if number < max(truth.losses, default=0):
                return  # it lives elsewhere, and has lost that, too
            if life.attempt != attempt and life.state in (State.RUNNING, State.STARTING):
                return  # it was brought back elsewhere before anybody saw this
            truth.losses.add(number)
            truth.near_ok, truth.frames_gone = False, True
            truth.full_until = 0.0  # its new folder is empty
            if life.state in (State.RESTORING, State.SUSPECT):
                self._schedule.probe(f"loss_while_{life.state.value.lower()}")
        frame = self._schedule.current[unit].machine.processed + 1
        self._happened(unit, HostLost(self._world.now, number, frame, cause))
        if truth.frames_gone:
            raise ScheduleBroken(unit, f"after loss {number} the board still has its frames")

    def complain(self, maker: str, reader: str, cause: Cause | None = None, times: int = 4) -> None:
        """A reader outside cannot read a frame of the unit, and says so again and again."""
        told = cause or self._cause("unreadable", Remedy.REMAKE)
        if times and self._complained(maker, reader, told):
            self._world.after(0.9, self.complain, maker, reader, told, times - 1)

    def _complained(self, maker: str, reader: str, cause: Cause) -> bool:
        """Whether it has still not gone back."""
        instance, was_up = self._schedule.current[maker], self.lives[maker].is_up
        frame = instance.machine.processed + 1
        out = self.lives[maker].handle(FrameUnreadable(self._world.now, reader, frame, cause))
        if any(isinstance(each, LoseStreams) for each in out):
            instance.near_valid = self.truths[maker].near_ok = False
        self._carry_out(maker, out)
        return not was_up or self.lives[maker].is_up

    # ---- what is said ------------------------------------------------------------------

    def _happened(self, unit: str, event: LifeEvent) -> None:
        out = self.lives[unit].handle(event)
        if out:
            self._world.note(unit, event)
            if getattr(event, "attempt", self.truths[unit].newest) != self.truths[unit].newest:
                raise ScheduleBroken(unit, "what an attempt met that was replaced had an effect")
            self._carry_out(unit, out)

    def _carry_out(self, unit: str, instructions: list[LifeInstruction]) -> None:
        world, truth, told = self._world, self.truths[unit], None
        for instruction in instructions:
            match instruction:
                case Disown(attempt):
                    truth.disowned.add(attempt)
                case LoseStreams():
                    self._lose_streams(unit)
                case Abandon(attempt):
                    self._abandon(unit, attempt)
                case Restore():
                    self._restore(unit, instruction)
                case PutBack() | Announce():
                    told = instruction
                case Start(attempt):
                    self._start(unit, attempt, told)
                case Probe(attempt, frame):
                    world.after(world.between(0.5, 3.0), self._probed, unit, attempt, frame)
                case AskMaker(_, cause):
                    self._ask_maker(unit, cause)
                case Note(_, cause, _):
                    if cause.words in truth.noted and cause.passes:
                        raise ScheduleBroken(unit, f"{cause.words} counts twice")
                    truth.noted.add(cause.words)
                    self._schedule.counts["deaths"] += 1
                case LeaveOut(_, cause, tries):
                    raise ScheduleBroken(unit, f"given up over {cause.words} after {tries} tries, and nothing lasts")
                case Wake(at_s):
                    world.at(max(world.now, at_s), self._wake, unit)
                case EndRun(cause):
                    raise ScheduleBroken(unit, f"ends the run over {cause.words}")
                case _:
                    assert_never(instruction)

    def _wake(self, unit: str) -> None:
        now = self._world.now
        self._happened(unit, Looked(now, has_room=now >= self.truths[unit].full_until))

    def _lose_streams(self, unit: str) -> None:
        truth = self.truths[unit]
        truth.frames_gone, truth.told = False, 0
        readers = {e.consumer for e in self._schedule.graph.edges if e.producer == unit} & {*self.lives} - {unit}
        for reader in sorted(readers):
            if self._world.rng.random() < 0.3:
                self._happened(reader, RenewalWanted(self._world.now))

    def _abandon(self, unit: str, attempt: int) -> None:
        """An instance that can be reached ends; one that cannot stays, and the epochs keep it out."""
        self.truths[unit].disowned.add(attempt)
        for address, number in self._attempt_of.items():
            instance = self._schedule.instances.get(address)
            if address[0] == unit and number == attempt and instance is not None and instance.alive:
                if not instance.frozen and self._world.rng.random() < 0.5:
                    instance.kill(near_valid=True)

    def _ask_maker(self, reader: str, cause: Cause) -> None:
        """It may be any that feeds it: the first stands for the one whose frame it was."""
        makers = [e.producer for e in self._schedule.graph.edges if e.consumer == reader and e.producer in self.lives]
        if not makers or makers[0] == reader:
            self._happened(reader, RenewalWanted(self._world.now))
        elif self.lives[makers[0]].state is State.GIVEN_UP:
            self._happened(reader, InputGone(self._world.now))
        elif not self._complained(makers[0], reader, Cause(f"{cause.words} read", Remedy.REMAKE, passes=True)):
            self._happened(reader, RenewalWanted(self._world.now))

    def _probed(self, unit: str, attempt: int, frame: int) -> None:
        now = self._world.now
        if self._world.rng.random() < 0.2:
            self._happened(unit, ProbeFailed(now, attempt, frame, self._cause("search", Remedy.RETRY)))
            return
        self.truths[unit].poison = None
        self._schedule.probe("rows_left_out")
        self._happened(unit, Cured(now, attempt))

    # ---- attempts ----------------------------------------------------------------------

    def _restore(self, unit: str, order: Restore) -> None:
        truth = self.truths[unit]
        if order.attempt <= truth.newest:
            raise ScheduleBroken(unit, f"attempt {order.attempt} is made twice")
        if truth.is_made:
            raise ScheduleBroken(unit, "two attempts are being made at once")
        if order.near_is_good and not order.frames_are_gone and not truth.near_ok:
            raise ScheduleBroken(unit, "goes on from what is damaged or gone")
        if self._world.now < truth.full_until:
            raise ScheduleBroken(unit, "begins on a disk that is full")
        truth.newest, truth.is_made = order.attempt, True
        self._activate_somewhere(unit, order)

    def _activate_somewhere(self, unit: str, order: Restore) -> None:
        schedule, world = self._schedule, self._world
        if self.truths[unit].newest != order.attempt:
            return
        instance = schedule.current[unit]
        host = self._choose(unit, instance, instance.alive and not instance.frozen)
        if host is None:
            world.after(1.0, self._activate_somewhere, unit, order)
            return
        self.activate(unit, host, instance.epoch, order)
        if world.rng.random() < 0.1:
            # Repository away, network split: another supervisor decides the same.
            other = self._choose(unit, instance, True)
            if other is not None:
                schedule.probe("two_activations_at_once")
                # It read the directory now and may be slow to act on that.
                world.after(world.between(0.0, 2.0), self.activate, unit, other, instance.epoch, order)
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

    def activate(self, unit: str, host: Host, known_epoch: int, order: Restore) -> None:
        if not host.up or host.frozen:
            if not self.runs.get(unit):
                self._failed(unit, order.attempt)
            return
        self._count += 1
        near = order.near_is_good and not order.frames_are_gone
        claimant = f"{unit}~{self._count}"
        run = ActivationRun(self._schedule, unit, host, claimant, known_epoch, order.attempt, near)
        self.runs.setdefault(unit, []).append(run)
        self.by_claimant[run.claimant] = run
        self._schedule.activating(unit)
        run.begin()

    def can_start(self, run: ActivationRun, order: StartUnit) -> None:
        unit, life = run.unit, self.lives[run.unit]
        self.runs[unit].remove(run)
        if run.attempt == life.attempt and life.state is State.RESTORING:
            self._ready[unit] = (run, order)
            self.truths[unit].is_made = False
            self._happened(unit, Restored(self._world.now, run.attempt, order.near is None))
            return
        # Of a second supervisor, or of an attempt that slept: nobody asks for it any more, and it starts all the same.
        self._attempt_of[unit, order.epoch] = life.attempt if life.is_up else _NOBODYS
        self._schedule.start_unit(run, order)
        self._adopt(unit)

    def _start(self, unit: str, attempt: int, told: PutBack | Announce | None) -> None:
        run, order = self._ready.pop(unit)
        truth = self.truths[unit]
        truth.near_ok = True
        self._attempt_of[unit, order.epoch] = attempt
        self._schedule.start_unit(run, order)
        started = self._schedule.instances[unit, order.epoch].machine.processed
        if told is not None:
            truth.told = max(truth.told, started)
        self._happened(unit, Started(self._world.now, attempt))
        self._adopt(unit)

    def _adopt(self, unit: str) -> None:
        """Of two instances the epoch decides which is the unit; the other one is refused sooner or later."""
        current, life, truth = self._schedule.current[unit], self.lives[unit], self.truths[unit]
        if life.is_up and self._attempt_of.get(current.address) != life.attempt:
            self._attempt_of[current.address] = life.attempt
        if life.is_up and life.attempt not in truth.disowned and len(self._of(unit, life.attempt)) > 1:
            truth.told = max(truth.told, current.machine.processed)

    def _of(self, unit: str, attempt: int) -> list[tuple[str, int]]:
        return [address for address, number in self._attempt_of.items() if address[0] == unit and number == attempt]

    def _failed(self, unit: str, attempt: int) -> None:
        """Nobody makes the attempt any more."""
        life = self.lives[unit]
        if attempt == life.attempt and life.state is State.RESTORING:
            if not any(run.attempt == attempt for run in self.runs.get(unit, ())):
                frame = self._schedule.current[unit].machine.processed + 1
                cause = self._cause("failure", Remedy.RETRY)
                self.truths[unit].is_made = False
                self._happened(unit, AttemptFailed(self._world.now, attempt, frame, cause))

    def gave_way(self, run: ActivationRun) -> None:
        self.runs[run.unit].remove(run)
        self._world.after(self._world.between(0.2, 1.0), self._failed, run.unit, run.attempt)

    def host_gone(self, host: Host) -> None:
        for unit, runs in self.runs.items():
            for run in [r for r in runs if r.host is host]:
                run.alive = False
                runs.remove(run)
                self._world.after(self._world.between(0.5, 4.0), self._failed, unit, run.attempt)

    def host_frozen(self, host: Host) -> None:
        """A frozen attempt does not count as one; it may still wake and go on."""
        for unit, runs in self.runs.items():
            for run in [r for r in runs if r.host is host]:
                runs.remove(run)
                self._world.after(self._world.between(2.0, 5.0), self._failed, unit, run.attempt)

    def host_thawed(self, host: Host) -> None:
        for run in self.by_claimant.values():
            if run.host is host and run.alive:
                if run not in self.runs[run.unit]:
                    self.runs[run.unit].append(run)
                run.thaw()

    # ---- what the others are told of frames ---------------------------------------------

    def sealed(self, instance: Instance, frame: int) -> None:
        """A frame was committed: the board hears of it, unless the attempt was disowned."""
        unit = instance.unit
        truth = self.truths.get(unit)
        if truth is None or self._schedule.current[unit] is not instance:
            return
        attempt = self._attempt_of.get(instance.address, _NOBODYS)
        if attempt != truth.newest or attempt in truth.disowned:
            return
        if frame > truth.told + 1:
            raise ScheduleBroken(unit, f"frame {frame} is told of after {truth.told}: nobody heard of those between")
        truth.told = max(truth.told, frame)

    def skipped(self, instance: Instance, upto: int) -> None:
        """Frames that are LOST are sealed as such."""
        if self._schedule.current[instance.unit] is instance:
            truth = self.truths[instance.unit]
            truth.told = max(truth.told, upto)

    # ---- the calm end --------------------------------------------------------------------

    def at_rest(self) -> None:
        """Every life is that of a unit that runs, and every frame was told of."""
        for unit, life in self.lives.items():
            if life.state is not State.RUNNING:
                raise ScheduleBroken(unit, f"is {life.state.value} after the calm")
            processed, told = self._schedule.current[unit].machine.processed, self.truths[unit].told
            if told != processed:
                raise ScheduleBroken(unit, f"has committed frame {processed}, and the board knows of {told}")

    def stop(self) -> None:
        """A run that ends begins nothing, whatever it still hears."""
        for unit, life in self.lives.items():
            now = self._world.now
            heard = (
                Stopping(),
                QueryEnded(now, life.attempt, 1, self._cause("death", Remedy.RETRY)),
                Looked(now + 1000.0),
            )
            begun = [each for event in heard for each in life.handle(event)]
            if any(isinstance(each, Restore | Start | Probe) for each in begun):
                raise ScheduleBroken(unit, "is started again while the run stops")
