"""Takes drift and hum out of one ECG lead, and makes its samples evenly spaced.

The sampling rate is found from the times of the first two seconds, to half a hertz.
Samples that are missing for less than a second are drawn as a line; after a longer
silence the lead begins anew. Then a band-pass filter from 0.5 to 40 Hz: below lies
breathing and the electrode's drift, above it muscle and mains. The same samples come out
however they were handed in: the filter's memory and the first seconds are in `Lead`.

Pure: numpy and scipy; no Spark, no clock.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.signal import butter, sosfilt

__all__ = ["SILENT_US", "Cleaned", "Lead", "feed", "stretches"]

SILENT_US = 1_000_000  # a lead silent for so long begins anew
_HEARD_US = 2_000_000  # from which the rate is found
_MISSING = 2.5  # intervals of the rate; less is an uneven clock
_PASS_HZ = (0.5, 40.0)


@dataclass
class Lead:
    """Between two calls; `hz` is 0 while the rate is not known and samples are held."""

    hz: float = 0.0
    offset: float = 0.0
    last_us: int = 0
    last_mv: float = 0.0
    memory: np.ndarray = field(default_factory=lambda: np.zeros(0))
    held_us: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    held_mv: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True)
class Cleaned:
    us: np.ndarray
    mv: np.ndarray
    hz: np.ndarray


def stretches(last_us: int | None, us: np.ndarray) -> list[tuple[bool, slice]]:
    """Where the samples go on and where they begin anew: (anew, which)."""
    gap = np.diff(us, prepend=us[0] - SILENT_US if last_us is None else last_us)
    starts = np.flatnonzero(gap >= SILENT_US)
    edges = [0, *(int(at) for at in starts if at), len(us)]
    anew = {int(at) for at in starts}
    return [(lo in anew, slice(lo, hi)) for lo, hi in itertools.pairwise(edges)]


def feed(lead: Lead, us: np.ndarray, mv: np.ndarray) -> Cleaned:
    """What these samples become; they go on where the last ones ended, without a long silence."""
    if not lead.hz:
        us, mv = np.concatenate([lead.held_us, us]), np.concatenate([lead.held_mv, mv])
        enough = np.searchsorted(us, us[0] + _HEARD_US) if len(us) else 0
        if enough >= len(us):
            lead.held_us, lead.held_mv = us, mv
            return Cleaned(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        lead.hz = _rate(us[: enough + 1])
        lead.offset = float(mv[0])
        lead.last_us, lead.last_mv = int(us[0]) - round(1e6 / lead.hz), float(mv[0])
        lead.memory = np.zeros(_filter(lead.hz).shape[0] * 2)
        lead.held_us, lead.held_mv = np.zeros(0, np.int64), np.zeros(0)
    if not len(us):
        return Cleaned(us, mv, np.zeros(0))
    us, mv = _even(lead, us, mv)
    out, memory = sosfilt(_filter(lead.hz), mv - lead.offset, zi=lead.memory.reshape(-1, 2))
    lead.memory, lead.last_us, lead.last_mv = memory.ravel(), int(us[-1]), float(mv[-1])
    return Cleaned(us, out, np.full(len(us), lead.hz))


def _rate(us: np.ndarray) -> float:
    steps = np.diff(us)
    usual = float(np.median(steps))
    mean = float(us[-1] - us[0]) / len(steps)
    # The mean is exact when the clock's ticks are coarse, the median when samples are missing.
    step = usual if steps.max() > _MISSING * usual else mean
    return max(1.0, round(2e6 / step) / 2)


@lru_cache(maxsize=32)
def _filter(hz: float) -> np.ndarray:
    low, high = _PASS_HZ
    return np.vstack(
        [
            butter(2, low, "highpass", fs=hz, output="sos"),
            butter(4, min(high, 0.4 * hz), "lowpass", fs=hz, output="sos"),
        ]
    )


def _even(lead: Lead, us: np.ndarray, mv: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lines where samples are missing."""
    step_us = 1e6 / lead.hz
    gaps = np.diff(us, prepend=lead.last_us)
    holes = np.flatnonzero(gaps > _MISSING * step_us)
    if not len(holes):
        return us, mv
    before_us, before_mv = np.append(lead.last_us, us), np.append(lead.last_mv, mv)
    at, more_us, more_mv = [], [], []
    for hole in holes:
        count = round(gaps[hole] / step_us) - 1
        part = np.arange(1, count + 1) / (count + 1)
        at += [hole] * count
        more_us.append((before_us[hole] + part * gaps[hole]).astype(np.int64))
        more_mv.append(before_mv[hole] + part * (before_mv[hole + 1] - before_mv[hole]))
    return np.insert(us, at, np.concatenate(more_us)), np.insert(mv, at, np.concatenate(more_mv))
