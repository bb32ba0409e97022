"""`holdfast run`: start, show, wait, and say how it ended.

Ctrl-C and SIGTERM stop after the frame in work (the run sees to that while it is
waited for); before it runs they break off the start, of which nothing remains. A
second Ctrl-C leaves at once: a new run resumes from what is sealed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from holdfast.cli import render

__all__ = ["run_until_done"]


def run_until_done(process: Any, file: str, *, as_json: bool, state: Path | None, rate: str | None, **settings: Any) -> int:
    """The exit code. Errors of the run are raised."""
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with render.Progress() as progress:
            run = process.start(state=state, rate=_number(rate), on_progress=progress, **settings)
            try:
                try:
                    _introduce(run, progress)
                except KeyboardInterrupt:
                    run.stop()  # asked before it was waited for
                run.wait()
            except KeyboardInterrupt:
                # The second one. Everything sealed is safe, and whoever asks twice means it.
                progress.__exit__()
                sys.stdout.flush()
                os._exit(130)
    finally:
        signal.signal(signal.SIGTERM, before)
    status = run.status().to_json()
    print(render.as_json(status) if as_json else render.summary(status, f"holdfast run {file}"))
    return 0


def _introduce(run: Any, progress: render.Progress) -> None:
    """What was found and how the process is cut, before the first frame."""
    for finding in run.findings:
        progress.say(str(finding))
    units = run.units()
    cut = " ".join(f"[{', '.join(unit.operators)}]" for unit in units)
    notes = " | ".join([*run.status().notes, f"state {_short(run.folder.root)}"])
    progress.say(f"{run.graph.name}  activated  {notes} | {render.counted(len(units), 'unit')}: {cut}")
    for unit in units:
        if len(units) > 1 and unit.why:
            progress.say(f"    {unit.name}: {unit.why}")


def _as_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _number(rate: str | None) -> object:
    """Rows a second as a number; other paces as they are written."""
    try:
        return float(rate) if rate is not None else None
    except ValueError:
        return rate


def _short(path: Path) -> str:
    try:
        return f"./{path.relative_to(Path.cwd())}"
    except ValueError:
        return str(path)
