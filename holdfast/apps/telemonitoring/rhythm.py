"""Rate and variability of a heart from its beats, with beats marked that fell into movement.

Each beat gets the rate (median of the last nine intervals) and, over the last minute,
RMSSD and SDNN (Task Force of ESC and NASPE, Circulation 93, 1996) of normal intervals:
those not longer or shorter than their neighbours' median by more than a fifth, and not
of beats while the patient moved. Acceleration decides that, second by second.

    ward.keyed("patient", **RHYTHM)(rhythm)

Pure: pandas in, pandas out.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["RHYTHM", "rhythm"]

RHYTHM = {
    "state": "us array<bigint>, rr_ms array<double>, normal array<boolean>, moving_s array<bigint>",
    "emits": "patient string, ts timestamp, mv double, rr_ms double, moving boolean, bpm double, rmssd_ms double, "
    "sdnn_ms double",
}

_WINDOW_US = 60_000_000
_RATE_OF = 9
_ODD = 0.2
_NORMAL_MIN = 10  # intervals a variability is worth saying of


def rhythm(state: pd.DataFrame, beats: pd.DataFrame, motion: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`beats` of one lead per patient; `motion` has a row for each second: ts, moving."""
    kept = {row["patient"]: row for row in state.to_dict("records")}
    new = dict(tuple(beats.groupby("patient", sort=False)))
    moved = dict(tuple(motion[motion.moving.astype(bool)].groupby("patient", sort=False)))
    after, out = [], []
    for patient in sorted({*kept, *new, *motion.patient}):
        heart = _Heart(kept.get(patient))
        if patient in moved:
            heart.move(_us(moved[patient].ts) // 1_000_000)
        if patient in new:
            own = new[patient]
            rows = [heart.beat(at, rr) for at, rr in zip(_us(own.ts), own.rr_ms.to_numpy(), strict=True)]
            made = pd.DataFrame(rows, columns=["moving", "bpm", "rmssd_ms", "sdnn_ms"], index=own.index)
            out.append(pd.concat([own[["patient", "ts", "mv", "rr_ms"]], made], axis=1))
        after.append({"patient": patient, **heart.values()})
    columns = [part.split()[0] for part in RHYTHM["emits"].split(", ")]
    return (
        pd.DataFrame(after, columns=list(state.columns)),
        pd.concat(out, ignore_index=True) if out else pd.DataFrame(columns=columns),
    )


class _Heart:
    """The last minute of one patient."""

    def __init__(self, row: dict | None) -> None:
        self.us = [] if row is None else row["us"].tolist()
        self.rr_ms = [] if row is None else row["rr_ms"].tolist()
        self.normal = [] if row is None else row["normal"].tolist()
        self.moving_s = set() if row is None else set(row["moving_s"].tolist())

    def values(self) -> dict:
        return {
            "us": np.array(self.us, np.int64),
            "rr_ms": np.array(self.rr_ms, float),
            "normal": np.array(self.normal, bool),
            "moving_s": np.array(sorted(self.moving_s), np.int64),
        }

    def move(self, seconds: np.ndarray) -> None:
        self.moving_s |= set(seconds.tolist())
        newest = max(self.moving_s)
        # A beat is known within two seconds or so; a minute is plenty.
        self.moving_s = {second for second in self.moving_s if second > newest - 60}

    def beat(self, us: int, rr_ms: float) -> tuple:
        moving = us // 1_000_000 in self.moving_s
        if np.isnan(rr_ms):  # the lead started over: intervals do not span a silence
            return moving, np.nan, np.nan, np.nan
        usual = np.median(self.rr_ms[-_RATE_OF:] or [rr_ms])
        self.us.append(int(us))
        self.rr_ms.append(float(rr_ms))
        self.normal.append(not moving and abs(rr_ms - usual) <= _ODD * usual)
        gone = sum(at <= us - _WINDOW_US for at in self.us)
        del self.us[:gone], self.rr_ms[:gone], self.normal[:gone]
        bpm = 60_000 / float(np.median(self.rr_ms[-_RATE_OF:]))
        return moving, bpm, *self._variability()

    def _variability(self) -> tuple[float, float]:
        rr, normal = np.array(self.rr_ms), np.array(self.normal)
        if normal.sum() < _NORMAL_MIN:
            return np.nan, np.nan
        steps = np.diff(rr)[normal[1:] & normal[:-1]]
        rmssd = float(np.sqrt(np.mean(steps**2))) if len(steps) else np.nan
        return rmssd, float(np.std(rr[normal], ddof=1))


def _us(ts: pd.Series) -> np.ndarray:
    return ts.dt.as_unit("us").astype("int64").to_numpy()
