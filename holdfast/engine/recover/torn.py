"""A start after the machine went down: what was not synced may be gone, torn, or there out of order.

`engine.reboot` says whether that can have happened. If it has:

    1. journals are cut at the first line that is not whole: nothing behind it was relied on
    2. frames that are not whole are deleted
    3. every unit goes back to its newest frame whose commit record and state are whole, and
       after which no frame is missing that somebody below still needs. That is never behind a
       settled cut (`engine.protect.durable`), so what it takes again is there.

Frames are pure functions of their inputs: made again they are the same, and a sink that has
them already says so. Two things stand in the way of that, and are refused: an operator
that was changed between (HF-R051), and inputs that are gone, since the disk lost what it had
confirmed, or durability="fast" was declared (HF-R052).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.engine.unit.spark_files import keep_listed
from holdfast.errors import HoldfastError, StateRefused
from holdfast.frames.files import list_frames, read_frame
from holdfast.graph.units import Unit, UnitInput
from holdfast.journals.journal import Journal
from holdfast.operators.runs import is_whole

__all__ = [
    "Below",
    "Found",
    "drop_torn_frames",
    "go_back",
    "positions",
    "state_is_whole",
]

# More records than a run ever keeps without having synced one of them.
_RECORDS = 512


# ---- frames and state ----


def drop_torn_frames(folder: Path) -> list[int]:
    """Delete the frames that are not whole; returns their numbers."""
    torn = []
    for n, _, path in list_frames(folder):
        try:
            read_frame(path, verify=True)
        except HoldfastError:
            path.unlink(missing_ok=True)
            torn.append(n)
    return torn


def state_is_whole(unit: Path, record: Mapping[str, Any]) -> bool:
    """Whether all state files are there that the commit record names."""
    for operator, shards in record["state"].items():
        for name in {run[0] for runs in shards.values() for run in runs}:
            try:
                content = (unit / "runs" / operator / name).read_bytes()
            except OSError:
                return False
            if not is_whole(name, content):
                return False
    return True


# ---- where everybody goes on: pure ----


@dataclass(frozen=True, slots=True)
class Below:
    """Who reads a stream: a unit, `delay` frames behind and none before `since`, or a sink that has frames up to `has`."""

    unit: str = ""
    delay: int = 0
    has: int = 0
    since: int = 1


@dataclass
class Found:
    """What is left of one unit."""

    candidates: list[int]  # frames after which it can go on, newest first; the last one is where it began
    frames: dict[str, set[int]]  # by stream: those that are there
    below: dict[str, list[Below]] = field(default_factory=dict)
    spark: int | None = None  # where Spark's state stands, if it has some


def positions(found: Mapping[str, Found]) -> dict[str, int]:
    """The newest frames after which all units can go on, none of them wanting what is not there."""
    at = {name: each.candidates[0] for name, each in found.items()}

    def needs_after(name: str) -> int:
        spark = found[name].spark
        return at[name] if spark is None else min(at[name], spark)

    moved = True
    while moved:
        moved = False
        for name, each in found.items():
            for stream, there in each.frames.items():
                has = [
                    max(needs_after(b.unit) - b.delay, b.since - 1) if b.unit else b.has
                    for b in each.below.get(stream, ())
                ]
                missing = next(
                    (n for n in range(max(0, min(has, default=at[name])) + 1, at[name] + 1) if n not in there), None
                )
                began = each.candidates[-1]
                if missing is not None and missing > began:
                    at[name] = next(n for n in each.candidates if n < missing)
                    moved = True
    return at


# ---- the same on a folder ----


def go_back(
    units: Sequence[Unit],
    folders: Mapping[str, Path],
    streams: Mapping[str, Path],
    begun: Mapping[str, int],
    sinks: Mapping[str, Sequence[int]],
    *,
    spark: Iterable[str],
    changed: Iterable[str],
    first: Mapping[str, int],
    since: Mapping[tuple[str, UnitInput], int] | None = None,
) -> list[str]:
    """Bring the journals of all units to where they can go on; what is to be said of it.

    `sinks`: by stream, the last frame that each sink has. `spark`: units whose state Spark keeps.
    `first`: by source, the first frame that can still be read of it; 1 where none is given. `since`: as in `engine.flow.ports`.
    """
    found, last = {}, {}
    for unit in units:
        name, folder = unit.name, folders[unit.name]
        records = [record for record in Journal(folder, "commits").tail(_RECORDS) if record["n"] > begun[name]]
        last[name] = records[-1]["n"] if records else begun[name]
        whole = [record["n"] for record in reversed(records) if state_is_whole(folder, record)]
        for stream in unit.outputs:
            drop_torn_frames(streams[stream])
        there = {stream: {n for n, _, _ in list_frames(streams[stream])} for stream in unit.outputs}
        found[name] = Found([*whole, begun[name]], there)
        if name in set(spark):
            found[name].spark = keep_listed(folder / "spark")
    for unit in units:
        for stream in unit.outputs:
            readers = [
                Below(other.name, port.feedback_frames, since=(since or {}).get((other.name, port), 1))
                for other in units
                for port in other.inputs
                if port.stream == stream
            ]
            found[unit.name].below[stream] = readers + [Below(has=n) for n in sinks.get(stream, ())]
    at = positions(found)
    said = []
    for unit in units:
        name, goes_on = unit.name, at[unit.name]
        if goes_on == last[name]:
            continue
        if name in set(changed):
            raise _changed(name, goes_on + 1, last[name])
        for port in unit.inputs:
            needed = max(1, goes_on + 1 - port.feedback_frames)
            if needed < first.get(port.stream, 1):
                raise _gone(name, folders[name], last[name], needed, port.stream, first[port.stream])
        Journal(folders[name], "commits").cut_after(goes_on)
        said.append(
            f"the machine went down: unit {name} makes frames {goes_on + 1} to {last[name]} again, what was on disk of them is not whole"
        )
    return said


def _changed(unit: str, first: int, last: int) -> StateRefused:
    return StateRefused(
        "HF-R051",
        "ChangedBeforeMadeAgain",
        f"frames {first} to {last} of unit {unit!r} have to be made again by the code that made them, and it was changed.",
        why="the machine went down before they were on disk; others may have seen them as the old code made them",
        effect="nothing was started; state and sink tables are as they were",
        do="run once with the code as it was (until the frames are made: holdfast run FILE, then holdfast stop), then with the change",
    )


def _gone(unit: str, folder: Path, last: int, needed: int, source: str, first: int) -> StateRefused:
    return StateRefused(
        "HF-R052",
        "StateTornByPowerLoss",
        f"unit {unit!r}, which was at frame {last}, has to begin with frame {needed} again, and its input is gone.",
        where=str(folder),
        why=f"source {source!r} begins with frame {first} by now. The machine went down; with durability='fast' the system decides "
        "when things reach the disk, otherwise the disk lost what it had confirmed",
        effect="nothing was started; sink tables are as they were",
        do="restore the state folder from a copy, or begin the unit's operators anew: holdfast run FILE --fresh OPERATOR",
    )
