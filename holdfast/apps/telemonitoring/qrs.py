"""Finds the beats of one ECG lead, sample by sample, at any rate from 128 to 1000 Hz.

The family is Pan and Tompkins' (IEEE Trans. Biomed. Eng. 32, 1985) with the medians and
the slope test of Hamilton (Computers in Cardiology 29, 2002): a band-pass filter, the size
of the slope, a moving mean; its peaks are beats or noise by a threshold between the medians
of the last eight of each. A peak is judged once nothing higher came for 0.2 s; a pause of
one and a half intervals makes the search go back for a smaller one; a peak soon after a
beat with less than half its slope is a T wave. All lengths are seconds and all heights are
relative to what was seen, so that neither rate, gain nor sign of a lead matters.

What comes out depends on the samples alone, never on how they were handed in: the filters
carry their memory, each decision is made at a time counted in samples, and everything
between two calls is in `Memory`, whose fields are the columns of an operator's state.

Pure: numpy and scipy; no Spark, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.ndimage import maximum_filter1d
from scipy.signal import butter, lfilter, sosfilt

__all__ = ["Beats", "Design", "Memory", "detect", "feed", "finish"]

# A QRS complex has most of its energy here; T and P waves lie below, muscle above.
_BAND_HZ = (8.0, 20.0)
_SLOPE_S = 0.010  # over which the slope is taken
_MEAN_S = 0.13  # as long as a wide complex
_APART_S = 0.20  # no heart beats twice in this time
_LEARN_S = 3  # heard before the first judgement: a beat even at 25 a minute
_THRESHOLD = 0.35  # of the way from noise to signal
_SEARCH_AFTER = 1.5  # intervals without a beat
_SEARCH_FROM = 0.6  # of the threshold is enough then
_T_WAVE_S, _T_WAVE_SLOPE = 0.36, 0.5
# Without any beat for so long the threshold halves every second, down to a tenth of the
# signal: an electrode that was moved may leave a small fraction of the old height.
_LOST_S, _LOWEST = 2.5, 0.1
_REMEMBERED = 8
_PENDING_MAX = 64
# The first large swing of the filtered complex comes so much after that of the complex.
_LAG_S = 0.010
_FIRST_SWING = 0.35
# A first swing so far before the largest one may be noise, or the spike of a pacemaker: half way
# is wrong by little in both cases.
_FAR_S = 0.06


@dataclass(frozen=True, slots=True)
class Design:
    """Filters and lengths in samples for one sampling rate."""

    hz: float
    sos: np.ndarray
    slope: int
    mean: int
    apart: int
    back: int  # how far before the peak of the mean a complex may begin

    @staticmethod
    @lru_cache(maxsize=32)
    def at(hz: float) -> Design:
        sos = butter(1, _BAND_HZ, "bandpass", fs=hz, output="sos")
        mean = round(_MEAN_S * hz)
        return Design(hz, sos, max(1, round(_SLOPE_S * hz)), mean, round(_APART_S * hz), mean + round(0.04 * hz))

    @property
    def kept(self) -> int:
        """Samples of context a peak needs before and after it."""
        return max(self.back, self.apart) + self.apart + 1


def _floats() -> np.ndarray:
    return np.zeros(0)


def _longs() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass
class Memory:
    """All that is known of a lead between two calls; `seen` samples came so far."""

    hz: float
    seen: int = 0
    offset: float = 0.0
    band: np.ndarray = field(default_factory=_floats)  # memory of the band-pass filter
    window: np.ndarray = field(default_factory=_floats)  # and of the moving mean
    filtered: np.ndarray = field(default_factory=_floats)  # the last samples, for peaks not judged yet
    slope: np.ndarray = field(default_factory=_floats)
    height: np.ndarray = field(default_factory=_floats)
    mv: np.ndarray = field(default_factory=_floats)
    us: np.ndarray = field(default_factory=_longs)
    loudest: np.ndarray = field(default_factory=_floats)  # of each of the first seconds
    signal: np.ndarray = field(default_factory=_floats)  # heights of the last beats
    noise: np.ndarray = field(default_factory=_floats)
    intervals: np.ndarray = field(default_factory=_floats)
    last: int = -1  # sample of the last beat's peak; none: -1
    last_us: int = 0
    last_slope: float = 0.0
    # Peaks refused since the last beat, or not judged yet: place, height, slope, mV and time.
    peak: np.ndarray = field(default_factory=_longs)
    peak_height: np.ndarray = field(default_factory=_floats)
    peak_slope: np.ndarray = field(default_factory=_floats)
    peak_mv: np.ndarray = field(default_factory=_floats)
    peak_us: np.ndarray = field(default_factory=_longs)

    def values(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class Beats:
    us: np.ndarray
    mv: np.ndarray
    rr_ms: np.ndarray  # since the beat before; NaN for the first


@dataclass(frozen=True, slots=True)
class _Peak:
    at: int
    height: float
    slope: float
    mv: float
    us: int


def feed(memory: Memory, us: np.ndarray, mv: np.ndarray) -> Beats:
    """The beats these samples decide; `memory` goes on from them. Times in microseconds."""
    if not len(mv):
        return _beats([], memory)
    design = Design.at(memory.hz)
    _filter(memory, design, us, mv)
    return _judge(memory, design, _peaks(memory, design))


def finish(memory: Memory) -> Beats:
    """The beats that were still waiting for samples to come after them."""
    design = Design.at(memory.hz)
    if memory.seen < memory.hz:
        return _beats([], memory)
    for name, fill in (("filtered", 0.0), ("slope", 0.0), ("height", 0.0), ("mv", 0.0), ("us", 0)):
        old = getattr(memory, name)
        setattr(memory, name, np.concatenate([old, np.full(design.apart, fill, old.dtype)]))
    memory.seen += design.apart
    _learn(memory)
    return _judge(memory, design, _peaks(memory, design, new=design.apart), last=True)


def detect(mv: np.ndarray, hz: float) -> np.ndarray:
    """Sample numbers of the beats of a whole recording."""
    memory = Memory(float(hz))
    at = np.arange(len(mv), dtype=np.int64)
    parts = [feed(memory, at, np.asarray(mv, float)), finish(memory)]
    return np.concatenate([part.us for part in parts])


def _filter(memory: Memory, design: Design, us: np.ndarray, mv: np.ndarray) -> None:
    if not memory.seen:
        memory.offset = float(mv[0])  # a lead may stand far from zero: no step at the start
        memory.band = np.zeros(design.sos.shape[0] * 2)
        memory.window = np.zeros(design.mean - 1)
        # Zeros before the first sample: slopes and windows need no special case.
        quiet = design.kept + design.slope
        memory.filtered, memory.slope, memory.height, memory.mv = (np.zeros(quiet) for _ in range(4))
        memory.us = np.zeros(quiet, np.int64)
    filtered, band = sosfilt(design.sos, mv - memory.offset, zi=memory.band.reshape(-1, 2))
    memory.band = band.ravel()
    new = len(filtered)
    memory.filtered = np.concatenate([memory.filtered, filtered])
    slope = np.abs(memory.filtered[-new:] - memory.filtered[-new - design.slope : -design.slope])
    # A second coefficient keeps scipy on the path that works sample by sample; without it
    # sums would be made in an order that depends on how many samples there are.
    height, memory.window = lfilter(np.full(design.mean, 1 / design.mean), [1.0, 0.0], slope, zi=memory.window)
    memory.slope = np.concatenate([memory.slope, slope])
    memory.height = np.concatenate([memory.height, height])
    memory.mv = np.concatenate([memory.mv, mv])
    memory.us = np.concatenate([memory.us, us])
    memory.seen += new


def _peaks(memory: Memory, design: Design, new: int | None = None) -> list[_Peak]:
    """Peaks that have become certain: nothing as high within `apart` before, nothing higher after."""
    height, apart = memory.height, design.apart
    first = memory.seen - len(height)  # sample number of the first one kept
    keep = design.kept + design.slope
    fresh = len(height) - keep if new is None else new
    top = maximum_filter1d(height, 2 * apart + 1, mode="constant", cval=0.0)
    lo, hi = len(height) - apart - fresh, len(height) - apart
    found = []
    for at in lo + np.flatnonzero((height[lo:hi] == top[lo:hi]) & (height[lo:hi] > 0)):
        if height[at - apart : at].max() < height[at]:  # of equals the first
            found.append(_peak(memory, design, int(at), first))
    if memory.seen - fresh < _LEARN_S * memory.hz:
        _listen(memory, fresh)
    if new is None:
        for name in ("filtered", "slope", "height", "mv", "us"):
            setattr(memory, name, getattr(memory, name)[-keep:])
    return found


def _peak(memory: Memory, design: Design, at: int, first: int) -> _Peak:
    """The beat is where its filtered complex first swings far out, less the filter's lag."""
    start = max(at - design.back, 0)
    size = np.abs(memory.filtered[start : at + 1])
    inner = size[1:-1]
    swings = np.flatnonzero((inner >= size[:-2]) & (inner > size[2:]) & (inner > _FIRST_SWING * size.max()))
    largest = int(size.argmax())
    swing = int(swings[0]) + 1 if len(swings) else largest
    if largest - swing > _FAR_S * memory.hz:
        swing = (swing + largest) // 2
    place = start + swing
    # Never before the first sample: what lies there is not recorded.
    place = max(place - round(_LAG_S * memory.hz), -first, 0)
    slope = float(memory.slope[start : at + 1].max())
    return _Peak(first + at, float(memory.height[at]), slope, float(memory.mv[place]), int(memory.us[place]))


def _listen(memory: Memory, fresh: int) -> None:
    """The loudest of each whole second, for the first judgement."""
    loudest = memory.loudest.copy() if len(memory.loudest) else np.zeros(_LEARN_S)
    numbers = np.arange(memory.seen - fresh, memory.seen)
    seconds = (numbers / memory.hz).astype(int)
    for second in range(_LEARN_S):
        own = memory.height[len(memory.height) - fresh :][seconds == second]
        if len(own):
            loudest[second] = max(loudest[second], own.max())
    memory.loudest = loudest


def _learn(memory: Memory) -> None:
    if len(memory.signal):
        return
    heard = memory.loudest[memory.loudest > 0]
    level = float(np.median(heard)) if len(heard) else 0.0
    memory.signal = np.full(_REMEMBERED, level)
    memory.noise = np.full(_REMEMBERED, 0.1 * level)
    memory.intervals = np.full(_REMEMBERED, 0.8 * memory.hz)


def _judge(memory: Memory, design: Design, new: list[_Peak], last: bool = False) -> Beats:
    columns = (memory.peak, memory.peak_height, memory.peak_slope, memory.peak_mv, memory.peak_us)
    waiting = [_Peak(int(a), float(h), float(s), float(m), int(u)) for a, h, s, m, u in zip(*columns, strict=True)]
    found: list[tuple[_Peak, float]] = []
    if not len(memory.signal):
        if memory.seen < _LEARN_S * memory.hz:
            return _remember(memory, waiting + new, found)
        _learn(memory)
        waiting, new = [], waiting + new
    for peak in new:
        _search_back(memory, design, waiting, peak.at + design.apart, found)
        level, threshold = _threshold(memory)
        gap_s = (peak.at - max(memory.last, 0)) / memory.hz
        if gap_s > _LOST_S:
            threshold = max(threshold * 0.5 ** (gap_s - _LOST_S), _LOWEST * level)
        if peak.height > threshold and not _is_t_wave(memory, peak):
            _accept(memory, peak, found)
            waiting.clear()
        else:
            waiting.append(peak)
            del waiting[:-_PENDING_MAX]
            memory.noise = _pushed(memory.noise, min(peak.height, level))
    _search_back(memory, design, waiting, memory.seen - 1, found)
    return _remember(memory, [] if last else waiting, found)


def _search_back(memory: Memory, design: Design, waiting: list[_Peak], now: int, found: list) -> None:
    """A pause may hide a small beat: the highest peak refused in it, if high enough."""
    while waiting and memory.last >= 0 and now - memory.last > _SEARCH_AFTER * np.median(memory.intervals):
        _, threshold = _threshold(memory)
        soon = memory.last + _T_WAVE_S * memory.hz
        fit = [peak for peak in waiting if peak.height > _SEARCH_FROM * threshold and peak.at > soon]
        if not fit:
            return
        best = max(fit, key=lambda peak: (peak.height, -peak.at))
        _accept(memory, best, found)
        waiting[:] = [peak for peak in waiting if peak.at > best.at]


def _threshold(memory: Memory) -> tuple[float, float]:
    level, noise = float(np.median(memory.signal)), float(np.median(memory.noise))
    return level, noise + _THRESHOLD * (level - noise)


def _is_t_wave(memory: Memory, peak: _Peak) -> bool:
    if memory.last < 0:
        return False
    return peak.at - memory.last < _T_WAVE_S * memory.hz and peak.slope < _T_WAVE_SLOPE * memory.last_slope


def _accept(memory: Memory, peak: _Peak, found: list) -> None:
    rr_ms = float("nan")
    if memory.last >= 0:
        memory.intervals = _pushed(memory.intervals, float(peak.at - memory.last))
        rr_ms = (peak.us - memory.last_us) / 1000
    memory.signal = _pushed(memory.signal, peak.height)
    memory.last, memory.last_us, memory.last_slope = peak.at, peak.us, peak.slope
    found.append((peak, rr_ms))


def _pushed(values: np.ndarray, value: float) -> np.ndarray:
    return np.append(values[1:], value)


def _remember(memory: Memory, waiting: list[_Peak], found: list) -> Beats:
    memory.peak = np.array([each.at for each in waiting], np.int64)
    memory.peak_height = np.array([each.height for each in waiting], float)
    memory.peak_slope = np.array([each.slope for each in waiting], float)
    memory.peak_mv = np.array([each.mv for each in waiting], float)
    memory.peak_us = np.array([each.us for each in waiting], np.int64)
    return _beats(found, memory)


def _beats(found: list, memory: Memory) -> Beats:
    return Beats(
        np.array([peak.us for peak, _ in found], np.int64),
        np.array([peak.mv for peak, _ in found], float),
        np.array([rr_ms for _, rr_ms in found], float),
    )
