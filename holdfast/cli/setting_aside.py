"""`holdfast quarantine ls | show | put-back`: rows that were set aside, and their way back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import render

__all__ = ["add_to"]

Json = Annotated[bool, typer.Option("--json", help="JSON on standard output")]
State = Annotated[Path | None, typer.Option("--state", metavar="DIR", help="state folder (default: .holdfast/NAME)")]
Of = Annotated[str | None, typer.Option("--of", metavar="NAME|FILE", help="process; needed where several ran")]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Late rows, unreadable records and rows an operator raised on.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("ls")(ls)
    group.command("show")(show)
    group.command("put-back")(put_back)
    app.add_typer(group, name="quarantine")


def ls(
    name: Annotated[str | None, typer.Argument(metavar="NAME|FILE", help="process; all when left out")] = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """What lies in quarantine."""
    from holdfast.records.quarantine import set_aside

    found = {kept.process: set_aside(kept) for kept in _all_kept(name, state)}
    if as_json:
        print(render.as_json(found))
        return
    for process, items in found.items():
        rows = sum(each.rows for each in items)
        print(f"{process}  {render.counted(rows, 'row')} in {render.counted(len(items), 'file')}")
        for each in items:
            back = f"   put back {each.put_back}" if each.put_back else ""
            print(f"  {each.kind:<7} {each.rows:>8,}  {each.item}  {each.why}{back}")


def show(
    item: Annotated[str, typer.Argument(metavar="ITEM", help="as `ls` names it, or its end")],
    of: Of = None,
    limit: Annotated[int, typer.Option(help="rows shown at most", min=0)] = 100,
    state: State = None,
    as_json: Json = False,
) -> None:
    """The rows of one file, and why they are there."""
    from holdfast.cli.watching import print_rows
    from holdfast.records.quarantine import shown_item

    found, rows = shown_item(_one_kept(of, state), item, limit=limit)
    if as_json:
        print(render.as_json(found.to_json() | {"rows_shown": rows}))
        return
    print(f"{found.item}  {render.counted(found.rows, 'row')}: {found.why}")
    print_rows(rows)


def put_back(
    items: Annotated[list[str], typer.Argument(metavar="ITEM ...", help="as `ls` names them, or their ends")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="SOURCE", help="ITEMs are Parquet files of your own: mended rows")
    ] = None,
    of: Of = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Hand rows back to their source: they become new elements of the next frames, once."""
    from holdfast.records.quarantine import put_back as put
    from holdfast.records.quarantine import put_mended

    kept = _one_kept(of, state)
    found = put(kept, items) if to is None else [put_mended(kept, Path(item), to) for item in items]
    if as_json:
        print(render.as_json(found))
        return
    for each in found:
        print(f"{render.counted(each.rows, 'row')} of {each.item} go into the next frames of source {each.stream}")


def _all_kept(name: str | None, state: Path | None) -> list[Any]:
    from holdfast.cli.reaching import state_dirs
    from holdfast.records.kept import Kept

    return [Kept(folder) for folder in state_dirs(name, state)]


def _one_kept(name: str | None, state: Path | None) -> Any:
    from holdfast.cli.watching import which_process

    kept = _all_kept(name, state)
    if len(kept) > 1:
        raise which_process("several processes have run in this folder.", kept, "holdfast quarantine show ITEM --of {}")
    return kept[0]
