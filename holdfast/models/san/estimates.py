"""Many replications of a network, and how far their mean may be from the truth.

Replications are independent: number i draws from the i-th child of the seed's sequence, so its
values are the same bits however many others run, in whatever batches. Their mean is given with
Student's interval, which is exact for normal values and close for means of thirty or more.

With `half_width` (per reward, absolute) or `relative` (share of the mean) replications are added
until every interval is that narrow. Looking at an interval in order to decide whether to stop
favours intervals that are narrow by chance; the first look is therefore not before
`REPLICATIONS_MIN`, and looks are a quarter more replications apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from holdfast.errors import UsageError
from holdfast.models.san.firing import Compiled
from holdfast.models.san.network import Network
from holdfast.models.san.rewards import Reward
from holdfast.models.san.tokens import simulate

__all__ = ["Estimate", "estimate", "generators", "interval"]

# Below thirty values the interval rests on their being normal, and a narrow one is often luck.
REPLICATIONS_MIN = 30


@dataclass(frozen=True, slots=True)
class Estimate:
    """`mean` plus or minus `half_width`, at `confidence`. Too few replications: infinitely wide."""

    mean: float
    half_width: float
    replications: int
    confidence: float = 0.95

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width

    def covers(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.mean:.6g} +- {self.half_width:.2g}"


def interval(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Estimate:
    """Student's interval of the mean of independent values."""
    found = np.asarray(values, float)
    n = len(found)
    if n < 2:
        return Estimate(float(found.mean()) if n else math.nan, math.inf, n, confidence)
    spread = float(found.std(ddof=1)) / math.sqrt(n)
    return Estimate(float(found.mean()), float(stats.t.ppf((1 + confidence) / 2, n - 1)) * spread, n, confidence)


def generators(seed: int, start: int, end: int) -> list[np.random.Generator]:
    """Of replications start..end-1 of a seed; each is the same whatever the others are."""
    return [
        np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(i,)))) for i in range(start, end)
    ]


def estimate(
    network: Network,
    rewards: Sequence[Reward],
    *,
    seed: int,
    replications: int | None = None,
    half_width: float | Mapping[str, float] | None = None,
    relative: float | None = None,
    replications_max: int = 100_000,
    confidence: float = 0.95,
) -> dict[str, Estimate]:
    """Reward -> its estimate, by a number of replications or until every interval is narrow enough.

    What is not narrow enough at `replications_max` is refused (HF-N011): a wide interval is not the answer that was asked for.
    """
    compiled = Compiled(network)
    rewards = list(rewards)
    sequential = half_width is not None or relative is not None
    until = replications or REPLICATIONS_MIN
    values: dict[str, list[float]] = {reward.name: [] for reward in rewards}
    done = 0
    while True:
        for rng in generators(seed, done, until):
            for name, value in simulate(compiled, rewards, rng).items():
                values[name].append(value)
        done = until
        found = {name: interval(each, confidence) for name, each in values.items()}
        if not sequential:
            return found
        wide = {
            name: each for name, each in found.items() if each.half_width > _asked(name, each, half_width, relative)
        }
        if not wide:
            return found
        if done >= replications_max:
            name, each = max(wide.items(), key=lambda item: item[1].half_width)
            raise UsageError(
                "HF-N011",
                "IntervalTooWide",
                f"reward {name!r} is {each} after {done} replications.",
                why=f"a half-width of {_asked(name, each, half_width, relative):.2g} was asked for",
                effect="nothing is estimated",
                do=f"allow about {_needed(each, _asked(name, each, half_width, relative))} replications with replications_max=, "
                "or ask for a wider interval",
            )
        until = min(replications_max, done + max(REPLICATIONS_MIN, done // 4))


def _asked(name: str, found: Estimate, half_width: float | Mapping[str, float] | None, relative: float | None) -> float:
    absolute = (
        half_width.get(name, math.inf)
        if isinstance(half_width, Mapping)
        else math.inf
        if half_width is None
        else half_width
    )
    return min(absolute, math.inf if relative is None else relative * abs(found.mean))


def _needed(found: Estimate, asked: float) -> int | str:
    """Replications whose interval would be as narrow: its width falls with their square root."""
    return math.ceil(found.replications * (found.half_width / asked) ** 2 * 1.2) if asked else "infinitely many"
