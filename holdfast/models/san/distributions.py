"""How long a timed activity takes: distributions that are handed their randomness.

A distribution is a value: two that are equal behave alike, so the simulator can tell whether
a marking-dependent delay has changed. `draw` takes a numpy Generator and returns seconds, or
whatever unit of time the network uses. Parameters that make no sense are refused when the
distribution is made (HF-N008), a draw that makes no sense when it is drawn.

Only `Exponential` has a rate for the exact solver; the solver refuses all others by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from holdfast.errors import UsageError

__all__ = ["Deterministic", "Distribution", "Erlang", "Exponential", "Given", "Uniform", "Weibull", "refused"]


def refused(what: str, why: str, do: str) -> UsageError:
    return UsageError("HF-N008", "BadDelay", what, why=why, effect="nothing was solved", do=do)


def _positive(kind: object, **values: float) -> None:
    for name, value in values.items():
        if not (isinstance(value, (int, float, np.integer, np.floating)) and math.isfinite(value) and value > 0):
            raise refused(
                f"{type(kind).__name__} with {name} {value!r}.",
                f"{name} has to be a number above 0",
                "an activity that cannot happen in a marking is disabled there with `when=`, not by a rate of 0",
            )


class Distribution(Protocol):
    """Of the time between an activity's activation and its completion."""

    def draw(self, rng: np.random.Generator) -> float: ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """Memoryless, `rate` completions per unit of time: the mean is 1 / rate."""

    rate: float

    def __post_init__(self) -> None:
        _positive(self, rate=self.rate)

    def draw(self, rng: np.random.Generator) -> float:
        return rng.standard_exponential() / self.rate


@dataclass(frozen=True, slots=True)
class Deterministic:
    """Always `after`. 0 is allowed: it completes at the same time, after all instantaneous activities."""

    after: float

    def __post_init__(self) -> None:
        if self.after != 0:
            _positive(self, after=self.after)

    def draw(self, rng: np.random.Generator) -> float:
        return self.after


@dataclass(frozen=True, slots=True)
class Uniform:
    """Evenly between `low` and `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _positive(self, high=self.high)
        if not 0 <= self.low <= self.high:
            raise refused(f"Uniform from {self.low!r} to {self.high!r}.", "0 <= low <= high is needed", "swap the two")

    def draw(self, rng: np.random.Generator) -> float:
        return self.low + (self.high - self.low) * rng.random()


@dataclass(frozen=True, slots=True)
class Erlang:
    """The sum of `phases` exponential steps of `rate` each: the mean is phases / rate."""

    phases: int
    rate: float

    def __post_init__(self) -> None:
        _positive(self, phases=self.phases, rate=self.rate)
        if self.phases != int(self.phases):
            raise refused(f"Erlang with {self.phases!r} phases.", "phases are counted", "use a whole number")

    def draw(self, rng: np.random.Generator) -> float:
        return rng.standard_gamma(self.phases) / self.rate


@dataclass(frozen=True, slots=True)
class Weibull:
    """Shape below 1: early failures; above 1: wear. Shape 1 is exponential with mean `scale`."""

    shape: float
    scale: float

    def __post_init__(self) -> None:
        _positive(self, shape=self.shape, scale=self.scale)

    def draw(self, rng: np.random.Generator) -> float:
        return self.scale * rng.weibull(self.shape)


@dataclass(frozen=True, slots=True)
class Given:
    """A distribution of the user's own: `sample(rng)` returns a delay. Equal where `name` is."""

    sample: Callable[[np.random.Generator], float] = field(compare=False)
    name: str = "given"

    def draw(self, rng: np.random.Generator) -> float:
        drawn = float(self.sample(rng))
        if not drawn >= 0 or math.isinf(drawn):
            raise refused(
                f"the given distribution {self.name!r} drew {drawn}.",
                "a delay is a finite number, 0 or more",
                "correct `sample`; to never complete, disable the activity with `when=`",
            )
        return drawn
