"""Whether a sealed frame can be made again, by whom, and what stands against it.

A sealed frame never changes: consumers and sinks count on it. It may be made again as long
as nobody has seen it. Seen means: a sink's ledger has it, or it was handed to another host.
A unit that read it is not in the way if it can go back as well: what it made of the frame
must be unseen too, and so on down the graph. All of them go back to the frame before and
make everything after it again.

To go back a unit needs its state after the frame before, and every input of the frames
since: sealed and still queued, to be read again from a source, or made again as well.

Pure: facts in, a plan or a reason out. Driven by `records.remaking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Facts", "Plan", "Refusal", "UnitFacts", "decide"]


@dataclass(frozen=True)
class UnitFacts:
    outputs: tuple[str, ...]
    committed: int
    begun: int  # the frame after which its state begins empty
    reads: frozenset[str]  # streams
    needs: Mapping[int, frozenset[tuple[str, int]]] = field(
        default_factory=dict
    )  # frame -> (stream, number) it was made of
    states: frozenset[int] = frozenset()  # frames after which its whole state is at hand
    has_spark_state: bool = False
    host: str = ""  # where it lives, if its checkpoints are kept elsewhere


@dataclass(frozen=True)
class Facts:
    units: Mapping[str, UnitFacts]
    queued: Mapping[str, frozenset[int]]  # by stream between units, the frames whose files are there
    unreadable: Mapping[tuple[str, int], str]  # frames of sources that cannot be read again, and why
    written: Mapping[str, Mapping[str, int]]  # stream -> sink -> the highest frame it has


@dataclass(frozen=True)
class Plan:
    """These units go back to the frame before `frame`, consumers first."""

    frame: int
    units: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    kind: str  # "not sealed" | "seen" | "inputs" | "state"
    why: str


def decide(facts: Facts, unit: str, frame: int) -> Plan | Refusal:
    own = facts.units[unit]
    if frame > own.committed and not any(n >= frame for stream in own.outputs for n in facts.queued.get(stream, ())):
        return Refusal("not sealed", f"unit {unit} has sealed up to frame {own.committed}")
    going = _below(facts, unit, frame)
    for name in going:
        if (refused := _in_the_way(facts, name, frame, {*going})) is not None:
            return refused
    return Plan(frame, tuple(reversed(going)))


def _below(facts: Facts, unit: str, frame: int) -> list[str]:
    """The unit and all that made something of its frames from this one on, each after one it reads."""
    found = [unit]
    for name in found:
        made = {*facts.units[name].outputs}
        found += [
            other
            for other, each in facts.units.items()
            if other not in found and each.reads & made and each.committed >= frame
        ]
    return found


def _in_the_way(facts: Facts, name: str, frame: int, going: set[str]) -> Refusal | None:
    unit = facts.units[name]
    if unit.host:
        return Refusal(
            "seen", f"unit {name} is on host {unit.host}: its frames and checkpoints were handed to other hosts"
        )
    for stream in unit.outputs:
        for sink, last in facts.written.get(stream, {}).items():
            if last >= frame:
                return Refusal("seen", f"sink {sink} has frames of {stream} up to {last}")
    if unit.has_spark_state:
        return Refusal(
            "state", f"the state of unit {name} is Spark's own, and cannot be taken back to frame {frame - 1}"
        )
    if frame - 1 < unit.begun:
        return Refusal("state", f"unit {name} began after frame {unit.begun}: what was before it is not its own")
    if frame - 1 > unit.begun and frame - 1 not in unit.states:
        return Refusal("state", f"the state of unit {name} after frame {frame - 1} is no longer kept")
    again = {stream for other in going for stream in facts.units[other].outputs}
    for n in range(frame, unit.committed + 1):
        if n not in unit.needs:
            return Refusal("inputs", f"the journal of unit {name} no longer says what frame {n} was made of")
        for stream, m in sorted(unit.needs[n]):
            if (refused := _input(facts, name, n, stream, m, again, frame)) is not None:
                return refused
    return None


def _input(facts: Facts, name: str, n: int, stream: str, m: int, again: set[str], frame: int) -> Refusal | None:
    if stream in facts.queued:
        if (m >= frame and stream in again) or m in facts.queued[stream]:
            return None
        return Refusal("inputs", f"frame {n} of unit {name} needs frame {m} of {stream}, which is no longer queued")
    if (why := facts.unreadable.get((stream, m))) is not None:
        return Refusal("inputs", f"frame {n} of unit {name} needs frame {m} of source {stream}: {why}")
    return None
