"""A unit that may lose goes on after the loss of its host: behind all that anybody has seen of it.

It has its state of a checkpoint, or none. `protocols.placing` finds its place: no number
that a consumer holds is made again with other content, and no input is waited for that
is gone. Numbers that nobody can be given any more are sealed LOST: empty, and said to be
so, since a number that never comes would stop every consumer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.engine.flow.marking import Tally, lost_tally
from holdfast.frames.content import canonical, checksum
from holdfast.frames.files import frame_name, publish, write_frame
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.journals.journal import Journal
from holdfast.protocols.placing import Placing
from holdfast.protocols.wiring import Wiring

__all__ = ["Neighbours", "Placed", "go_on_after"]


@dataclass(frozen=True)
class Neighbours:
    """What the others know: by output edge how far its consumer is (None: it lost its place too), by input edge the
    first frame there is (None: its producer lost its place too)."""

    reached: Mapping[str, int | None]
    first: Mapping[str, int | None]


@dataclass(frozen=True)
class Placed:
    frame: int
    lost: tuple[int, int] | None  # first and last number that is LOST


def go_on_after(
    unit: Path,
    wiring: Wiring,
    restored: int,
    neighbours: Neighbours,
    outputs: Sequence[tuple[Path, str, Schema]],
    *,
    staging: Path,
    epoch: int,
    boundary_us: int,
    tallies: Mapping[str, Tally],
) -> Placed:
    """Write the unit's place into its journal, and LOST frames into its streams (folder, name, schema each)."""
    placing = Placing(wiring, restored)
    for edge in wiring.inputs:
        if (first := neighbours.first.get(edge.edge)) is not None:
            placing.offered(edge.edge, first)
        elif edge.delay == 0:
            placing.offered(edge.edge, 1)
    for edge in wiring.outputs:
        reached = neighbours.reached[edge.edge]
        placing.resumed(edge.edge, reached, reached or 0)
    frame = placing.decide().frame
    known = [reached for reached in neighbours.reached.values() if reached is not None]
    after = min(known, default=frame)
    lost = lost_tally(Journal(unit, "commits").last() or {}, tallies, max(0, frame - after))
    if frame > restored or frame > after:
        _move(unit, frame, restored, epoch, boundary_us, lost)
    for folder, stream, schema in outputs:
        for n in range(after + 1, frame + 1):
            _seal_lost(folder, stream, schema, n, staging, epoch, boundary_us)
    return Placed(frame, (after + 1, frame) if frame > after else None)


def _move(unit: Path, frame: int, restored: int, epoch: int, boundary_us: int, tally: dict[str, Any]) -> None:
    """The state stays, the number moves: what is between was not seen, and the next frames are marked for it."""
    journal = Journal(unit, "commits")
    last = journal.last() or {"state": {}}
    record: dict[str, Any] = {
        **last, "n": frame, "epoch": epoch, "boundary_us": boundary_us, "inputs": [], "outputs": {}, "counts": {},
        "at": time.time(), "skipped": frame - last.get("n", 0), "tally": tally,
        "lacks": frame - restored + last.get("lacks", 0),
    }  # fmt: skip
    record.pop("marks", None)
    for checkpoint in (unit / "spark").glob("[0-9]*"):
        if checkpoint.is_dir() and frame > restored:
            _move_spark(checkpoint, frame)
    journal.append(record)
    journal.close()


def _move_spark(checkpoint: Path, frame: int) -> None:
    """Spark's last offset names the frame the next batch begins after."""
    offsets = sorted((path for path in (checkpoint / "offsets").glob("[0-9]*")), key=lambda path: int(path.name))
    if offsets:
        *before, last = offsets[-1].read_text().splitlines()
        offsets[-1].write_text("\n".join([*before, json.dumps(json.loads(last) | {"n": frame, "inputs": []})]))


def _seal_lost(folder: Path, stream: str, schema: Schema, n: int, staging: Path, epoch: int, boundary_us: int) -> None:
    table = canonical(schema.arrow.empty_table(), schema, None)
    total = checksum(table, n=n, boundary_us=boundary_us, kind=Kind.LOST)
    path = write_frame(
        staging, table, stream=stream, n=n, kind=Kind.LOST, epoch=epoch, boundary_us=boundary_us, checksum=total,
        reason="its host was lost, and nobody can make it again",
    )  # fmt: skip
    publish(path, folder / frame_name(n, Kind.LOST))
