"""How much a state needs to be right again: exact for windows of time, fitted for windows of rows.

A window of rows per key is right again when every key of which a row is missing has had a whole window of new ones. That
depends on how often keys come, so it is fitted as the thesis does it: leave out bursts of a recorded input at random
moments, count the rows until all touched windows are right, and fit `alpha S + beta L` by least squares.

Pure: randomness arrives as a `numpy.random.Generator`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from holdfast.models.stream import NEVER, State

__all__ = ["Fit", "fit_row_windows", "never", "time_window"]

_MOMENTS = 200
_BURSTS = 8


@dataclass(frozen=True, slots=True)
class Fit:
    state: State
    r2: float
    samples: int


def time_window(refill_s: float, rate: float) -> State | None:
    """What was open in the gap is closed `refill_s` of stream after it, whatever was lost: alpha 1, beta 0."""
    size = refill_s * rate
    return State(size) if size > 0 else None


def never(rows: float) -> State:
    """Nothing says that it heals: after a gap all answers are tainted to the end."""
    return State(max(1.0, rows), NEVER, 0.0, NEVER)


def fit_row_windows(keys: np.ndarray, window: int, rng: np.random.Generator) -> Fit | None:
    """`keys`: of the rows of a recorded input, in order. None: too few of them to say anything."""
    count = len(keys)
    if count < 50 * _BURSTS:
        return None
    _, codes = np.unique(keys, return_inverse=True)
    distinct = int(codes.max()) + 1
    size = float(distinct * window)
    places = [np.nonzero(codes == key)[0] for key in range(distinct)]
    lost, needed = [], []
    for length in np.unique(np.linspace(1, count // 10, _BURSTS).astype(int)):
        for start in rng.integers(0, count // 2, max(1, _MOMENTS // _BURSTS)):
            end = start + length
            last = 0
            for key in np.unique(codes[start:end]):
                after = places[key][np.searchsorted(places[key], end) :]
                # A key that hardly comes again is not right by the end of the recording: at least that long.
                last = max(last, int(after[window - 1] if len(after) >= window else count) - end + 1)
            lost.append(float(length))
            needed.append(float(last))
    x, y = np.array(lost), np.minimum(np.array(needed), size)
    (constant, slope), _ = optimize.nnls(np.stack([np.full(len(x), size), x], 1), y)
    residual = y - (constant * size + slope * x)
    spread = float(np.sum((y - y.mean()) ** 2))
    r2 = 1.0 - float(np.sum(residual**2)) / spread if spread > 0 else 1.0
    return Fit(State(size, float(constant), float(slope)), r2, len(x))
