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
from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parent
PROGRAMS = {
    # The kiln is damped from second 35 on; its last half minute shows nothing new.
    "kiln": ("a zone is damped while its mean runs hot (feedback)", "probes", ["--until-frame", "60"]),
    "ward": ("alarm when a heart runs fast at rest (real ECG)", "ward_data", []),
}
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
    show("kiln.duckdb, table damped: zone 1 in steps of 15 s", ["from", "zone", "measured °C", "damped °C", "damped readings"], rows)


def ward_results(folder: Path) -> None:
    with sqlite3.connect(folder / "ward.db") as db:
        beats = db.execute("select patient, count(*), avg(bpm), max(bpm) from pulse group by 1 order by 1").fetchall()
        alarms = db.execute("select patient, substr(ts, 12, 10), bpm, _frame from alarms order by ts").fetchall()
    show("ward.db, table pulse: beats in three minutes", ["patient", "beats", "mean bpm", "fastest"], beats)
    show("ward.db, table alarms: faster than 100 at rest", ["patient", "at", "bpm", "frame"], alarms)
    console.print("Bed 2 was as fast twice more, at 06:00:45 and 06:00:51, while moving: no alarm.")


def main(folder: Path) -> None:
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, (what, data, words) in PROGRAMS.items():
        console.rule(f"[bold]{name}.py[/bold]: {what}")
        shutil.copy(EXAMPLES / f"{name}.py", folder)
        shutil.copytree(EXAMPLES / data, folder / data)
        holdfast(folder, "show", f"{name}.py", "--svg", f"{name}.svg")
        holdfast(folder, "run", f"{name}.py", "--rate", "fast", *words)
    console.rule("[bold]What came out[/bold]")
    kiln_results(folder)
    ward_results(folder)
    console.print(
        f"\n{time.monotonic() - began:.0f} s, two Spark sessions included. Programs, tables and drawings (kiln.svg, ward.svg)"
        f" are in {folder}. Next: the tour in README.md."
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo"))
