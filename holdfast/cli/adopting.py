"""`holdfast adopt`: says where an existing Spark job stands, and what of it stays behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import render

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    app.command()(adopt)


def adopt(
    spark_checkpoint: Annotated[
        Path, typer.Option("--spark-checkpoint", metavar="DIR", help="checkpointLocation of the old job")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output")] = False,
) -> None:
    """Where an existing Structured Streaming job stands. Its last offsets, and what is not carried over."""
    from holdfast.engine.adopt import Adopted, read_checkpoint

    found: Adopted = read_checkpoint(spark_checkpoint)
    print(render.as_json(found) if as_json else "\n".join(_lines(found)))


def _lines(found) -> list[str]:  # noqa: ANN001  Adopted, which is imported only when it is needed
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
