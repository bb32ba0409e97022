"""Keyed operators of the ward: `clean` and `beats`, per patient and lead.

    ward.keyed("patient", "lead", **CLEAN)(clean)
    ward.keyed("patient", "lead", **BEATS)(beats)

A lead that is silent for a second, or at the end of its recording, is finished by the
timer (`wake`), exactly as a gap in its rows would finish it. Samples without a value
count as missing; samples that come again, or after later ones, are left out and counted.

Pure: pandas in, pandas out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from holdfast.apps.telemonitoring import cleaning, qrs

__all__ = ["BEATS", "CLEAN", "beats", "clean"]

KEYS = ["patient", "lead"]

CLEAN: dict[str, Any] = {
    "state": "hz double, offset double, last_us bigint, last_mv double, memory array<double>, "
    "held_us array<bigint>, held_mv array<double>, wake timestamp",
    "emits": "patient string, lead string, ts timestamp, mv double, hz double",
}
BEATS: dict[str, Any] = {
    "state": "hz double, seen bigint, offset double, band array<double>, window array<double>, filtered array<double>, "
    "slope array<double>, height array<double>, mv array<double>, us array<bigint>, loudest array<double>, "
    "signal array<double>, noise array<double>, intervals array<double>, last bigint, last_us bigint, "
    "last_slope double, peak array<bigint>, peak_height array<double>, peak_slope array<double>, "
    "peak_mv array<double>, peak_us array<bigint>, wake timestamp",
    "emits": "patient string, lead string, ts timestamp, mv double, rr_ms double",
}


def clean(state: pd.DataFrame, ecg: pd.DataFrame, *, boundary: pd.Timestamp) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The noise filter: evenly spaced samples from 0.5 to 40 Hz, with the rate found."""
    after, out, late = [], [], 0
    for key, kept, us, mv, dropped in _leads(state, ecg, "last_us"):
        lead = None if kept is None else cleaning.Lead(**kept)
        late += dropped
        last_us = None if lead is None else _last(lead)
        for anew, part in cleaning.stretches(last_us, us) if len(us) else ():
            if anew or lead is None:
                lead = cleaning.Lead()
            made = cleaning.feed(lead, us[part], mv[part])
            out.append(_rows(key, made.us, mv=made.mv, hz=made.hz))
        if lead is not None and _us(boundary) < _last(lead) + cleaning.SILENT_US:
            after.append({**key, **asdict(lead), "wake": _time(_last(lead) + cleaning.SILENT_US)})
    return _state(after, state), _out(out, ["mv", "hz"], late)


def beats(state: pd.DataFrame, clean: pd.DataFrame, *, boundary: pd.Timestamp) -> tuple[pd.DataFrame, pd.DataFrame]:
    """QRS detection: one row per beat, with the interval since the one before."""
    after, out, late = [], [], 0
    rates = {tuple(key): own.hz.to_numpy() for key, own in clean.groupby(KEYS, sort=False)}
    for key, kept, us, mv, dropped in _leads(state, clean, "us"):
        memory = None if kept is None else qrs.Memory(**kept)
        late += dropped
        hz = rates.get(tuple(key.values()))
        last_us = None if memory is None else int(memory.us[-1])
        for anew, part in cleaning.stretches(last_us, us) if len(us) else ():
            if anew and memory is not None:
                out.append(_beat_rows(key, qrs.finish(memory)))
            if anew or memory is None:
                memory = qrs.Memory(float(hz[len(hz) - len(us) :][part][0]))
            out.append(_beat_rows(key, qrs.feed(memory, us[part], mv[part])))
        if memory is None:
            continue
        ends = int(memory.us[-1]) + cleaning.SILENT_US
        if _us(boundary) >= ends:
            out.append(_beat_rows(key, qrs.finish(memory)))
        else:
            after.append({**key, **memory.values(), "wake": _time(ends)})
    return _state(after, state), _out(out, ["mv", "rr_ms"], late)


def _leads(state: pd.DataFrame, rows: pd.DataFrame, last: str) -> Iterator[tuple]:
    """Per touched key: its name, its state without the timer, its new samples in order, how many came too late."""
    kept = {tuple(row[name] for name in KEYS): row for row in state.to_dict("records")}
    new = {tuple(key): own for key, own in rows.groupby(KEYS, sort=False)}
    for key in sorted({*kept, *new}):
        row = kept.get(key)
        memory = None if row is None else {name: row[name] for name in row if name not in (*KEYS, "wake")}
        us, mv = np.zeros(0, np.int64), np.zeros(0)
        dropped = 0
        if key in new:
            us = new[key].ts.dt.as_unit("us").astype("int64").to_numpy()
            mv = new[key].mv.to_numpy(float)
            value = ~np.isnan(mv)
            us, mv = us[value], mv[value]
            fits = np.diff(us, prepend=-1) > 0
            if memory is not None:
                newest = memory[last] if last == "last_us" and memory["hz"] else _newest(memory, last)
                fits &= us > newest
            dropped = int((~fits).sum())
            us, mv = us[fits], mv[fits]
        yield dict(zip(KEYS, key, strict=True)), memory, us, mv, dropped


def _newest(memory: dict, last: str) -> int:
    held = memory["held_us"] if last == "last_us" else memory["us"]
    return int(held[-1])


def _last(lead: cleaning.Lead) -> int:
    return lead.last_us if lead.hz else int(lead.held_us[-1])


def _us(moment: pd.Timestamp) -> int:
    return int(moment.to_datetime64().astype("datetime64[us]").astype("int64"))


def _time(us: int) -> pd.Timestamp:
    return pd.Timestamp(us, unit="us", tz="UTC")


def _rows(key: dict, us: np.ndarray, **columns: np.ndarray) -> pd.DataFrame:
    ts = pd.Series(us, dtype="int64").astype("datetime64[us]").dt.tz_localize("UTC")
    return pd.DataFrame({**key, "ts": ts, **columns}, index=range(len(us)))


def _beat_rows(key: dict, found: qrs.Beats) -> pd.DataFrame:
    return _rows(key, found.us, mv=found.mv, rr_ms=found.rr_ms)


def _state(after: list[dict], before: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(after, columns=list(before.columns)) if after else before.iloc[:0]


def _out(parts: list[pd.DataFrame], columns: list[str], late: int) -> pd.DataFrame:
    parts = [part for part in parts if len(part)]
    out = (
        pd.concat(parts, ignore_index=True)
        if parts
        else _rows(dict.fromkeys(KEYS, ""), np.zeros(0, np.int64), **{c: [] for c in columns})  # type: ignore[arg-type]
    )
    if late:
        out.attrs["late_rows"] = late
    return out
