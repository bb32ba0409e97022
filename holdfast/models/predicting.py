"""What faults do to every output of a model, in one form for both kinds of flow, and beside what was promised.

Pure: randomness arrives as a `numpy.random.Generator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.models.fluid import simulate_drops
from holdfast.models.measures import Measure, measured
from holdfast.models.schedules import Hit
from holdfast.models.stream import Output, StreamModel
from holdfast.models.waiting import simulate_waits

__all__ = ["SHARES", "OutputPrediction", "Prediction", "Promise", "predict", "promises_of", "shares"]

# What is bad, by output, as a share; each of them may be bounded by a promise.
SHARES = ("unavailable", "late", "lost", "tainted")
# A bound of zero is kept by what is zero but for rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Promise:
    """`output` has at most `at_most` of `share`."""

    output: int
    share: str
    at_most: float

    def is_kept(self, found: float) -> bool:
        return found <= self.at_most + _ROUNDING


@dataclass(frozen=True)
class OutputPrediction:
    name: str
    unavailable: Measure
    late: Measure
    lost: Measure
    tainted: Measure
    tentative: Measure
    worst_delay_s: float  # over all replications

    @property
    def available(self) -> Measure:
        return Measure(1 - self.unavailable.mean, self.unavailable.half_width, self.unavailable.count)

    def share(self, name: str) -> Measure:
        return getattr(self, name)


@dataclass(frozen=True)
class Prediction:
    model: StreamModel
    until_s: float
    replications: int
    outputs: tuple[OutputPrediction, ...]
    hits: int

    def found(self, promise: Promise) -> Measure:
        return self.outputs[promise.output].share(promise.share)

    def broken(self) -> list[tuple[Promise, Measure]]:
        """Promises that do not hold in the mean, each with what was found."""
        return [
            (promise, self.found(promise))
            for promise in promises_of(self.model)
            if not promise.is_kept(self.found(promise).mean)
        ]


def promises_of(model: StreamModel) -> list[Promise]:
    """Those that say anything: a bound of 1 does not."""
    found = []
    for o, output in enumerate(model.outputs):
        bounds = _bounds(output)
        found += [Promise(o, share, bounds[share]) for share in SHARES if bounds[share] < 1]
    return found


def _bounds(output: Output) -> dict[str, float]:
    return {
        "unavailable": 1 - output.available_at_least,
        "late": output.late_at_most if np.isfinite(output.within_s) else 1.0,
        "lost": output.lost_at_most,
        "tainted": output.wrong_at_most,
    }


def shares(
    model: StreamModel,
    *,
    until_s: float,
    replications: int,
    rng: np.random.Generator,
    schedule: Sequence[Hit] | Sequence[Sequence[Hit]] | None = None,
) -> tuple[dict[str, np.ndarray], int]:
    """Share -> by output and replication; and how many faults there were."""
    given: dict[str, Any] = {"until_s": until_s, "replications": replications, "rng": rng, "schedule": schedule}
    if model.flow == "waits":
        waits = simulate_waits(model, **given)
        found = {name: getattr(waits, name) for name in ("late", "lost", "tainted", "tentative", "delay_max_s")}
        return found | {"unavailable": 1 - waits.available}, waits.hits
    drops = simulate_drops(model, **given)
    came = (drops.clean + drops.tainted) / drops.nominal[:, None]
    nothing = np.zeros_like(drops.tainted)
    return {
        "unavailable": 1 - drops.available_of,
        "late": nothing,
        "tentative": nothing,
        "delay_max_s": nothing,
        "lost": np.maximum(0.0, 1 - came),
        "tainted": drops.tainted / drops.nominal[:, None],
    }, drops.hits


def predict(
    model: StreamModel,
    *,
    until_s: float,
    replications: int = 1000,
    rng: np.random.Generator,
    schedule: Sequence[Hit] | Sequence[Sequence[Hit]] | None = None,
) -> Prediction:
    found, hits = shares(model, until_s=until_s, replications=replications, rng=rng, schedule=schedule)
    outputs = tuple(
        OutputPrediction(
            output.operator,
            **{name: measured(found[name][o]) for name in (*SHARES, "tentative")},
            worst_delay_s=float(found["delay_max_s"][o].max()),
        )
        for o, output in enumerate(model.outputs)
    )
    return Prediction(model, until_s, replications, outputs, hits)
