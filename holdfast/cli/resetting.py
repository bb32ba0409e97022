"""`holdfast reset`: start over. Says what goes and what stays, asks, and does it.

Nothing is decided here: see `engine.run.reset`. Without a terminal to ask at it needs --yes.
Exit 5 when the ledger of a sink could not be handed over; the same command tries again.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import render
from holdfast.errors import UsageError

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    app.command()(reset)


def reset(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Python file with the process; FILE:name if it has several")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="do it without asking")] = False,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="state folder (default: .holdfast/NAME)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output; needs --yes to remove")] = False,
) -> None:
    """Start over: remove the state folder. Tables stay; says what goes, and asks unless --yes."""
    from holdfast.engine.run.reset import reset as start_over
    from holdfast.engine.run.reset import reset_lines
    from holdfast.loading import load

    process = load(file)
    again = f"holdfast reset {shlex.quote(file)} --yes" + (f" --state {shlex.quote(str(state))}" if state else "")
    found = start_over(process, state=state, remove=False)
    if not yes:
        print(render.as_json(found) if as_json else "\n".join(reset_lines(found, again)), flush=True)
        if as_json or not sys.stdin.isatty():
            raise UsageError(
                "HF-E063",
                "NotConfirmed",
                "nothing was removed: nobody said yes.",
                why="there is no terminal to ask at",
                effect="nothing was changed",
                do=again,
            )
        if not typer.confirm("Remove it?", default=False):
            raise typer.Exit(2)
    found = start_over(process, state=state, remove=True)
    print(render.as_json(found) if as_json else "\n".join(reset_lines(found, again)))
    raise typer.Exit(5 if found.failed else 0)
