"""When a unit that died is started again, and when it is given up.

A death costs nothing that is sealed, so the answer to most is: start it again,
later each time, at a moment no two units share (jitter). Two deaths say more:

- the user's code raised on the same frame in the same way twice: it will do so a
  third time. The frame is blamed (`Blame`), and the operator's `on_error` decides.
- more deaths within the window than there are tries: something is wrong that a
  restart does not mend. The unit is given up (`GiveUp`), the others go on.

Deaths are forgotten by age and not by success: a unit that dies every third frame
makes progress and is ill all the same. A death whose rows were found and left out, as
the operator declares, does not count (`Cured`): bad rows are no illness of the unit.

Pure: no clock, thread or Spark; randomness is handed in. Driven by
`engine.supervisor` and `engine.supervise`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Blame", "Cured", "Died", "GiveUp", "Restart", "RestartPolicy", "Restarts", "Stopped"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    tries: int = 8  # restarts within the window; one death more gives the unit up
    first_s: float = 0.25
    longest_s: float = 30.0
    window_s: float = 600.0
    jitter: float = 0.5  # at most this part of a pause is left out

    def pause_s(self, attempt: int, chance: float) -> float:
        """Before restart number `attempt` (from 1); `chance` in [0, 1)."""
        whole = min(self.longest_s, self.first_s * 2.0 ** (attempt - 1))
        return whole * (1.0 - self.jitter * chance)


@dataclass(frozen=True, slots=True)
class Died:  # event
    at_s: float
    frame: int  # the one it worked on
    error: str  # what distinguishes one error from another
    of_user: bool  # raised by the user's code; a killed worker is not


@dataclass(frozen=True, slots=True)
class Cured:  # event: what it died of last was found and left out
    pass


@dataclass(frozen=True, slots=True)
class Stopped:  # event: it was asked to; what is planned is off
    pass


@dataclass(frozen=True, slots=True)
class Restart:  # instruction
    at_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class Blame:  # instruction: the same frame twice, it is the user's
    frame: int


@dataclass(frozen=True, slots=True)
class GiveUp:  # instruction
    deaths: int


Instruction = Restart | Blame | GiveUp


class Restarts:
    """One unit's deaths. State changes only through `handle`."""

    def __init__(self, policy: RestartPolicy, chance: Callable[[], float]) -> None:
        self._policy, self._chance = policy, chance
        self._deaths: deque[float] = deque()
        self._last: tuple[int, str] | None = None  # frame and error the user's code raised last

    @property
    def tries(self) -> int:
        return self._policy.tries

    def handle(self, event: Died | Cured | Stopped) -> Instruction | None:
        match event:
            case Died(at_s, frame, error, of_user):
                if of_user and self._last == (frame, error):
                    self._last = None
                    return Blame(frame)
                self._last = (frame, error) if of_user else None
                return self._count(at_s)
            case Cured():
                # Only now, and not when the frame is blamed: a search that fails each time must come to an end.
                if self._deaths:
                    self._deaths.pop()
                return None
            case Stopped():
                self._deaths.clear()
                self._last = None
                return None

    def _count(self, at_s: float) -> Instruction:
        while self._deaths and self._deaths[0] <= at_s - self._policy.window_s:
            self._deaths.popleft()
        self._deaths.append(at_s)
        attempt = len(self._deaths)
        if attempt > self._policy.tries:
            return GiveUp(attempt)
        return Restart(at_s + self._policy.pause_s(attempt, self._chance()), attempt)
