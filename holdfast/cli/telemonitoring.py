"""`holdfast demo telemonitoring`: score the QRS detection of the ward on a record.

Imports what needs pandas or Spark only when the command runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.errors import UsageError

__all__ = ["app"]

app = typer.Typer(help="Applications built with Holdfast, on real recordings.", no_args_is_help=True)


@app.callback()
def _several() -> None:
    """Applications built with Holdfast, on real recordings."""


@app.command()
def telemonitoring(
    score_qrs: Annotated[
        str | None, typer.Option("--score-qrs", metavar="RECORD", help="annotated WFDB record: its path without suffix")
    ] = None,
    lead: Annotated[
        str | None, typer.Option(metavar="NAME", help="lead, by name or number (default: the first ECG)")
    ] = None,
    annotator: Annotated[str, typer.Option(metavar="SUFFIX", help="suffix of the annotation file")] = "atr",
    frame: Annotated[str, typer.Option(help="length of a frame: 1s, 10s, ...")] = "10s",
    restart_at: Annotated[
        int | None, typer.Option("--restart-at", metavar="N", help="kill the run at frame N and let a new one go on")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="only the first minutes of the record")] = None,
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="new folder for input, state and beats (default: a temporary one)"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="no progress, only the JSON line")] = False,
) -> None:
    """Find the beats of a record with the ward's pipeline and compare them with its annotations.

    Progress on standard error; the last line on standard output is JSON.
    """
    if score_qrs is None:
        raise UsageError(
            "HF-A005",
            "NothingToScore",
            "no record was given.",
            effect="nothing was run",
            do="holdfast demo telemonitoring --score-qrs RECORD; the ward itself: make demo",
        )
    if work is not None and work.exists() and any(work.iterdir()):
        raise UsageError(
            "HF-A006",
            "WorkFolderNotEmpty",
            f"folder {str(work)!r} is not empty.",
            why="beats of another run would be counted",
            effect="nothing was run, nothing was changed",
            do="name a new folder, or leave --work out",
        )
    from holdfast.apps.telemonitoring import scoring
    from holdfast.cli import render

    with tempfile.TemporaryDirectory(prefix="holdfast-qrs-") as temporary:
        folder = (work or Path(temporary) / "work").absolute()
        settings: dict[str, Any] = {
            "lead": lead,
            "annotator": annotator,
            "frame": frame,
            "restart_at": restart_at,
            "minutes": minutes,
        }
        if as_json:
            result = scoring.score_qrs(score_qrs, folder, **settings)
        else:
            with render.Progress() as progress:
                result = scoring.score_qrs(score_qrs, folder, say=_say, on_progress=progress, **settings)
            _say(_sentence(result))
    print(json.dumps(result))


def _sentence(result: dict) -> str:
    return (
        f"{result['beats']:,} beats found, {result['annotated']:,} annotated: {result['missed']:,} missed, "
        f"{result['extra']:,} extra (within 100 ms)"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
