"""When a unit that died is started again, and when it is given up.

A death costs nothing that is sealed, so the answer to most is: start it again,
later each time, at a moment no two units share (jitter). Some deaths say more:

- the user's code raised on the same frame in the same way twice: it will do so a
  third time. The frame is blamed (`Blame`), and the operator's `on_error` decides.
- the same error on the same frame three times, nothing made in between: a fourth try
  meets it too. The unit is given up at once (`Futile`).
- more deaths within the window than there are tries: something is wrong that a
  restart does not cure. The unit is given up (`GiveUp`), the others go on.

What may be over by the next try (`passes`: a killed worker, the network, a lost host, a
lack of memory) is neither blamed nor futile before its tries are used up. Who raises the
event decides that, and what counts as the same error; here texts are only compared.

Deaths are forgotten by age and not by success: a unit that dies every third frame
makes progress and is ill all the same. Deaths whose rows were found and left out, as
the operator declares, do not count (`Cured`): bad rows are no illness of the unit.

Pure: no clock, thread or Spark; randomness is handed in. Driven by
`engine.recover.supervisor` and `engine.plain.supervise`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.graph.restarting import RestartPolicy

__all__ = ["Blame", "Cured", "Died", "Futile", "GiveUp", "Restart", "Restarts", "Stopped"]


@dataclass(frozen=True, slots=True)
class Died:  # event
    at_s: float
    frame: int  # the one it worked on
    error: str  # what distinguishes one error from another
    of_user: bool  # raised by the user's code; a killed worker is not
    passes: bool = False  # it may be over by the next try, whatever it says


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
class Futile:  # instruction: give it up now, the next try meets the same
    times: int


@dataclass(frozen=True, slots=True)
class GiveUp:  # instruction
    deaths: int


Instruction = Restart | Blame | Futile | GiveUp


class Restarts:
    """One unit's deaths. State changes only through `handle`."""

    def __init__(self, policy: RestartPolicy, chance: Callable[[], float]) -> None:
        self._policy, self._chance = policy, chance
        self._deaths: deque[float] = deque()  # that count
        self._last: tuple[int, str, bool] | None = None  # frame and error it died of last, and whether it is the user's
        self._times = 0  # that it died of it, with nothing else in between
        self._alike: deque[float] = deque()  # of those, the ones within the window
        self._counted = 0  # of those, the ones that count as deaths

    @property
    def tries(self) -> int:
        return self._policy.tries

    def handle(self, event: Died | Cured | Stopped) -> Instruction | None:
        match event:
            case Died():
                return self._died(event)
            case Cured():
                # Only now, and not when the frame is blamed: a search that fails each time must come to an end.
                for _ in range(min(self._counted, len(self._deaths))):
                    self._deaths.pop()
                self._forget_last()
                return None
            case Stopped():
                self._deaths.clear()
                self._forget_last()
                return None

    def _died(self, event: Died) -> Instruction:
        what = (event.frame, event.error, event.of_user)
        if what != self._last:
            self._forget_last()
        self._last = what
        self._times += 1
        self._alike.append(event.at_s)
        self._drop_old(self._alike, event.at_s)
        if not event.passes:
            if event.of_user and self._times > 1:
                return self._blame(event.frame)
            if not event.of_user and len(self._alike) >= self._policy.same:
                return Futile(len(self._alike))
        answer = self._count(event.at_s)
        if isinstance(answer, GiveUp) and event.of_user and self._times > 1:
            return self._blame(event.frame)  # it did not pass
        return answer

    def _blame(self, frame: int) -> Blame:
        self._last = None  # what follows is another story; what this one cost is known until then
        return Blame(frame)

    def _count(self, at_s: float) -> Restart | GiveUp:
        self._drop_old(self._deaths, at_s)
        self._deaths.append(at_s)
        self._counted += 1
        attempt = len(self._deaths)
        if attempt > self._policy.tries:
            return GiveUp(attempt)
        return Restart(at_s + self._policy.pause_s(attempt, self._chance()), attempt)

    def _drop_old(self, times: deque[float], now_s: float) -> None:
        while times and times[0] <= now_s - self._policy.window_s:
            times.popleft()

    def _forget_last(self) -> None:
        self._last, self._times, self._counted = None, 0, 0
        self._alike.clear()
