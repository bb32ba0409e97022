"""One fault at a time: how many seconds of each output a single hit makes unavailable, late, lost or tainted.

A plan has too many combinations to simulate them all, and faults are rare, so what one costs is nearly what
each costs: times how often it happens, and summed, that is the first order of a prediction. It misses the second
fault that falls into the repair of the first; whoever chooses by it checks the choice by simulation.

Pure: randomness arrives as a `numpy.random.Generator`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from holdfast.models.layout import Layout
from holdfast.models.predicting import SHARES, shares
from holdfast.models.schedules import Hit
from holdfast.models.stream import StreamModel

__all__ = ["Impact", "impacts"]

# How often each is tried: the age of a checkpoint is drawn, and where a corruption goes is drawn more than once.
_TRIES = 12
_TRIES_CORRUPTION = 64


@dataclass(frozen=True)
class Impact:
    """Of one hit of `kind` on one copy of `target`."""

    kind: str
    target: str
    copy: int
    often: float  # hits in the time that is looked at
    seconds: dict[str, np.ndarray]  # share -> by output

    def expected_s(self, share: str, output: int = 0) -> float:
        return self.often * float(self.seconds[share][output])


def impacts(
    model: StreamModel, *, until_s: float, rng: np.random.Generator, units: Iterable[str] | None = None
) -> list[Impact]:
    """Of every target of every fault; `units`: only faults that hit one of these."""
    layout = Layout(model)
    wanted = None if units is None else set(units)
    chosen = [
        channel
        for channel in layout.channels
        if wanted is None
        or any(model.operators[layout.instances[j].operator].unit_name in wanted for j in channel.instances)
    ]
    if not chosen:
        return []
    # In the middle: what never heals then counts for half of the time, as a fault at any moment does on average.
    hits, owners = [], []
    for n, channel in enumerate(chosen):
        tries = _TRIES_CORRUPTION if channel.fault.kind == "corruption" else _TRIES
        hits += [[Hit(until_s / 2, channel.fault.kind, channel.target, channel.copy)]] * tries
        owners += [n] * tries
    found, _ = shares(model, until_s=until_s, replications=len(hits), rng=rng, schedule=hits)
    # Without any fault there may be a share too: frames that are slower than promised by themselves.
    calm, _ = shares(model, until_s=until_s, replications=1, rng=rng, schedule=[])
    owner = np.array(owners)
    made = []
    for n, channel in enumerate(chosen):
        often = until_s / (channel.fault.mttf_s + channel.fault.repair_s)
        seconds = {
            name: np.maximum(0.0, found[name][:, owner == n].mean(1) - calm[name][:, 0]) * until_s for name in SHARES
        }
        made.append(Impact(channel.fault.kind, channel.target, channel.copy, often, seconds))
    return made
