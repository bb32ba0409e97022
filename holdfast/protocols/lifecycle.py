"""The life of a unit: one machine, one table, whatever happens to the unit and whoever drives it.

    STARTING   an attempt is put on its feet      DOWN       dead; it is restarted when that is due
    RUNNING    its query works                    RESTORING  its folder is made that of the next attempt
    SUSPECT    its query ended over a file that   PROBING    rows are sought on which the user's code raises
               is not there: perhaps its host     GIVEN_UP   it stands still for the rest of the run
               is lost, and a moment will tell

Promised:

- A death counts once. Events name the attempt they are about, and what an attempt does or meets that was
  replaced is no news. A loss of a host has a number, its life, and is one death however many threads, files and
  queries notice it. A unit that is down cannot die; a loss then changes only from where it is restored.
- An attempt that was disowned makes nothing fact. Each is disowned before its streams are lost or another is made.
- At most one attempt is being made. A loss that comes meanwhile is kept, and told when the attempt reports.
- What is damaged stays damaged until a restore has replaced it: a restore that fails does not make it good.
- What an attempt committed is announced by the next one, also if the first died before it could (`Announce`).
- After `Stopping` nothing is begun.

Deaths are counted by `protocols.restarts`; `Remedy` of an error says which of them are tried again at all.

Pure: no clock, thread, file or Spark; time comes inside events, chance is handed in. Driven by
`engine.recover.supervisor` and by `simulation.supervision`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import assert_never

from holdfast.errors import Remedy
from holdfast.graph.restarting import RestartPolicy
from holdfast.protocols import restarts
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.life_words import (
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
    LeftOut,
    LifeEvent,
    LifeInstruction,
    Looked,
    LoseStreams,
    NotCured,
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

__all__ = [
    "DOUBT_S",
    "EVENTS",
    "ROOM_S",
    "TABLE",
    "Abandon",
    "Announce",
    "AskMaker",
    "AttemptFailed",
    "Cause",
    "Cured",
    "Disown",
    "EndRun",
    "FrameUnreadable",
    "HostLost",
    "InputGone",
    "LeaveOut",
    "LeftOut",
    "Life",
    "LifeEvent",
    "LifeInstruction",
    "Looked",
    "LoseStreams",
    "NotCured",
    "Note",
    "Probe",
    "ProbeFailed",
    "PutBack",
    "QueryEnded",
    "RenewalWanted",
    "Restore",
    "Restored",
    "Stalled",
    "Start",
    "Started",
    "State",
    "Stopping",
    "Wake",
]

# Deleting a host's folder takes a moment, and its mark need not be the first to go.
DOUBT_S = 2.0
# Between two looks whether a disk that was full has room again.
ROOM_S = 1.0
# Events that an error of a broken invariant tells of; a death and its restore are eight.
_STORY = 24


class Life:
    """One unit. State changes only through `handle`."""

    policy_type = restarts.Restarts

    def __init__(
        self,
        unit: str,
        policy: RestartPolicy,
        chance: Callable[[], float],
        *,
        has_host: bool = False,
        can_restore: bool = False,
    ) -> None:
        """`has_host`: it lives on a host that may be lost. `can_restore`: backups of it are kept."""
        self.unit, self._has_host, self._can_restore = unit, has_host, can_restore
        self._policy = self.policy_type(policy, chance)
        self.state = State.STARTING
        self.attempt = 0
        self.tries = 0  # that the policy counted when it died last
        self.restarts = 0  # that followed a death
        self.cause: Cause | None = None  # what it is ill of
        self.since_s: float | None = None  # when it fell ill
        self.due_s: float | None = None  # when a restart is to begin
        self._frame = 0  # it was at when it fell ill
        self._near_is_good, self._frames_are_gone = True, False
        self._loss: HostLost | None = None  # that came while an attempt was being made
        self._lives_lost = -1  # the last life of its host that is known to have ended
        self._complaints: dict[str, tuple[float, float]] = {}  # reader of a frame it cannot read -> since, until
        self._is_left_out = self._is_stopping = False
        self._story: deque[tuple[State, LifeEvent]] = deque(maxlen=_STORY)

    # ---- what can be asked ----

    @property
    def tries_max(self) -> int:
        return self._policy.tries

    @property
    def condition(self) -> str:
        """As others see it: RUNNING, RESTARTING, PROBING or GIVEN_UP."""
        match self.state:
            case State.RUNNING | State.SUSPECT:
                return "RUNNING"
            case State.STARTING if self.attempt == 0:
                return "RUNNING"
            case State.STARTING | State.DOWN | State.RESTORING:
                return "RESTARTING"
            case State.PROBING | State.GIVEN_UP:
                return self.state.value
            case _:
                assert_never(self.state)

    @property
    def is_up(self) -> bool:
        """Its query is expected to work: it is worth a look."""
        return self.state is State.RUNNING

    @property
    def is_dead(self) -> bool:
        """It is known that it makes nothing now."""
        return self.condition != "RUNNING"

    @property
    def story(self) -> tuple[str, ...]:
        """What happened last, oldest first."""
        return tuple(f"{state.value} {event}" for state, event in self._story)

    # ---- what happens ----

    def handle(self, event: LifeEvent) -> list[LifeInstruction]:
        self._story.append((self.state, event))
        if (attempt := getattr(event, "attempt", self.attempt)) != self.attempt:
            self._invariant(attempt < self.attempt, f"attempt {attempt} was never made")
            return []  # of one that was replaced
        answer: Callable[[LifeEvent], list[LifeInstruction]] = getattr(self, TABLE[type(event)][self.state])
        out = answer(event)
        if not out and isinstance(event, Looked):
            self._story.pop()  # time passes all the time, and is no news
        return out

    def _pass(self, event: LifeEvent) -> list[LifeInstruction]:
        return []

    def _never(self, event: LifeEvent) -> list[LifeInstruction]:
        self._invariant(False, f"{type(event).__name__} while {self.state.value}")
        return []

    def _invariant(self, holds: bool, what: str) -> None:
        if not holds:
            told = "\n  ".join(self.story)
            raise BrokenInvariant(f"the life of unit {self.unit!r}: {what}. Its recent events:\n  {told}")

    # ---- of a query ----

    def _starts(self, event: Started) -> list[LifeInstruction]:
        if self._loss is not None:
            return [Disown(self.attempt), *self._die_of_loss(event.at_s)]
        self.restarts += self.cause is not None  # not when it was only renewed
        self.cause = self.since_s = None
        self.state = State.RUNNING
        return []

    def _ends(self, event: QueryEnded | Stalled) -> list[LifeInstruction]:
        if event.cause.doubtful and self._has_host:
            self.state = State.SUSPECT
            self._fell_ill(event.at_s, event.frame, event.cause)
            if event.cause.remedy is Remedy.REMAKE:
                return [AskMaker(event.frame, event.cause), Wake(event.at_s + ROOM_S)]
            return [Wake(event.at_s + DOUBT_S)]
        return self._die(event.at_s, event.frame, event.cause)

    def _doubts(self, event: Looked) -> list[LifeInstruction]:
        cause = self._known_cause()
        if cause.remedy is Remedy.REMAKE:  # again and again: the one that made it has its doubts, too
            return [AskMaker(self._frame, cause), Wake(event.at_s + ROOM_S)]
        return self._die(event.at_s, self._frame, cause) if self._has_doubted(event.at_s) else []

    def _has_doubted(self, at_s: float) -> bool:
        return self.since_s is not None and at_s >= self.since_s + DOUBT_S

    def _has_no_input(self, event: InputGone) -> list[LifeInstruction]:
        cause = self._known_cause()
        is_told = cause.remedy is Remedy.REMAKE and self._has_doubted(event.at_s)
        return self._give_up(self._frame, cause) if is_told else []

    def _renews(self, event: RenewalWanted) -> list[LifeInstruction]:
        if self.cause is not None and self.cause.remedy is not Remedy.REMAKE:
            return []  # it has troubles of its own, and they are seen to first
        self.cause = self.since_s = None
        self._go_down(event.at_s)
        return [Disown(self.attempt), Wake(event.at_s)]

    def _is_complained_of(self, event: FrameUnreadable) -> list[LifeInstruction]:
        since_s, until_s = self._complaints.get(event.reader, (event.at_s, event.at_s))
        if event.at_s - until_s > DOUBT_S:
            since_s = event.at_s  # it is another frame: the one before came right
        self._complaints[event.reader] = (since_s, event.at_s)
        if event.at_s < since_s + DOUBT_S:
            return []
        self._frames_are_gone = True
        return [Disown(self.attempt), LoseStreams(), *self._try_again(event.at_s, event.frame, event.cause)]

    # ---- of a host ----

    def _loses_host(self, event: HostLost) -> list[LifeInstruction]:
        if not self._is_new(event):
            return []
        return [Disown(self.attempt), LoseStreams(), *self._try_again(event.at_s, event.frame, event.cause)]

    def _loses_host_when_down(self, event: HostLost) -> list[LifeInstruction]:
        if not self._is_new(event):
            return []
        self._fell_ill(event.at_s, event.frame, event.cause)
        return [Disown(self.attempt), LoseStreams(), Note(event.frame, event.cause, self.tries)]

    def _loses_host_meanwhile(self, event: HostLost) -> list[LifeInstruction]:
        if not self._is_new(event):
            return []
        self._loss = event
        return [LoseStreams()]

    def _loses_streams(self, event: HostLost) -> list[LifeInstruction]:
        return [LoseStreams()] if self._is_new(event) else []

    def _is_new(self, event: HostLost) -> bool:
        if event.life <= self._lives_lost:
            return False
        self._lives_lost, self._near_is_good = event.life, False
        return True

    def _die_of_loss(self, at_s: float) -> list[LifeInstruction]:
        loss, self._loss = self._loss, None
        if loss is None:
            return self._never(Looked(at_s))
        return self._try_again(at_s, loss.frame, loss.cause)

    # ---- of a restart ----

    def _comes_due(self, event: Looked) -> list[LifeInstruction]:
        if self._is_stopping or self.due_s is None or event.at_s < self.due_s:
            return []
        if not event.has_room and self.cause is not None and self.cause.remedy is Remedy.WAIT:
            return [Wake(event.at_s + ROOM_S)]
        old, self.attempt = self.attempt, self.attempt + 1
        self.state, self.due_s = State.RESTORING, None
        return [Abandon(old), Restore(self.attempt, self._near_is_good, self._frames_are_gone)]

    def _is_restored(self, event: Restored) -> list[LifeInstruction]:
        if self._loss is not None:
            return self._die_of_loss(event.at_s)
        self._near_is_good, self._frames_are_gone = True, False
        if self._is_stopping:
            self.state = State.DOWN
            return []
        self.state = State.STARTING
        tell = PutBack(self.attempt) if event.from_backup else Announce(self.attempt)
        return [tell, Start(self.attempt)]

    def _fails(self, event: AttemptFailed) -> list[LifeInstruction]:
        if self._loss is not None:
            return self._die_of_loss(event.at_s)
        return self._die(event.at_s, event.frame, event.cause)

    # ---- of a search for rows ----

    def _is_cured(self, event: Cured) -> list[LifeInstruction]:
        self._policy.handle(restarts.Cured())
        self._go_down(event.at_s)
        return [Wake(event.at_s)]

    def _is_not_cured(self, event: NotCured) -> list[LifeInstruction]:
        return self._give_up(event.frame, self._known_cause())

    def _cannot_be_probed(self, event: ProbeFailed) -> list[LifeInstruction]:
        return self._die(event.at_s, event.frame, event.cause)

    # ---- of a run ----

    def _is_below_one_given_up(self, event: LeftOut) -> list[LifeInstruction]:
        self._is_left_out = True
        return []

    def _stops(self, event: Stopping) -> list[LifeInstruction]:
        self._is_stopping = True
        return []

    # ---- deaths ----

    def _known_cause(self) -> Cause:
        if self.cause is None:
            raise BrokenInvariant(f"unit {self.unit!r} is {self.state.value} for no reason: {'; '.join(self.story)}")
        return self.cause

    def _fell_ill(self, at_s: float, frame: int, cause: Cause) -> None:
        if self.since_s is None:
            self.since_s = at_s
        self.cause, self._frame = cause, frame

    def _die(self, at_s: float, frame: int, cause: Cause) -> list[LifeInstruction]:
        """Of what its query or the making of an attempt ended with."""
        match cause.remedy:
            case Remedy.RETRY:
                return self._try_again(at_s, frame, cause)
            case Remedy.RESTORE if self._can_restore:
                self._near_is_good = False
                return self._try_again(at_s, frame, cause)
            case Remedy.WAIT:
                self._fell_ill(at_s, frame, cause)
                return self._plan(at_s + ROOM_S)
            case Remedy.RESTORE | Remedy.REMAKE | Remedy.GIVE_UP:  # no backup, or nobody to ask
                self._fell_ill(at_s, frame, cause)
                return self._give_up(frame, cause)
            case Remedy.END:
                self._fell_ill(at_s, frame, cause)
                self.state, self.due_s = State.DOWN, None
                return [EndRun(cause)]
            case _:
                assert_never(cause.remedy)

    def _try_again(self, at_s: float, frame: int, cause: Cause) -> list[LifeInstruction]:
        self._fell_ill(at_s, frame, cause)
        if self._is_left_out:
            return self._give_up(frame, cause)
        answer = self._policy.handle(restarts.Died(at_s, frame, cause.words, cause.of_user, cause.passes))
        match answer:
            case restarts.Restart(due_s, tries):
                self.tries = tries
                return self._plan(due_s)
            case restarts.Blame(blamed):
                self.state, self.due_s = State.PROBING, None
                self._complaints.clear()
                told = Note(frame, cause, self.tries)
                return [told] if self._is_stopping else [told, Probe(self.attempt, blamed)]
            case restarts.Futile(times):
                return self._give_up(frame, cause, times)
            case restarts.GiveUp():
                return self._give_up(frame, cause)
            case None:
                return self._never(LeftOut())
            case _:
                assert_never(answer)

    def _plan(self, due_s: float) -> list[LifeInstruction]:
        self._go_down(due_s)
        return [Note(self._frame, self._known_cause(), self.tries), Wake(due_s)]

    def _go_down(self, due_s: float) -> None:
        self.state, self.due_s = State.DOWN, due_s
        self._complaints.clear()

    def _give_up(self, frame: int, cause: Cause, same: int = 0) -> list[LifeInstruction]:
        self.state, self.due_s = State.GIVEN_UP, None
        return [LeaveOut(frame, cause, self.tries, same)]


EVENTS: tuple[type, ...] = LifeEvent.__args__
"""All kinds of events."""


def _row(otherwise: str, **answers: str) -> dict[State, str]:
    return {state: answers.get(state.name, otherwise) for state in State}


TABLE: dict[type, dict[State, str]] = {
    Started: _row("_never", STARTING="_starts"),
    # An attempt that ends while it is started is looked at again once it is.
    QueryEnded: _row("_pass", RUNNING="_ends"),
    Stalled: _row("_pass", RUNNING="_ends"),
    HostLost: _row(
        "_loses_host",
        STARTING="_loses_host_meanwhile",
        RESTORING="_loses_host_meanwhile",
        DOWN="_loses_host_when_down",
        GIVEN_UP="_loses_streams",
    ),
    # One that is on its way back brings its frames with it.
    FrameUnreadable: _row("_pass", RUNNING="_is_complained_of"),
    RenewalWanted: _row("_pass", RUNNING="_renews", SUSPECT="_renews"),
    InputGone: _row("_pass", SUSPECT="_has_no_input"),
    Looked: _row("_pass", SUSPECT="_doubts", DOWN="_comes_due"),
    Restored: _row("_never", RESTORING="_is_restored"),
    AttemptFailed: _row("_never", RESTORING="_fails", STARTING="_fails"),
    # A search may end after a loss of the host has made it void.
    Cured: _row("_pass", PROBING="_is_cured"),
    NotCured: _row("_pass", PROBING="_is_not_cured"),
    ProbeFailed: _row("_pass", PROBING="_cannot_be_probed"),
    LeftOut: _row("_is_below_one_given_up"),
    Stopping: _row("_stops"),
}
"""For every kind of event, the part of `Life` by which each state answers."""
