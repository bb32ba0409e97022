"""`holdfast adopt`: says where an existing Spark job stands, and what of it stays behind.
`holdfast adopt-table`: a state folder goes on in a target that another one wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import render

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    app.command()(adopt)
    app.command("adopt-table")(adopt_table)


def adopt(
    spark_checkpoint: Annotated[
        Path, typer.Option("--spark-checkpoint", metavar="DIR", help="checkpointLocation of the old job")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output")] = False,
) -> None:
    """Where an existing Structured Streaming job stands. Its last offsets, and what is not carried over."""
    from holdfast.engine.plain.adopt import Adopted, read_checkpoint

    found: Adopted = read_checkpoint(spark_checkpoint)
    print(render.as_json(found) if as_json else "\n".join(_lines(found)))


def adopt_table(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Python file with the process; FILE:name if it has several")
    ],
    sink: Annotated[str, typer.Argument(metavar="SINK", help="the sink whose table or folder is taken over")],
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="state folder (default: .holdfast/NAME)")
    ] = None,
    renumber: Annotated[
        bool,
        typer.Option(
            "--renumber", help="the state folder was put back from an older copy: go on above the frames that are there"
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output")] = False,
) -> None:
    """Go on in a table another state folder wrote, or that lost or gained rows. What is there stays as it is."""
    from holdfast.declare.loading import load
    from holdfast.engine.run.adopt_table import adopt_table as take

    taken = take(load(file), sink, state=state, renumber=renumber)
    if as_json:
        print(render.as_json(taken))
        return
    for sentence in taken.accepted:
        print(f"accepted: {sentence}")
    print(
        f"sink {sink} has frames up to {taken.last:,}; frame {taken.written + 1:,} of this state folder is written as {taken.last + 1:,}"
    )


def _lines(found) -> list[str]:
    query = f", query {found.query_id}" if found.query_id else ""
    if found.batch is None:
        return [f"{found.checkpoint}{query}: no batch was committed, so there is nothing to go on from"]
    lines = [f"{found.checkpoint}{query}: last committed batch {found.batch:,}"]
    for source in found.sources:
        lines.append(f"  source {source.place}  {source.kind:<6} {source.go_on}")
        if source.starting_offsets:
            lines.append(f"            .option(\"startingOffsets\", '{source.starting_offsets}')")
        elif source.kind in ("number", "other"):
            lines.append(f"            {render.as_json(source.offset)}")
    lines.append("not carried over")
    lines += [f"  - {each}" for each in found.not_carried_over]
    return lines
