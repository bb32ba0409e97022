"""What units counted that the process no longer has, or that make other streams now.

A unit is called after its operators, so an operator that is added may rename it. A promise is
of an output: frames that are LOST or marked and rows that were left out count against it
whatever the units above it are called today. So they are kept in the deployment:

    "gone": {UNIT: {"below": [streams that can have rows of it], "tally": {stream: counts}, "too_late": {operator: rows}}}

Rows that its operators were allowed to leave out are counted from the decisions about it, which stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.flow.marking import Tally
from holdfast.graph.units import Unit
from holdfast.journals.journal import Journal

__all__ = ["Gone", "gone_since"]


@dataclass(frozen=True)
class Gone:
    """By unit as in the deployment; asked by the stream of a sink."""

    units: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, Mapping[str, int]]] = field(
        default_factory=dict
    )  # unit -> on_error -> operator -> rows

    def tally(self, stream: str) -> Tally:
        found = Tally()
        for unit in self.units.values():
            found = Tally.of(unit["tally"].get(stream, {})).plus(found)
        return found

    def too_late(self, stream: str) -> dict[str, int]:
        return _summed(*(unit["too_late"] for unit in self.units.values() if stream in unit["below"]))

    def rows(self, on_error: str, stream: str) -> dict[str, int]:
        return _summed(*(left[on_error] for name, left in self.left_out.items() if stream in self.units[name]["below"]))


def gone_since(old: Mapping[str, Any] | None, units: Sequence[Unit], root: Path) -> Gone:
    """What the deployment before knew of, and what its units leave behind as these take over."""
    if old is None:
        return Gone()
    found = {name: dict(each) for name, each in old.get("gone", {}).items()}
    makes = {unit.name: unit.outputs for unit in units}
    for name in old["units"]:
        folder = Path(old.get("homes", {}).get(f"units/{name}", root / "units" / name))
        record = (Journal(folder, "commits", vital=False).last() if folder.is_dir() else None) or {}
        if name in makes and name in found:  # made here again, and its record has counted on
            told = {*makes[name]} & {*record.get("tally", {})}
            own = {stream: counts for stream, counts in found[name]["tally"].items() if stream not in told}
            found[name] = found[name] | {"tally": own}
        moved = {
            stream
            for stream, maker in old.get("streams", {}).items()
            if maker == name and stream not in makes.get(name, ())
        }
        tally = {stream: counts for stream, counts in record.get("tally", {}).items() if stream in moved}
        late = {} if name in makes else record.get("too_late", {})
        if name in makes and not tally:
            continue
        known = found.get(name, {})
        found[name] = {
            "below": sorted({*known.get("below", ()), *_below(old, name)}),
            "tally": _summed_tallies(known.get("tally", {}), tally),
            "too_late": _summed(known.get("too_late", {}), late),
        }
    # Of one that came back, its own decisions tell.
    decided = {name: Exclusions(root / "units" / name) for name in found if name not in makes}
    return Gone(
        found, {name: {what: own.rows(what) for what in ("drop", "quarantine")} for name, own in decided.items()}
    )


def _below(old: Mapping[str, Any], name: str) -> set[str]:
    """Streams of the unit and of all that read them, directly or not."""
    makers = old.get("streams", {})
    found = {stream for stream, maker in makers.items() if maker == name}
    while True:
        readers = {unit for unit, streams in old.get("inputs", {}).items() if found & {*streams}}
        more = {stream for stream, maker in makers.items() if maker in readers} - found
        if not more:
            return found
        found |= more


def _summed(*counts: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for name, rows in each.items():
            found[name] = found.get(name, 0) + rows
    return found


def _summed_tallies(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {
        stream: asdict(Tally.of(other.get(stream, {})).plus(Tally.of(one.get(stream, {}))))
        for stream in {**one, **other}
    }
