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
# Replications for each control: with fewer, the regression fits chance.
_PER_CONTROL = 20


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


def measured(samples: np.ndarray, controls: np.ndarray | None = None) -> Measure:
    """Of one sample the interval is infinite: it says nothing about the next one.

    `controls`: by row, quantities of every replication whose mean is zero. What samples owe to them is taken off by
    linear regression, which leaves the mean and narrows the interval.
    """
    count = len(samples)
    if controls is not None and count >= _PER_CONTROL * 2:
        if count < _PER_CONTROL * len(controls):
            controls = controls.sum(axis=0, keepdims=True)
        return _regressed(samples, controls)
    if count < 2:
        return Measure(float(np.mean(samples)), math.inf, count)
    deviation = float(np.std(samples, ddof=1))
    quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1))
    return Measure(float(np.mean(samples)), quantile * deviation / math.sqrt(count), count)


def _regressed(samples: np.ndarray, controls: np.ndarray) -> Measure:
    """The intercept of a linear regression on the controls, and its interval."""
    count = len(samples)
    seen = np.column_stack([np.ones(count), controls.T])
    gram = np.linalg.pinv(seen.T @ seen)
    weights = gram @ seen.T @ samples
    free = count - np.linalg.matrix_rank(seen)
    rest = samples - seen @ weights
    deviation = math.sqrt(float(rest @ rest) / free * float(gram[0, 0]))
    return Measure(float(weights[0]), float(stats.t.ppf(0.5 + CONFIDENCE / 2, free)) * deviation, count)
