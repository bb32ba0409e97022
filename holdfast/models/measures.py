"""What a number of replications says about a mean: the estimate and its confidence interval.

Pure: arrays in, values out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["Measure", "measured"]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Measure:
    """A mean over independent replications, and half the width of its 95 % interval (Student)."""

    mean: float
    half_width: float
    count: int

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width

    def __str__(self) -> str:
        return f"{self.mean:.6g} +- {self.half_width:.2g}"


def measured(samples: np.ndarray) -> Measure:
    """Of one sample the interval is infinite: it says nothing about the next one."""
    count = len(samples)
    if count < 2:
        return Measure(float(np.mean(samples)), math.inf, count)
    deviation = float(np.std(samples, ddof=1))
    quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1))
    return Measure(float(np.mean(samples)), quantile * deviation / math.sqrt(count), count)
