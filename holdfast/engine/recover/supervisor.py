"""The lives of a run's units: events go in, the board shows what came of it, instructions come out.

`protocols.lifecycle` decides; here its machines, one per unit, get a clock, an order and words. Every event
passes through `handle`, under the board's lock, and what others see of a unit (`UnitState.condition`, `trouble`,
`restarts`) is written there and nowhere else. What is to be done is handed to `engine.recover.attempts`.

A unit that is given up keeps everything: its state, the frames it has not taken (a
source's log or files keep them), its place in every queue. The streams it makes stand
still, and with them the units below. All others go on; a new run takes it up again.

No Spark and no clock of its own: time and chance are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from holdfast.engine.flow.scheduler import Board
from holdfast.engine.unit.passing import same_words
from holdfast.engine.unit.spark_errors import same_again
from holdfast.errors import Broken, FrameDiffers, HoldfastError, OperatorError, Remedy
from holdfast.graph.durations import show_ms
from holdfast.graph.restarting import Supervision
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.lifecycle import Cause, LeaveOut, LeftOut, Life, LifeEvent, LifeInstruction, Note

__all__ = ["Met", "Supervisor", "cause_of"]


@dataclass(frozen=True, slots=True)
class Met:
    unit: str
    frame: int
    error: HoldfastError


@dataclass(slots=True)
class _Progress:
    seen: int  # processed when last looked
    moved_s: float  # when it last moved or had nothing to do


def cause_of(error: HoldfastError) -> Cause:
    """An error as the machines know it."""
    return Cause(
        same_words(f"{error.code} {error.what}"),
        error.remedy,
        of_user=isinstance(error, OperatorError),
        passes=error.may_pass,
        # A file is missing or cannot be read.
        doubtful=error.remedy in (Remedy.RESTORE, Remedy.REMAKE) or isinstance(error, FrameDiffers),
        error=error,
    )


class Supervisor:
    life_type = Life

    def __init__(
        self, board: Board, supervision: Supervision, *, now: Callable[[], float], chance: Callable[[], float]
    ) -> None:
        self._board, self._supervision, self.now, self._chance = board, supervision, now, chance
        self._lives: dict[str, Life] = {}
        self._progress: dict[str, _Progress] = {}
        self._can_restore: Mapping[str, bool] = {}
        self._given_up: dict[str, HoldfastError] = {}
        self._last_met: Met | None = None

    def protect(self, can_restore: Mapping[str, bool]) -> None:
        """Before a life begins: these units live on hosts, and of those that are True backups are kept."""
        self._can_restore = dict(can_restore)

    def can_restore(self, unit: str) -> bool:
        return self._can_restore.get(unit, False)

    def life(self, unit: str) -> Life:
        if unit not in self._lives:
            self._lives[unit] = self.life_type(
                unit,
                self._supervision.policy,
                self._chance,
                has_host=unit in self._can_restore,
                can_restore=self.can_restore(unit),
            )
        return self._lives[unit]

    def handle(self, unit: str, event: LifeEvent) -> list[LifeInstruction]:
        """One event after the other, of all units; what is to be done about it."""
        with self._board.changed:
            life = self.life(unit)
            was_up = life.is_up
            try:
                instructions = life.handle(event)
            except BrokenInvariant as broken:
                raise Broken(
                    "HF-X001",
                    "Broken",
                    str(broken),
                    effect="the run stops here; sealed frames and sink tables are as they were",
                    do="this is a defect of Holdfast: report it with this text",
                ) from broken
            for each in instructions:
                self._hear(unit, each)
            if life.is_up and not was_up:
                self._progress.pop(unit, None)
            self._tell(unit)
            return instructions

    def _hear(self, unit: str, instruction: LifeInstruction) -> None:
        """What is to be known of it whoever carries it out."""
        if isinstance(instruction, Note | LeaveOut) and (error := instruction.cause.error) is not None:
            if isinstance(instruction, LeaveOut):
                if instruction.same:
                    error = same_again(unit, instruction.frame, error, instruction.same)
                self._given_up[unit] = error
            self._last_met = Met(unit, instruction.frame, error)
        if isinstance(instruction, LeaveOut):
            before = {*self._board.left_out}
            self._board.leave_out(unit)
            for below in self._board.left_out - before:
                self.life(below).handle(LeftOut())

    def stalled(self, unit: str) -> float | None:
        """Seconds its frame has been in work, once that is longer than declared."""
        with self._board.changed:
            state, now_s = self._board.units[unit], self.now()
            if not self.life(unit).is_up:
                return None
            progress = self._progress.setdefault(unit, _Progress(-1, now_s))
            if state.processed != progress.seen or state.permitted <= state.processed:
                progress.seen, progress.moved_s = state.processed, now_s
            passed_s = now_s - progress.moved_s
            return passed_s if passed_s > self._supervision.stalled_s else None

    # ---- what can be said ----

    @property
    def is_working(self) -> bool:
        """A unit is being restarted or looked into: the run is not over."""
        return any(life.condition in ("RESTARTING", "PROBING") for life in self._lives.values())

    @property
    def degraded_since_s(self) -> float | None:
        ill = [life.since_s for life in self._lives.values() if life.is_dead and life.since_s is not None]
        return min(ill, default=None)

    @property
    def last_met(self) -> Met | None:
        """The last thing any unit met, even if it passed."""
        return self._last_met

    def given_up_error(self, units: Iterable[str] | None = None) -> HoldfastError | None:
        wanted = self._lives if units is None else units
        return next((self._given_up[unit] for unit in wanted if unit in self._given_up), None)

    def is_dead(self, unit: str) -> bool:
        return self.life(unit).is_dead

    def _tell(self, unit: str) -> None:
        """Put it on the board, for status and permits."""
        life, state = self._lives[unit], self._board.units[unit]
        state.condition, state.restarts = life.condition, life.restarts
        state.trouble = self._words(life)

    def _words(self, life: Life) -> str:
        if not life.is_dead or life.cause is None or life.cause.error is None:
            return ""
        error = self._given_up.get(life.unit, life.cause.error)
        what = error.what.rstrip(".")
        if life.cause.remedy is Remedy.WAIT and life.condition == "RESTARTING":
            return f"{what}; goes on when there is room"
        match life.condition:
            case "RESTARTING":
                wait_s = 0.0 if life.due_s is None else max(0.0, life.due_s - self.now())
                when = f"next in {show_ms(round(wait_s * 1000))}" if wait_s >= 0.001 else "now"
                return f"{what}; try {life.tries} of {life.tries_max}, {when}"
            case "PROBING":
                return f"{what}; looking for the rows that do it"
            case _:
                return f"{what}; given up after {life.restarts} restarts"
