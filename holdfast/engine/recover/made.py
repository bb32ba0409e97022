"""Which code made which frames: one that somebody has is made again by the same code, or not at all.

A unit may have to make frames again that others have: its host was lost and it comes back from an
older checkpoint, or the machine went down before they were on disk. The same code makes them the
same. After a change of its operators it would not: a table refuses the frame (HF-F001) at every
start, and a function, which cannot tell, is handed other rows under an old number. So the
deployment says of every unit

    "code": {UNIT: [[after, digest], ...]}   frames after `after` were made by the operators of this digest

and a unit that stands before frames of other code is not started (HF-R051).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from holdfast.errors import StateRefused
from holdfast.frames.files import list_frames
from holdfast.graph.units import Unit

if TYPE_CHECKING:
    from holdfast.engine.flow.scheduler import Board
    from holdfast.engine.flow.sink_runner import Outlet
    from holdfast.engine.recover.attempts import Crew
    from holdfast.engine.unit.query import UnitQuery

__all__ = [
    "Others",
    "begun_anew",
    "code_of",
    "had_of",
    "lowest",
    "made_by_other_code",
    "onward",
    "others_in",
    "stand_code",
]

History = list[list]
# A unit goes back to a checkpoint, not to its first days.
_KEPT = 16


@dataclass(frozen=True, slots=True)
class Others:
    """Frames that were made by other code than today's."""

    first: int
    last: int


def code_of(deployment: Mapping[str, Any], unit: str) -> str:
    """A digest of the operators of a unit, as a deployment describes them."""
    known = deployment.get("operators", {})
    lines = (f"{name} {known.get(name, '')}\n" for name in sorted(deployment["units"].get(unit, ())))
    return xxhash.xxh3_64_hexdigest("".join(lines).encode())


def others_in(history: History, now: str, at: int, seen: int) -> Others | None:
    """The first frames after `at` and up to `seen` that other code made, one after the other."""
    for place, (after, digest) in enumerate(history):
        until = history[place + 1][0] if place + 1 < len(history) else seen
        first, last = max(after, at) + 1, min(until, seen)
        if digest != now and first <= last:
            return Others(first, last)
    return None


def onward(history: History, now: str, at: int, seen: int) -> History:
    """As it is for who goes on after `at` with today's code."""
    if at < seen:  # frames are made again: what was written of them holds
        return [each for each in history if each[0] < seen][-_KEPT:]
    before = [each for each in history if each[0] < at]
    return (before if before and before[-1][1] == now else [*before, [at, now]])[-_KEPT:]


def lowest(history: History, now: str, at: int) -> int:
    """The first frame after which all up to `at`, and the next, are today's code's: so far back it may go."""
    found = at
    for after, digest in reversed([each for each in history if each[0] <= at]):
        if digest != now:
            break
        found = after
    return found


def stand_code(
    board: Board,
    crew: Crew,
    outlets: Sequence[Outlet],
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    until: int | None,
) -> dict[str, History]:
    """For the deployment; refuses a unit that would make again, with other code, what somebody has.

    Every unit hears how far it may go back.
    """
    found = {}
    done = {name: state.processed for name, state in board.units.items()}
    for query in crew:
        name, now = query.unit.name, code_of(new, query.unit.name)
        if old is None:
            found[name] = [[query.begun, now]]
        else:
            # One that is called otherwise than before makes the streams of another, which is other code.
            is_known = name in old.get("start", {})
            history = old.get("code", {}).get(name) or [[0, code_of(old, name) if is_known else ""]]
            at, seen = _on_disk(query), had_of(query.unit, done, outlets, old)
            others = others_in(history, now, at, seen)
            if others is not None and (others.first == at + 1 or until is None or until >= others.first):
                raise made_by_other_code(name, at, others)
            found[name] = onward(history, now, at, seen) if is_known else [[query.begun, now]]
        query.made_after = lowest(found[name], now, query.committed)
    return found


def _on_disk(query: UnitQuery) -> int:
    """The last frame without a gap that is committed, or sealed and found as it is."""
    there = [{n for n, _, _ in list_frames(folder)} for folder in query.stream_folders]
    at = query.committed
    while there and all(at + 1 in each for each in there):
        at += 1
    return at


def had_of(unit: Unit, done: Mapping[str, int], outlets: Sequence[Outlet], old: Mapping[str, Any]) -> int:
    """The last frame of a unit that a sink may have, or another unit has taken. `done`: by unit, the last frame it has done.

    Who did not read the stream in the deployment before has nothing of it.
    """
    found = [0]
    for reader, ports in old.get("ports", {}).items():
        for port in ports if reader != unit.name and reader in done else ():
            stream, _, behind = port.rpartition("@")
            found += [done[reader] - int(behind)] * (stream in unit.outputs)
    known, targets = old.get("sinks", {}), old.get("targets", {})
    for each in outlets:
        stream = each.sink.stream
        if (
            stream in unit.outputs
            and each.sink.name in known
            and targets.get(each.sink.name, {}).get("stream", stream) == stream
        ):
            found.append(each.may_have())
    return max(found)


def begun_anew(
    units: Sequence[Unit],
    fresh: Collection[str],
    begins: dict[str, int],
    done: Mapping[str, int],
    outlets: Sequence[Outlet],
    old: Mapping[str, Any],
) -> None:
    """A unit with a `fresh` operator, whose host may be lost, begins behind all that anybody has of it."""
    for unit in units:
        if {*fresh} & {*unit.operators} and unit.name in done:
            begins[unit.name] = max(begins[unit.name], done[unit.name], had_of(unit, done, outlets, old))


def made_by_other_code(unit: str, at: int, others: Others, *, runs: bool = False) -> StateRefused:
    do = f"run with the code as it was then: holdfast run FILE --until-frame {others.last}\n(--keep OPERATOR where it asks), then with the change"
    if others.first > at + 1:
        do = f"run with this code until then: holdfast run FILE --until-frame {others.first - 1}\nthen with the code that made the others"
    return StateRefused(
        "HF-R051",
        "ChangedBeforeMadeAgain",
        f"frames {others.first} to {others.last} of unit {unit!r} have to be made again by the code that made them, and it was changed.",
        why=f"it stands at frame {at}: its host was lost, or the machine went down; others have those frames as the other code made them",
        effect="the unit stands still and what is below it; state and sink tables are as they were"
        if runs
        else "nothing was started; state and sink tables are as they were",
        do=do,
    )
