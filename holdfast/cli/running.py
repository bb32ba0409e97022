"""`holdfast run`: start, show, wait, and say how it ended.

Ctrl-C and SIGTERM stop after the frame in work (the run sees to that while it is
waited for); before it runs they break off the start, of which nothing remains. A
second Ctrl-C leaves at once: a new run resumes from what is sealed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.cli import render
from holdfast.errors import UsageError

__all__ = ["replay_until_done", "run_until_done"]


def run_until_done(
    process: Any, file: str, *, as_json: bool, state: Path | None, rate: str | None, **settings: Any
) -> int:
    """The exit code. Errors of the run are raised."""
    begin = partial(process.start, state=state, rate=_number(rate), **settings)
    return _shown(begin, f"holdfast run {file}", as_json)


def replay_until_done(
    process: Any, file: str, asked: dict[str, Any], said: dict[str, Any], decided: dict[str, Any], *, as_json: bool
) -> int:
    """The same for a replay; what belongs to an ordinary run has no meaning here."""
    from holdfast.engine.run.replay import start_replay

    stray = next((word for word, value in decided.items() if value), None)
    both = asked["from_frame"] is not None and asked["from_time"] is not None
    if asked["into"] is None or stray is not None or both:
        why = "it has two beginnings"
        if stray is not None:
            why = f"{stray} is for an ordinary run"
        elif asked["into"] is None:
            why = "a replay writes beside the original, so it needs a place"
        raise UsageError(
            "HF-E027",
            "NotAReplay",
            "this is no replay.",
            why=why,
            effect="nothing was started",
            do="holdfast run FILE --from-frame 10 --until 20 --into TABLE (or a folder: --into replayed/)",
        )
    first = asked["from_frame"] if asked["from_frame"] is not None else asked["from_time"]
    said = {**said, "rate": _number(said["rate"])}
    begin = partial(start_replay, process, into=asked["into"], first=first, until=asked["until"], **said)
    options = [f"--{name.replace('_', '-')} {value}" for name, value in asked.items() if value is not None]
    return _shown(begin, f"holdfast run {file} {' '.join(options)}", as_json)


def _shown(begin: Callable[..., Any], again: str, as_json: bool) -> int:
    """Start, show, wait."""
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with render.Progress() as progress:
            try:
                run = begin(on_progress=progress)
            except KeyboardInterrupt:
                progress.say(f"stopped while starting: no frame was made or written.   again: {again}")
                raise
            try:
                try:
                    _introduce(run, progress)
                except KeyboardInterrupt:
                    run.stop()  # asked before it was waited for
                run.wait()
            except KeyboardInterrupt:
                # The second one. Everything sealed is safe, and whoever asks twice means it.
                progress.__exit__()
                print(f"ended at once; what is sealed is kept.   go on: {again}", file=sys.stderr, flush=True)
                sys.stdout.flush()
                os._exit(130)
    finally:
        signal.signal(signal.SIGTERM, before)
    status = run.status().to_json()
    print(render.as_json(status) if as_json else render.summary(status, again))
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
