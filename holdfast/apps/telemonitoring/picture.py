"""Draws what a ward saw: per bed a strip of ECG with its beats, and the course of what is watched.

`Watched` holds tables as the sinks have them, wherever these are; `draw` makes one figure
of one bed or of all, for a page (SVG) or a picture (PNG).
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import DateFormatter, MinuteLocator, SecondLocator
from matplotlib.figure import Figure, SubFigure

__all__ = ["COLOURS", "Limit", "Watched", "as_png", "as_svg"]

COLOURS = {
    "ink": "#22303c", "soft": "#7b8794", "paper": "#fbfaf7", "grid": "#f3d9d4", "ecg": "#1f3a4d", "beat": "#c8553d",
    "rate": "#1f3a4d", "rmssd": "#2a7f8e", "sdnn": "#8fb8bf", "oxygen": "#2b6cb0", "systolic": "#6b4c9a",
    "diastolic": "#b9a6d3", "limit": "#b7791f", "alarm": "#c81e1e", "moving": "#f6c945",
}  # fmt: skip
STRIP_S = 12
_DRAWN_HZ = 250  # more cannot be seen in a strip this wide


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold of one bed: its value from each moment on."""

    since: list[pd.Timestamp]
    value: list[float]


@dataclass(frozen=True, slots=True)
class Watched:
    clean: pd.DataFrame  # patient, lead, ts, mv, hz
    rhythm: pd.DataFrame
    oxygen: pd.DataFrame
    motion: pd.DataFrame
    pressure: pd.DataFrame
    alarms: pd.DataFrame
    limits: dict[tuple[str, str], Limit]  # (patient, parameter)

    @property
    def patients(self) -> list[str]:
        return sorted(self.clean.patient.unique())

    def of(self, patient: str, name: str) -> pd.DataFrame:
        table = getattr(self, name)
        return table[table.patient == patient].sort_values("ts")


def as_svg(watched: Watched, patient: str) -> str:
    """One bed, as an element to stand in a page: text stays text."""
    # Without a seed the names of clip paths would differ from drawing to drawing.
    with matplotlib.rc_context({**_STYLE, "svg.fonttype": "none", "svg.hashsalt": patient}):
        figure = Figure(figsize=(13, 4.6), facecolor="none")
        _bed(figure, watched, patient)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    # Several drawings stand in one page, where a name may be used once.
    text = re.sub(
        r'((?:\bid="|href="#|url\(#))', rf"\g<1>{re.sub(r'[^A-Za-z0-9]', '_', patient)}-", text[text.index("<svg") :]
    )
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(patient)}"', 1)


def as_png(watched: Watched, path: Path, dpi: int = 100) -> None:
    """All beds, one below the other."""
    patients = watched.patients
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(13, 0.5 + 4.6 * len(patients)), facecolor=COLOURS["paper"])
        FigureCanvasAgg(figure)
        head, *beds = figure.subfigures(1 + len(patients), 1, height_ratios=[0.5] + [4.6] * len(patients))  # type: ignore[misc]
        head.set_facecolor("none")
        head.text(0.045, 0.35, "The ward", fontsize=19, fontweight="bold", color=COLOURS["ink"])
        head.text(0.19, 0.37, _key(), fontsize=10, color=COLOURS["soft"])
        for part, patient in zip(beds, patients, strict=True):
            part.set_facecolor("none")
            _bed(part, watched, patient)
        figure.savefig(path, dpi=dpi, facecolor=COLOURS["paper"])


_STYLE: Any = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
    "axes.edgecolor": "#c9ced3", "axes.linewidth": 0.8, "axes.spines.top": False, "axes.spines.right": False,
    "axes.labelcolor": COLOURS["ink"], "text.color": COLOURS["ink"], "xtick.color": COLOURS["soft"],
    "ytick.color": COLOURS["soft"], "timezone": "UTC",
}  # fmt: skip


def _key() -> str:
    return "orange marks: beats   yellow: the patient moves   dashed: threshold   red: alarm"


def _bed(figure: Figure | SubFigure, watched: Watched, patient: str) -> None:
    grid = figure.add_gridspec(
        2, 4, height_ratios=[1.25, 1], left=0.045, right=0.975, top=0.88, bottom=0.09, hspace=0.55, wspace=0.22
    )
    _strip(figure.add_subplot(grid[0, :]), watched, patient)
    below = [figure.add_subplot(grid[1, at]) for at in range(4)]
    for axes, draw in zip(below, (_rate, _variability, _oxygen, _pressure), strict=True):
        _shade(axes, watched, patient)
        draw(axes, watched, patient)
        _timed(axes, watched)


def _strip(axes, watched: Watched, patient: str) -> None:
    ecg, beats = watched.of(patient, "clean"), watched.of(patient, "rhythm")
    start = _strip_start(watched, patient)
    stop = start + pd.Timedelta(seconds=STRIP_S)
    every = max(1, round(ecg.hz.iloc[0] / _DRAWN_HZ))
    part = ecg[(ecg.ts >= start) & (ecg.ts < stop)]
    marks = beats[(beats.ts >= start) & (beats.ts < stop)]
    _shade(axes, watched, patient)
    low, high = part.mv.min(), part.mv.max()
    room = max(high - low, 0.1)
    axes.plot(part.ts.iloc[::every], part.mv.iloc[::every], color=COLOURS["ecg"], linewidth=0.9)
    axes.plot(
        marks.ts, np.full(len(marks), high + 0.12 * room), "v", color=COLOURS["beat"], markersize=5, clip_on=False
    )
    axes.set_xlim(start, stop)
    axes.set_ylim(low - 0.08 * room, high + 0.2 * room)
    axes.xaxis.set_major_locator(SecondLocator(interval=1))
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))
    axes.grid(True, color=COLOURS["grid"], linewidth=0.7)
    axes.tick_params(length=0)
    axes.set_ylabel("mV")
    name = patient.replace("_", " ")
    axes.set_title(name, loc="left", fontsize=14, fontweight="bold", pad=8)
    axes.set_title(_sentence(watched, patient), loc="right", fontsize=9.5, color=COLOURS["soft"], pad=8)


def _strip_start(watched: Watched, patient: str) -> pd.Timestamp:
    """Where there is something to see: where a movement begins, else at the first alarm of the pulse, else in the middle."""
    moving = watched.of(patient, "motion")
    moving = moving[moving.moving.astype(bool)]
    alarms = watched.of(patient, "alarms")
    pulse = alarms[alarms.kind == "pulse"]
    ecg = watched.of(patient, "clean").ts
    if len(moving):
        wanted = moving.ts.iloc[0] - pd.Timedelta(seconds=STRIP_S * 0.6)
    elif len(pulse):
        wanted = pulse.ts.iloc[0] - pd.Timedelta(seconds=STRIP_S / 2)
    else:
        wanted = ecg.iloc[len(ecg) // 2].floor("s")
    return min(max(wanted, ecg.iloc[0]), ecg.iloc[-1] - pd.Timedelta(seconds=STRIP_S)).floor("s")


def _sentence(watched: Watched, patient: str) -> str:
    ecg, beats, alarms = (watched.of(patient, name) for name in ("clean", "rhythm", "alarms"))
    return (
        f"lead {ecg.lead.iloc[0]} at {ecg.hz.iloc[0]:g} Hz  ·  {len(beats):,} beats  ·  "
        f"{int(beats.moving.astype(bool).sum())} while moving  ·  {len(alarms)} alarms"
    )


def _rate(axes, watched: Watched, patient: str) -> None:
    beats = watched.of(patient, "rhythm").dropna(subset=["bpm"])
    axes.plot(beats.ts, beats.bpm, color=COLOURS["rate"], linewidth=1.2)
    _with_limit(axes, watched, patient, "pulse_max", "pulse")
    _title(axes, "Pulse", "per minute")


def _variability(axes, watched: Watched, patient: str) -> None:
    beats = watched.of(patient, "rhythm").dropna(subset=["rmssd_ms", "sdnn_ms"])
    axes.plot(beats.ts, beats.rmssd_ms, color=COLOURS["rmssd"], linewidth=1.3, label="RMSSD")
    axes.plot(beats.ts, beats.sdnn_ms, color=COLOURS["sdnn"], linewidth=1.3, label="SDNN")
    top = float(beats[["rmssd_ms", "sdnn_ms"]].max().max()) if len(beats) else 50.0
    axes.set_ylim(0, max(top, 10.0) * 1.45)
    axes.legend(loc="upper left", ncols=2, frameon=False, fontsize=8, borderpad=0, handlelength=1.2)
    _title(axes, "Variability", "ms, last minute")


def _oxygen(axes, watched: Watched, patient: str) -> None:
    found = watched.of(patient, "oxygen")
    axes.plot(found.ts, found.percent, color=COLOURS["oxygen"], linewidth=1.4, marker="o", markersize=2.2)
    _with_limit(axes, watched, patient, "oxygen_min", "oxygen")
    low, high = axes.get_ylim()
    axes.set_ylim(low, min(high, 101))
    _title(axes, "Oxygen", "%, uncalibrated")


def _pressure(axes, watched: Watched, patient: str) -> None:
    found = watched.of(patient, "pressure")
    axes.fill_between(found.ts, found.diastolic, found.systolic, color=COLOURS["diastolic"], alpha=0.35, linewidth=0)
    axes.plot(found.ts, found.systolic, color=COLOURS["systolic"], linewidth=1.3)
    axes.plot(found.ts, found.diastolic, color=COLOURS["diastolic"], linewidth=1.3)
    _with_limit(axes, watched, patient, "pressure_max", "pressure")
    _title(axes, "Blood pressure", "mmHg, generated")


def _with_limit(axes, watched: Watched, patient: str, parameter: str, kind: str) -> None:
    limit = watched.limits[patient, parameter]
    end = watched.clean.ts.max()
    axes.step([*limit.since, end], [*limit.value, limit.value[-1]], where="post",
              color=COLOURS["limit"], linewidth=1.3, linestyle=(0, (4, 2)))  # fmt: skip
    alarms = watched.of(patient, "alarms")
    own = alarms[alarms.kind == kind]
    axes.plot(own.ts, own.value, "o", color=COLOURS["alarm"], markersize=4.5, zorder=5)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.04 * (high - low), high + 0.08 * (high - low))


def _shade(axes, watched: Watched, patient: str) -> None:
    motion = watched.of(patient, "motion")
    seconds = motion.ts[motion.moving.astype(bool)].tolist()
    for start, stop in _runs(seconds):
        axes.axvspan(start, stop, color=COLOURS["moving"], alpha=0.22, linewidth=0)


def _runs(seconds: Sequence[pd.Timestamp]) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    """Stretches of seconds that follow one another."""
    runs: list[list[pd.Timestamp]] = []
    one = pd.Timedelta(seconds=1)
    for second in seconds:
        if runs and second - runs[-1][1] <= one:
            runs[-1][1] = second + one
        else:
            runs.append([second, second + one])
    return [(start, stop) for start, stop in runs]


def _title(axes, what: str, unit: str) -> None:
    axes.set_title(what, loc="left", fontsize=10, fontweight="bold", pad=4)
    axes.set_title(unit, loc="right", fontsize=8.5, color=COLOURS["soft"], pad=4)


def _timed(axes, watched: Watched) -> None:
    first, last = watched.clean.ts.min(), watched.clean.ts.max()
    axes.set_xlim(first, last)
    axes.xaxis.set_major_locator(
        MinuteLocator() if last - first > pd.Timedelta(minutes=2) else SecondLocator(bysecond=[0, 30])
    )
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))
    axes.grid(True, axis="y", color="#eceff1", linewidth=0.7)
    axes.tick_params(length=2)
