"""`holdfast trace`, `du`, `clean` and `remake`: what is known of a frame, what is kept, what may go, what is made again.

All of them read the state folder and need no running process; `clean` and `remake` refuse
while one runs. Nothing is decided here: see `holdfast.records`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import render
from holdfast.errors import UsageError

__all__ = ["add_to", "print_rows", "which_process"]

Json = Annotated[bool, typer.Option("--json", help="JSON on standard output")]
State = Annotated[Path | None, typer.Option("--state", metavar="DIR", help="state folder (default: .holdfast/NAME)")]
Named = Annotated[str | None, typer.Argument(metavar="NAME|FILE", help="process; all below .holdfast when left out")]


def add_to(app: typer.Typer) -> None:
    app.command()(trace)
    app.command()(du)
    app.command()(clean)
    app.command()(remake)


def trace(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="stream, or the unit that seals it")],
    frame: Annotated[str | None, typer.Argument(metavar="FRAME", help="number of the frame")] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME|FILE", help="process")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help='search kept rows: "zone = 3 and celsius > 90"')
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="show the rows of the frame, if they are still kept")] = False,
    limit: Annotated[int, typer.Option(help="rows shown at most", min=0)] = 100,
    state: State = None,
    as_json: Json = False,
) -> None:
    """What became of a frame. When sealed, made of what, who has it; or find rows by a condition."""
    number, name = _frame_or_name(frame, name)
    if (number is None) == (where is None):
        raise UsageError(
            "HF-E017",
            "FrameOrCondition",
            "trace takes the number of a frame, or a condition with --where.",
            effect="nothing was read",
            do='holdfast trace alarms 12, or holdfast trace alarms --where "bpm > 150"',
        )
    kept = _kept_with(stream, name, state)
    if where is not None:
        _print_found(kept, stream, where, limit, as_json)
        return
    from holdfast.records.masking import shown_rows
    from holdfast.records.trace import trace_frame, trace_lines

    found = trace_frame(kept, stream, number)
    table, why = kept.rows(found.stream, number) if rows else (None, "")
    shown = [] if table is None else shown_rows(table.slice(0, limit), hide=kept.hides_values)
    if as_json:
        answer: dict[str, Any] = found.to_json()
        if rows:
            answer |= {"rows_shown": shown, "rows_missing": why}
        print(render.as_json(answer))
        return
    print("\n".join(trace_lines(found)))
    if why:
        print(f"  rows      {why}")
    print_rows(shown)


def _frame_or_name(frame: str | None, name: str | None) -> tuple[int | None, str | None]:
    """The second word is a number, or, where none is given, already the process."""
    if frame is None:
        return None, name
    if frame.replace(",", "").isdigit():
        return int(frame.replace(",", "")), name
    if name is None:
        return None, frame
    raise UsageError(
        "HF-E017",
        "FrameOrCondition",
        f"{frame!r} is no number of a frame.",
        effect="nothing was read",
        do="holdfast trace alarms 12",
    )


def _kept_with(stream: str, name: str | None, state: Path | None) -> Any:
    """The one state folder meant; without a name, the one that has such a stream."""
    from holdfast.cli.reaching import state_dirs
    from holdfast.records.kept import Kept

    folders = [Kept(folder) for folder in state_dirs(name, state)]
    having = [kept for kept in folders if stream in kept.streams or stream in kept.deployment["units"]]
    if len(having) > 1:
        raise which_process(
            f"several processes have a stream {stream!r}.", having, f"holdfast trace {stream} FRAME {{}}"
        )
    return (having or folders)[0]


def which_process(what: str, having: list[Any], do: str) -> UsageError:
    return UsageError(
        "HF-E018",
        "WhichProcess",
        what,
        why=f"they are: {', '.join(kept.root.name for kept in having)}",
        effect="nothing was read",
        do=f"name one: {do.format(having[0].root.name)}",
    )


def _print_found(kept: Any, stream: str, where: str, limit: int, as_json: bool) -> None:
    from holdfast.records.search import find_rows

    found = find_rows(kept, stream, where, limit=limit)
    if as_json:
        print(render.as_json(found))
        return
    total = sum(found.frames.values())
    print(f"{found.stream}: {render.counted(total, 'row')} in {len(found.frames):,} of {found.looked_at:,} frames kept")
    for n, why in list(found.unreadable.items())[:5]:
        print(f"  frame {n:,} was not searched: {why}")
    if len(found.unreadable) > 5:
        print(f"  and {len(found.unreadable) - 5:,} more were not searched")
    print_rows(found.rows)
    if total > len(found.rows):
        print(f"{total - len(found.rows):,} more; --limit shows more")
    if found.frames:
        print(f"on: holdfast trace {found.stream} {min(found.frames)}")


def print_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    names = list(rows[0])
    cells = [names] + [["" if row[name] is None else str(row[name]) for name in names] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    for line in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def du(name: Named = None, state: State = None, as_json: Json = False) -> None:
    """What a process keeps on disk, and why."""
    from holdfast.cli.reaching import state_dirs
    from holdfast.records.usage import usage, usage_lines

    found = [usage(folder) for folder in state_dirs(name, state)]
    if as_json:
        print(render.as_json(found[0] if len(found) == 1 else found))
        return
    print("\n".join(line for each in found for line in usage_lines(each)))


def clean(
    name: Named = None,
    yes: Annotated[bool, typer.Option("--yes", help="remove it; without this, only say what would go")] = False,
    quarantine: Annotated[bool, typer.Option("--quarantine", help="rows set aside as well")] = False,
    reports: Annotated[bool, typer.Option("--reports", help="reports as well")] = False,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Remove what no run needs again. Says what would go unless --yes; refuses while a run goes on."""
    from holdfast.cli.reaching import state_dirs
    from holdfast.records.cleaning import clean_folder, clean_lines

    found = [
        clean_folder(folder, remove=yes, quarantine=quarantine, reports=reports) for folder in state_dirs(name, state)
    ]
    if as_json:
        print(render.as_json(found[0] if len(found) == 1 else found))
        return
    print("\n".join(line for each in found for line in clean_lines(each)))


def remake(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="stream, or the unit that seals it")],
    frame: Annotated[int, typer.Argument(metavar="FRAME", help="number of the frame", min=1)],
    name: Annotated[str | None, typer.Argument(metavar="NAME|FILE", help="process")] = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Let the next run make a sealed frame again, and all after it. Refused if a sink or another host has it."""
    from holdfast.engine.flow.parameters import user
    from holdfast.records.remaking import remake_frame

    found = remake_frame(_kept_with(stream, name, state).root, stream, frame, who=user() or "unknown")
    if as_json:
        print(render.as_json(found))
        return
    print(f"{found.stream} {found.frame:,} is made again by the next run; its checksum was {found.checksum}")
    print(
        f"  back to frame {found.frame - 1:,}: {', '.join(found.units)}   {render.counted(found.frames, 'sealed frame')} removed"
    )
