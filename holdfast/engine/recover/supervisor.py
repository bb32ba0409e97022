"""Takes care of the units of a run: sees that one died or stalls, restarts it, blames a frame, gives it up.

`protocols.restarts` decides; here its decisions get a unit, a moment and words. What
is to be done is handed out (`due`, `to_probe`) and done by the run, in threads of its
own, so that one unit's trouble never keeps the others waiting.

A unit that is given up keeps everything: its state, the frames it has not taken (a
source's log or files keep them), its place in every queue. The streams it makes stand
still, and with them the units below. All others go on; a new run takes it up again.

No Spark and no clock of its own: time and chance are handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from holdfast.engine.flow.disks import FULL
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.unit.passing import same_words
from holdfast.engine.unit.spark_errors import same_again
from holdfast.errors import HoldfastError, OperatorError
from holdfast.graph.durations import show_ms
from holdfast.graph.restarting import Supervision
from holdfast.protocols.restarts import Blame, Cured, Died, Futile, GiveUp, Restart, Restarts

__all__ = ["Care", "Met", "Supervisor"]

# Between two looks whether a disk that was full has room again.
_ROOM_S = 1.0
# A stall, a killed worker, a lost host, damaged files that a backup replaces: the next try may fare better.
_PASSES = frozenset({"HF-U032", "HF-U033", "HF-U034", "HF-U035", "HF-U036"})
# What we found wrong ourselves comes out the same, and is not tried again; this we cannot know.
_TRIED = _PASSES | {"HF-O001", "HF-U031", "HF-U090"}


@dataclass
class Care:
    """What is known of one unit's health."""

    machine: Restarts
    condition: str = "RUNNING"  # | RESTARTING | PROBING | GIVEN_UP
    since_s: float = 0.0
    due_s: float | None = None  # when a restart is to begin; None: none is planned, or it has begun
    attempt: int = 0
    restarts: int = 0
    error: HoldfastError | None = None  # the last one
    seen: int = -1  # processed when last looked
    moved_s: float = 0.0  # when it last moved or had nothing to do


@dataclass(frozen=True, slots=True)
class Met:
    unit: str
    frame: int
    error: HoldfastError


class Supervisor:
    def __init__(
        self, board: Board, supervision: Supervision, *, now: Callable[[], float], chance: Callable[[], float]
    ) -> None:
        self._board, self._supervision, self._now, self._chance = board, supervision, now, chance
        self._cares: dict[str, Care] = {}
        self._to_probe: list[tuple[str, int]] = []
        self._last_met: Met | None = None

    def care(self, unit: str) -> Care:
        if unit not in self._cares:
            self._cares[unit] = Care(Restarts(self._supervision.policy, self._chance), moved_s=self._now())
        return self._cares[unit]

    # ---- what happened ----

    def died(self, unit: str, frame: int, error: HoldfastError) -> None:
        """Its query ended. Sets when it is tried again, or gives it up."""
        with self._board.changed:
            care = self.care(unit)
            now = self._now()
            care.error = error
            self._last_met = Met(unit, frame, error)
            if care.condition == "RUNNING":
                care.since_s = now
            if error.code == FULL:  # nothing is wrong with it: it goes on when there is room, however long that takes
                care.condition, care.due_s = "RESTARTING", now + _ROOM_S
                self._tell(unit)
                return
            # Below one that was given up there is nothing to be gained, and what it would need may be gone.
            if error.code not in _TRIED or unit in self._board.left_out:
                self._give_up(unit)
                return
            of_user, passes = isinstance(error, OperatorError), error.may_pass or error.code in _PASSES
            answer = care.machine.handle(Died(now, frame, same_words(f"{error.code} {error.what}"), of_user, passes))
            match answer:
                case Restart(at_s, attempt):
                    care.condition, care.due_s, care.attempt = "RESTARTING", at_s, attempt
                case Blame(blamed):
                    care.condition, care.due_s = "PROBING", None
                    self._to_probe.append((unit, blamed))
                case Futile(times):
                    care.error = same_again(unit, frame, error, times)
                    self._last_met = Met(unit, frame, care.error)
                    self._give_up(unit)
                case GiveUp():
                    self._give_up(unit)
                case _:
                    assert_never(answer)
            self._tell(unit)

    def restarted(self, unit: str) -> None:
        with self._board.changed:
            care = self.care(unit)
            care.condition, care.due_s = "RUNNING", None
            care.restarts += care.error is not None  # not when it was only renewed
            care.seen, care.moved_s = -1, self._now()
            self._tell(unit)

    def restart_at_once(self, unit: str) -> None:
        """The cause is known and removed: no try is counted."""
        with self._board.changed:
            care = self.care(unit)
            care.machine.handle(Cured())
            care.condition, care.due_s = "RESTARTING", self._now()
            self._tell(unit)

    def renew(self, unit: str) -> None:
        """Nothing is wrong: it goes on with a new query, since a parameter changed or what it reads is made again."""
        with self._board.changed:
            care = self.care(unit)
            care.condition, care.due_s, care.error = "RESTARTING", self._now(), None
            self._tell(unit)

    def give_up(self, unit: str) -> None:
        with self._board.changed:
            self._give_up(unit)

    # ---- what is to be done ----

    def due(self) -> list[str]:
        """Units whose restart begins now; each is named once."""
        with self._board.changed:
            now = self._now()
            found = [name for name, care in self._cares.items() if care.due_s is not None and care.due_s <= now]
            if self._board.held_for_space:
                found = [name for name in found if (error := self._cares[name].error) is None or error.code != FULL]
            for name in found:
                self._cares[name].due_s = None
            for name in self._cares:
                self._tell(name)
            return found

    def to_probe(self) -> list[tuple[str, int]]:
        """Units and the frame on which the user's code raised twice; each is named once."""
        with self._board.changed:
            found, self._to_probe = self._to_probe, []
            return found

    def stalled(self, unit: str) -> float | None:
        """Seconds its frame has been in work, once that is longer than declared."""
        with self._board.changed:
            care, state, now = self.care(unit), self._board.units[unit], self._now()
            if care.condition != "RUNNING":
                return None
            if state.processed != care.seen or state.permitted <= state.processed:
                care.seen, care.moved_s = state.processed, now
            passed = now - care.moved_s
            return passed if passed > self._supervision.stalled_s else None

    # ---- what can be said ----

    @property
    def is_working(self) -> bool:
        """A unit is being restarted or looked into: the run is not over."""
        return any(care.condition in ("RESTARTING", "PROBING") for care in self._cares.values())

    @property
    def degraded_since_s(self) -> float | None:
        ill = [care.since_s for care in self._cares.values() if care.condition != "RUNNING" and care.error is not None]
        return min(ill, default=None)

    @property
    def last_met(self) -> Met | None:
        """The last thing any unit met, even if it passed."""
        return self._last_met

    def given_up_error(self) -> HoldfastError | None:
        return next((care.error for care in self._cares.values() if care.condition == "GIVEN_UP"), None)

    def is_dead(self, unit: str) -> bool:
        return self.care(unit).condition != "RUNNING"

    def _give_up(self, unit: str) -> None:
        care = self.care(unit)
        care.condition, care.due_s = "GIVEN_UP", None
        self._board.leave_out(unit)
        self._tell(unit)

    def _tell(self, unit: str) -> None:
        """Put it on the board, for status and permits."""
        care, state = self._cares[unit], self._board.units[unit]
        state.condition, state.restarts = care.condition, care.restarts
        state.trouble = self._words(care)

    def _words(self, care: Care) -> str:
        if care.condition == "RUNNING" or care.error is None:
            return ""
        what = care.error.what.rstrip(".")
        if care.error.code == FULL and care.condition == "RESTARTING":
            return f"{what}; goes on when there is room"
        match care.condition:
            case "RESTARTING":
                wait_s = 0.0 if care.due_s is None else max(0.0, care.due_s - self._now())
                when = f"next in {show_ms(round(wait_s * 1000))}" if wait_s >= 0.001 else "now"
                return f"{what}; try {care.attempt} of {care.machine.tries}, {when}"
            case "PROBING":
                return f"{what}; looking for the rows that do it"
            case _:
                return f"{what}; given up after {care.restarts} restarts"
