"""Many replications of a model whose flow waits: positions first, then the marks they leave.

Pure: randomness arrives as a `numpy.random.Generator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.models.marks import sweep
from holdfast.models.positions import Positions
from holdfast.models.schedules import FaultClock, Hit
from holdfast.models.stations import Stations
from holdfast.models.stream import StreamModel

__all__ = ["Waits", "simulate_waits"]


@dataclass(frozen=True)
class Waits:
    """By output and replication, shares: of frames for `late` and `tentative`, of elements for `lost` and `tainted`."""

    until_s: float
    outputs: tuple[str, ...]
    available: np.ndarray  # share of the stream that came in time and right
    late: np.ndarray
    tentative: np.ndarray
    lost: np.ndarray
    tainted: np.ndarray
    delay_max_s: np.ndarray
    backlog: np.ndarray  # by replication: elements that wait, in the mean over time
    steps: int
    hits: int


def simulate_waits(
    model: StreamModel,
    *,
    until_s: float,
    replications: int,
    rng: np.random.Generator,
    schedule: Sequence[Hit] | Sequence[Sequence[Hit]] | None = None,
) -> Waits:
    stations = Stations(model)
    positions = Positions(stations, replications, rng, FaultClock(stations.layout, replications, rng, schedule))
    positions.run(until_s)
    marks = sweep(stations, positions.traces, replications, until_s)
    late, tentative = positions.late_s / until_s, positions.tentative_s / until_s
    for o, output in enumerate(model.outputs):
        if output.tentative_s <= output.within_s:
            late[o] = 0.0  # an answer was there in time, and is corrected later
    return Waits(
        until_s,
        tuple(each.operator for each in model.outputs),
        marks.right,
        late,
        tentative,
        marks.lost,
        marks.tainted,
        positions.delay_max_s,
        positions.backlog / until_s,
        positions.steps + marks.steps,
        positions.hits,
    )
