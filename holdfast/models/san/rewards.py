"""What is measured: rate rewards, impulse rewards, and over which time.

A *rate reward* is a function of the marking: what is earned per unit of time, or is the case, in
that marking. An *impulse reward* is earned by each completion of an activity: a number, or a
function of the marking in which the activity completes, before anything is taken. A reward may
have both. Over what it is taken:

| `over=` | value |
|---|---|
| `Average(start, end)` | what was earned in (start, end], per unit of time |
| `Total(start, end)` | what was earned in (start, end] |
| `At(time)` | the rate in the marking at that time, after all that completes at it; no impulses |
| `Steady()` | the rate, plus impulses per unit of time, in the long run; by the exact solver alone |

Completions at time 0, on the way to the first stable marking, lie before every interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import UsageError

__all__ = ["At", "Average", "Over", "Reward", "Steady", "Total", "check_rewards", "makes_no_sense"]


def makes_no_sense(what: str, why: str, do: str) -> UsageError:
    return UsageError("HF-N009", "RewardMakesNoSense", what, why=why, effect="nothing was solved", do=do)


@dataclass(frozen=True, slots=True)
class Total:
    """What was earned in (start, end]."""

    start: float
    end: float

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end < float("inf"):
            raise makes_no_sense(
                f"an interval from {self.start!r} to {self.end!r}.",
                "0 <= start < end is needed",
                "for the long run use Steady() with the exact solver",
            )


class Average(Total):
    """What was earned in (start, end], divided by its length."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class At:
    """The rate at one moment."""

    time: float

    def __post_init__(self) -> None:
        if not 0 <= self.time < float("inf"):
            raise makes_no_sense(
                f"a reward at time {self.time!r}.", "time begins at 0", "for the long run use Steady()"
            )


@dataclass(frozen=True, slots=True)
class Steady:
    """In the long run."""


Over = Total | At | Steady


@dataclass(frozen=True, slots=True)
class Reward:
    """`rate(m)` per unit of time, and `impulse[activity]` at each of its completions."""

    name: str
    rate: Callable[[Any], float] | None = None
    impulse: Mapping[str, float | Callable[[Any], float]] = field(default_factory=dict)
    over: Over = field(default_factory=Steady)

    def __post_init__(self) -> None:
        if self.rate is None and not self.impulse:
            raise makes_no_sense(
                f"reward {self.name!r} earns nothing.",
                "it has neither a rate nor an impulse",
                "give it rate=lambda m: ... or impulse={activity: 1}",
            )
        if isinstance(self.over, At) and self.impulse:
            raise makes_no_sense(
                f"reward {self.name!r} has an impulse at one moment.",
                "at one moment nothing completes",
                "take it over Total(start, end) or Average(start, end)",
            )


def check_rewards(rewards: list[Reward], activities: set[str], network: str) -> None:
    """Names are taken once and activities exist."""
    seen: set[str] = set()
    for reward in rewards:
        if reward.name in seen:
            raise makes_no_sense(
                f"two rewards are called {reward.name!r}.", "results are known by name", "rename one of them"
            )
        seen.add(reward.name)
        for name in reward.impulse:
            if name not in activities:
                raise makes_no_sense(
                    f"reward {reward.name!r} counts activity {name!r}, which network {network!r} has not.",
                    f"activities are: {', '.join(sorted(activities)) or 'none'}",
                    "correct the name",
                )
    if not rewards:
        raise makes_no_sense("there is no reward.", "a solver answers what rewards ask", "hand in a list of Reward")
