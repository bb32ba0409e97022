"""Marks of a unit's frames, from its permits and its commit records, and how many there were.

`protocols.taint` decides; here it is driven. What it needs to go on after a restart is in
the commit record of every frame (`gaps`), and so is what was counted since the state folder
began (`tally`), so a unit that comes back from any record marks and counts as it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.frames.identity import Kind
from holdfast.graph.model import Graph
from holdfast.graph.units import Unit
from holdfast.protocols.taint import Input, Mark, Taint

if TYPE_CHECKING:
    from holdfast.engine.flow.queues import Permit, Sealed

__all__ = ["Marker", "Tally", "lost_tally"]

_LATE = ".late_rows"


@dataclass(frozen=True, slots=True)
class Tally:
    """Of one stream since the state folder began."""

    frames: int = 0
    rows: int = 0
    lost: int = 0  # frames that are LOST
    tainted: int = 0  # frames that are marked
    tainted_rows: int = 0
    since: int = 0  # the first frame of those that are marked without a break up to now; 0: the last one is not
    why: str = ""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Tally:
        return cls(**{name: value for name, value in found.items() if name in cls.__slots__})

    def sealed(self, n: int, rows: int, mark: Mark | None) -> Tally:
        after = replace(self, frames=self.frames + 1, rows=self.rows + rows)
        if mark is None:
            return replace(after, since=0, why="")
        return replace(
            after, tainted=self.tainted + 1, tainted_rows=self.tainted_rows + rows, since=self.since or n, why=mark.why
        )

    def plus(self, before: Tally) -> Tally:
        """With what another unit counted of the stream before; what is marked now is this one's."""
        counts = ("frames", "rows", "lost", "tainted", "tainted_rows")
        return replace(self, **{name: getattr(self, name) + getattr(before, name) for name in counts})

    def words(self) -> str:
        """'12 frames tainted (340 rows), since frame 26: frames 9 to 25 of per_window are LOST'."""
        said = [f"{self.lost:,} frames LOST"] if self.lost else []
        if self.tainted:
            now = f", since frame {self.since:,}: {self.why}" if self.since else ", none now"
            said.append(f"{self.tainted:,} frames tainted ({self.tainted_rows:,} rows){now}")
        return "; ".join(said)


class Marker:
    def __init__(self, graph: Graph, unit: Unit) -> None:
        self._unit, self._taint = unit, Taint(graph, unit.operators, unit.outputs)
        self._skipped = ""  # why frames before the next one are missing in the state
        self._at = 0
        self._marks: dict[int, dict[str, Mark]] = {}
        self._gaps: dict[int, dict[str, Any]] = {}
        self.tallies: dict[str, Tally] = {stream: Tally() for stream in unit.outputs}
        self.too_late: dict[str, int] = {}  # operator -> rows that came too late for its state, and were dropped

    def recover(self, record: Mapping[str, Any] | None, *, begun: int) -> None:
        """From the last commit record. `begun`: a state that begins there anew has only the gap it begins with."""
        record = record or {}
        self._at = max(int(record.get("n", 0)), begun)
        self._skipped = _skipped(self._unit.name, record)
        self._taint.load(record.get("gaps", {}) if record.get("n", 0) > begun or self._skipped else {})
        known = record.get("tally", {})
        self.tallies = {stream: Tally.of(known.get(stream, {})) for stream in self._unit.outputs}
        self.too_late = dict(record.get("too_late", {}))

    def look(self, permits: Iterable[Permit]) -> None:
        """Decide the marks of frames that are about to be made, in their order; those that were made stay as they are."""
        for permit in permits:
            if permit.n <= self._at:
                continue
            if self._skipped:
                self._taint.skipped(permit.since_us, self._skipped)
                self._skipped = ""
            inputs = [
                Input(port.stream, port.feedback_frames, sealed.n, sealed.kind == Kind.LOST, sealed.mark)
                for port, sealed in permit.inputs
                if sealed is not None
            ]
            self._marks[permit.n] = self._taint.frame(permit.boundary_us, permit.since_us, inputs)
            self._gaps[permit.n] = self._taint.to_json()
            self._at = permit.n

    def at(self, n: int) -> dict[str, Mark]:
        return self._marks.get(n, {})

    def told(self, n: int) -> dict[str, Any]:
        """What a task that seals frame n is told: {} for the most part."""
        marks = {stream: mark.to_json() for stream, mark in self.at(n).items()}
        return {"marks": marks} if marks else {}

    def committed(self, n: int, sealed: Mapping[str, Sealed], counts: Mapping[str, int]) -> dict[str, Any]:
        """For the commit record of frame n."""
        for name, rows in counts.items():
            if rows and name.endswith(_LATE):
                operator = name.removesuffix(_LATE)
                self.too_late[operator] = self.too_late.get(operator, 0) + rows
        marks = self._marks.pop(n, {})
        for stream, frame in sealed.items():
            self.tallies[stream] = self.tallies[stream].sealed(n, frame.rows, marks.get(stream))
        record: dict[str, Any] = {"tally": {stream: asdict(tally) for stream, tally in self.tallies.items()}}
        if self.too_late:
            record["too_late"] = dict(self.too_late)
        if gaps := self._gaps.pop(n, {}):
            record["gaps"] = gaps
        if marks:
            record["marks"] = {stream: mark.why for stream, mark in marks.items()}
        return record


def lost_tally(record: Mapping[str, Any], known: Mapping[str, Tally], count: int) -> dict[str, Any]:
    """The tallies after so many frames were sealed LOST. A record may be older than what is `known` of each stream."""
    found = {}
    for stream, tally in known.items():
        written = Tally.of(record.get("tally", {}).get(stream, {}))
        newest = max(written, tally, key=lambda each: (each.frames, each.lost))
        found[stream] = asdict(replace(newest, lost=newest.lost + count))
    return found


def _skipped(unit: str, record: Mapping[str, Any]) -> str:
    count, n = int(record.get("lacks", 0)), int(record.get("n", 0))
    if not count:
        return ""
    first = n - count + 1
    return f"the state of {unit} lacks frame{'' if count == 1 else 's'} {first:,}" + (f" to {n:,}" if count > 1 else "")
