"""The page at the end of the demo: one HTML file without anything from elsewhere, and a picture.

Reads what the sinks of the ward wrote: `collect` from SQLite and the record store.
"""

from __future__ import annotations

import html
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from holdfast.apps.telemonitoring.picture import COLOURS, Limit, Watched, as_png, as_svg

__all__ = ["collect", "limits_of", "write_page"]

_TABLES = ("rhythm", "oxygen", "motion", "alarms")
_UNITS = {"pulse": "/min", "oxygen": "%", "pressure": "mmHg"}


def collect(folder: Path, limits: dict[tuple[str, str], Limit]) -> Watched:
    """From ward.db, the record store and the generated pressure in a folder."""
    with sqlite3.connect(folder / "ward.db") as db:
        tables = {name: pd.read_sql(f"select * from {name}", db) for name in _TABLES}
    for table in tables.values():
        table["ts"] = pd.to_datetime(table.ts, utc=True, format="ISO8601")
    clean = pq.read_table(sorted((folder / "record").glob("frame-*.parquet"))).to_pandas()
    pressure = pq.read_table(folder / "ward_data" / "pressure_generated.parquet").to_pandas()
    return Watched(clean=clean, pressure=pressure, limits=limits, **tables)


def limits_of(
    patients: Iterable[str],
    defaults: Mapping[str, float],
    changes: Iterable[Mapping[str, Any]],
    start: pd.Timestamp,
    frame: pd.Timedelta,
) -> dict[tuple[str, str], Limit]:
    """Each bed's thresholds over time, from the log of changes (frame, name, value, key)."""
    found = {(p, name): Limit([start], [value]) for p in patients for name, value in defaults.items()}
    for change in changes:
        for patient, name in found:
            if name == change["name"] and change["key"] in (None, "", patient):
                found[patient, name].since.append(start + (change["frame"] - 1) * frame)
                found[patient, name].value.append(float(change["value"]))
    return found


def write_page(watched: Watched, changes: list[Mapping[str, Any]], page: Path, picture: Path) -> None:
    beds = "\n".join(f'<section class="bed">{as_svg(watched, patient)}</section>' for patient in watched.patients)
    text = _PAGE.format(
        colours="".join(f"--{name}:{value};" for name, value in COLOURS.items()),
        tiles="".join(_tile(watched, patient) for patient in watched.patients),
        beds=beds,
        alarms=_alarms(watched),
        changes=_changes(changes),
        day=watched.clean.ts.min().strftime("%Y-%m-%d"),
    )
    page.write_text(text, encoding="utf-8")
    as_png(watched, picture)


def _tile(watched: Watched, patient: str) -> str:
    beats, alarms = watched.of(patient, "rhythm"), watched.of(patient, "alarms")
    oxygen = watched.of(patient, "oxygen").percent.mean()
    state = "calm" if alarms.empty else "loud"
    return (
        f'<div class="tile {state}"><h2>{html.escape(patient.replace("_", " "))}</h2>'
        f"<p><b>{beats.bpm.mean():.0f}</b> beats a minute</p><p><b>{oxygen:.0f}</b> % oxygen</p>"
        f"<p><b>{len(alarms)}</b> alarm{'s' if len(alarms) != 1 else ''}</p></div>"
    )


def _alarms(watched: Watched) -> str:
    rows = watched.alarms.sort_values(["ts", "patient", "kind"])
    return "".join(
        f"<tr><td>{row.ts:%H:%M:%S}</td><td>{html.escape(row.patient)}</td><td>{html.escape(row.kind)}</td>"
        f'<td class="n">{row.value:.1f} {_UNITS.get(row.kind, "")}</td><td class="n">{row.limit:g}</td></tr>'
        for row in rows.itertuples()
    )


def _changes(changes: list[Mapping[str, Any]]) -> str:
    return (
        "".join(
            f"<tr><td>frame {change['frame']}</td><td>{html.escape(str(change['key'] or 'all'))}</td>"
            f"<td>{html.escape(change['name'])} = {change['value']:g}</td><td>{html.escape(change.get('note', ''))}</td></tr>"
            for change in changes
        )
        or '<tr><td colspan="4">none</td></tr>'
    )


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The ward</title><style>
:root {{{colours}}}
body {{ margin: 0 auto; max-width: 1280px; padding: 28px 24px 60px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 "DejaVu Sans", Verdana, system-ui, sans-serif; }}
h1 {{ margin: 0; font-size: 30px; }} h3 {{ margin: 34px 0 8px; }}
.soft {{ color: var(--soft); }} .key span {{ margin-right: 20px; white-space: nowrap; }}
.key i {{ display: inline-block; width: 16px; height: 11px; margin-right: 7px; border-radius: 2px; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 16px; margin: 20px 0; }}
.tile {{ flex: 1 1 220px; background: #fff; border-radius: 10px; padding: 14px 20px; border-top: 5px solid var(--rmssd);
  box-shadow: 0 1px 4px #0001; }} .tile.loud {{ border-color: var(--alarm); }}
.tile h2 {{ margin: 0 0 4px; font-size: 17px; }} .tile p {{ margin: 0; }} .tile b {{ font-size: 21px; }}
.bed {{ background: #fff; border-radius: 10px; margin: 16px 0; padding: 6px; box-shadow: 0 1px 4px #0001; }}
.bed svg {{ display: block; width: 100%; height: auto; }}
.tables {{ display: grid; grid-template-columns: 1fr 1fr; gap: 40px; align-items: start; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13.5px; }}
th {{ text-align: left; color: var(--soft); font-weight: normal; }} td, th {{ padding: 3px 14px 3px 0; }}
tr + tr td {{ border-top: 1px solid #eceff1; }} .n {{ text-align: right; font-variant-numeric: tabular-nums; }}
@media (max-width: 800px) {{ .tables {{ grid-template-columns: 1fr; }} }}
</style></head><body>
<h1>The ward</h1>
<p class="soft">{day}, three minutes. Every beat, alarm and threshold below was read from the tables the run wrote.</p>
<p class="key"><span><i style="background:var(--beat)"></i>beat found</span><span><i style="background:var(--moving)"></i>patient
moves: no alarm of the pulse</span><span><i style="background:var(--limit)"></i>threshold</span><span><i
style="background:var(--alarm)"></i>alarm</span></p>
<div class="tiles">{tiles}</div>
{beds}
<div class="tables"><div><h3>Alarms</h3><table><tr><th>at</th><th>bed</th><th>what</th><th class="n">value</th><th
class="n">threshold</th></tr>{alarms}</table></div>
<div><h3>Thresholds changed while it ran</h3><table><tr><th>from</th><th>for</th><th>value</th><th>note</th></tr>{changes}</table>
<h3>Where the data come from</h3><p class="soft">ECG of beds 1 and 2: MIT-BIH Arrhythmia Database, records 100 and 208
(Moody and Mark 2001; PhysioNet; Open Data Commons Attribution License 1.0). ECG of bed 3, acceleration and the light of
the finger clip: biosignalsnotebooks, PLUX (MIT License). Blood pressure is generated. Oxygen has no calibration. Not for
medical use.</p></div></div>
</body></html>
"""
