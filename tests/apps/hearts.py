"""Made-up hearts whose beats are known: waves as Gaussians, at any rate, with what disturbs a lead."""

from __future__ import annotations

import numpy as np

# Centre (s from the R peak, at one beat a second), width (s), height (mV).
NORMAL = ((-0.17, 0.025, 0.12), (-0.025, 0.008, -0.12), (0.0, 0.010, 1.1), (0.028, 0.009, -0.25), (0.26, 0.05, 0.28))
# A premature ventricular beat: wide, turned over, no P wave.
EARLY = ((-0.02, 0.028, 1.3), (0.05, 0.035, -0.7), (0.30, 0.06, -0.35))


def heart(
    hz: float,
    bpm: float,
    seconds: float,
    *,
    seed: int = 0,
    early: bool = False,
    pause_s: float = 0.0,
    noise: float = 0.02,
    wander: float = 0.0,
    hum: float = 0.0,
    swell: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """mV and the times of the R peaks."""
    rng = np.random.default_rng(seed)
    beats, shapes, at = [], [], 0.6
    while at < seconds - 0.4:
        beats.append(at)
        is_early = early and len(beats) % 7 == 0
        shapes.append(EARLY if is_early else NORMAL)
        step = 60 / bpm * (1 + 0.03 * rng.standard_normal())
        if early and len(beats) % 7 == 6:
            step *= 0.65  # comes early,
        elif is_early:
            step *= 1.3  # and the next one late
        if pause_s and len(beats) % 20 == 0:
            step += pause_s
        at += step
    t = np.arange(round(seconds * hz)) / hz
    mv = noise * rng.standard_normal(len(t))
    mv += wander * np.sin(2 * np.pi * 0.25 * t) + hum * np.sin(2 * np.pi * 50 * t)
    # Waves keep their width when a heart hurries, but P and T move nearer.
    near = min(1.0, (60 / bpm) ** 0.5)
    for beat, shape in zip(beats, shapes, strict=True):
        size = 1 + swell * np.sin(2 * np.pi * beat / 30)
        lo, hi = np.searchsorted(t, [beat - 0.5, beat + 0.8])
        for centre, width, height in shape:
            where = beat + centre * (near if abs(centre) > 0.1 else 1)
            mv[lo:hi] += size * height * np.exp(-0.5 * ((t[lo:hi] - where) / width) ** 2)
    return mv, np.array(beats)
