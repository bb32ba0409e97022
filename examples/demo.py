"""make demo: two stream processes on recorded files, in a fresh folder, and what came out.

Everything here is a command or a query a person could type; FOLDER (default build/demo)
keeps the programs, their state, their tables and the drawings.
"""

import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import duckdb
import pandas as pd
from rich.console import Console
from rich.table import Table

from holdfast.apps.telemonitoring.page import collect, limits_of, write_page
from holdfast.cli.reaching import change_log
from holdfast.declare.loading import load

EXAMPLES = Path(__file__).resolve().parent
PROGRAMS = {
    "kiln": ("a zone is damped while its mean runs hot (feedback)", "probes"),
    "ward": ("hearts, oxygen and pressure of three beds (real ECG)", "ward_data"),
}
# What a nurse might change while it runs.
CHANGES = (
    ("bed_2", "known arrhythmia", {"pulse_max": 125.0}),
    ("bed_1", "lung patient", {"oxygen_min": 91.0}),
)
console = Console(highlight=False)


def holdfast(folder: Path, *words: str) -> None:
    console.print(f"\n[bold]$ holdfast {' '.join(words)}[/bold]")
    command = Path(sysconfig.get_path("scripts")) / "holdfast"
    start = [str(command)] if command.exists() else [sys.executable, "-c", "from holdfast.cli.main import main; main()"]
    done = subprocess.run([*start, *words], cwd=folder)
    if done.returncode:
        sys.exit(done.returncode)


def show(title: str, names: list[str], found: list[tuple]) -> None:
    console.print(f"\n[bold]{title}[/bold]")
    table = Table(*names)
    for row in found:
        table.add_row(*[f"{value:.1f}" if isinstance(value, float) else str(value) for value in row])
    console.print(table)


def kiln_results(folder: Path) -> None:
    with duckdb.connect(str(folder / "kiln.duckdb"), read_only=True) as db:
        rows = db.execute(
            f"""select strftime(time_bucket(interval '15 seconds', ts at time zone 'UTC'), '%H:%M:%S'), zone,
                       avg(p.celsius), avg(d.celsius), count_if(d.celsius < p.celsius)
                from damped d join read_parquet('{folder}/probes/*.parquet') p using (ts, zone)
                group by 1, 2 having zone = 1 order by 1"""
        ).fetchall()
    show(
        "kiln.duckdb, table damped: zone 1 in steps of 15 s",
        ["from", "zone", "measured °C", "damped °C", "damped readings"],
        rows,
    )


def watch_the_ward(folder: Path) -> list[dict]:
    """Runs the ward twenty times as fast as life and changes two thresholds on the way; the log of changes."""
    ward = load(str(folder / "ward.py"))
    console.print('\n[bold]>>> with ward.start(rate="20x") as run:[/bold]')
    with ward.start(state=folder / "state" / "ward_4", rate="20x") as run:
        # A change holds from the next frame nobody has begun, so what counts is how far the sources are.
        while min(source.sealed for source in run.status().sources) < 15 and not run.finished:
            time.sleep(0.1)
        for patient, note, values in CHANGES:
            change = run.set(key=patient, note=note, **values)
            console.print(
                f"    run.set({values}, key={patient!r}, note={note!r})   from frame {change.frame} on", soft_wrap=True
            )
        run.wait()
    return change_log(folder / "state" / "ward_4")


def ward_results(folder: Path, changes: list[dict]) -> None:
    with sqlite3.connect(folder / "ward.db") as db:
        beats = db.execute(
            """select patient, count(*), sum(moving), avg(bpm), avg(rmssd_ms), avg(sdnn_ms) from rhythm group by 1 order by 1"""
        ).fetchall()
        alarms = db.execute(
            """select patient, kind, count(*), substr(min(ts), 12, 8), substr(max(ts), 12, 8), min(value), max(value)
               from alarms group by 1, 2 order by 1, 2"""
        ).fetchall()
    names = ["patient", "beats", "while moving", "mean bpm", "RMSSD ms", "SDNN ms"]
    show("ward.db, table rhythm: beats in three minutes", names, beats)
    names = ["patient", "kind", "alarms", "first", "last", "least", "most"]
    show("ward.db, table alarms", names, alarms)
    draw(folder, changes)


def draw(folder: Path, changes: list[dict]) -> None:
    ward = load(str(folder / "ward.py")).graph()
    defaults = {param.name: param.default for param in ward.params}
    start = pd.Timestamp("2026-01-05 06:00", tz="UTC")  # of frame 1: ward_data/README.md
    limits = limits_of(["bed_1", "bed_2", "bed_3"], defaults, changes, start, pd.Timedelta(milliseconds=ward.frame_ms))
    write_page(collect(folder, limits), changes, folder / "ward.html", folder / "ward.png")
    console.print(f"\n[bold]To look at: {folder / 'ward.html'}[/bold] (and ward.png)")


def main(folder: Path) -> None:
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, (what, data) in PROGRAMS.items():
        console.rule(f"[bold]{name}.py[/bold]: {what}")
        shutil.copy(EXAMPLES / f"{name}.py", folder)
        shutil.copytree(EXAMPLES / data, folder / data)
        holdfast(folder, "show", f"{name}.py", "--svg", f"{name}.svg")
        if name == "kiln":
            # The kiln is damped from second 35 on; its last half minute shows nothing new.
            holdfast(folder, "run", "kiln.py", "--rate", "fast", "--until-frame", "60")
        else:
            changes = watch_the_ward(folder)
    console.rule("[bold]What came out[/bold]")
    kiln_results(folder)
    ward_results(folder, changes)
    console.print(
        f"\n{time.monotonic() - began:.0f} s, two Spark sessions included. Programs, tables and drawings (kiln.svg, ward.svg)"
        f" are in {folder}. Next: the tour in README.md."
    )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo"))
    except KeyboardInterrupt:
        sys.exit("stopped; make demo begins anew in a fresh folder")
