"""What runs in a state folder, and whether a changed process may go on there.

The clock and the cut into units belong to the deployment: with another frame
length or another cut the numbers in the folder would mean something else. Changed
code without state simply holds from the next frame on. Changed code with state is
refused until the user decides: `--keep OP` (the old state fits the new code) or
`--fresh OP` (begin with empty state at the next frame).
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import StateRefused, UsageError
from holdfast.graph.fingerprint import fingerprint
from holdfast.graph.model import Graph, Sink
from holdfast.graph.units import Unit
from holdfast.sinks.ledger_reader import target_of

__all__ = ["Changes", "begins", "compare", "describe", "sink_behind"]


@dataclass(frozen=True, slots=True)
class Changes:
    new: tuple[str, ...] = ()  # operators that were not here before
    changed: tuple[str, ...] = ()  # other code, no state
    kept: tuple[str, ...] = ()  # other code, old state: the user said so
    fresh: tuple[str, ...] = ()  # begins with empty state: the user said so

    @property
    def names(self) -> set[str]:
        return {*self.new, *self.changed, *self.kept, *self.fresh}

    def sentences(self) -> list[str]:
        said = []
        for words, names in (
            ("new", self.new),
            ("changed, holds from the next frame on", self.changed),
            ("changed, keeps its state as you decided", self.kept),
            ("begins with empty state as you decided", self.fresh),
        ):
            said += [f"{name}: {words}" for name in names]
        return said


def describe(graph: Graph, units: Sequence[Unit], t0_us: int | None) -> dict:
    import pandas
    import pyarrow
    import pyspark

    return {
        "process": graph.name,
        "frame_ms": graph.frame_ms,
        "grace_ms": graph.grace_ms,
        "time": str(graph.time),
        "partitions": graph.partitions,
        "t0_us": t0_us,
        "values": graph.values,
        "operators": {each.name: fingerprint(each) for each in graph.operators},
        "stateful": [each.name for each in graph.operators if each.is_stateful],
        "units": {unit.name: list(unit.operators) for unit in units},
        "streams": {stream: unit.name for unit in units for stream in unit.outputs},
        "inputs": {unit.name: sorted({port.stream for port in unit.inputs}) for unit in units},
        "sources": [source.name for source in graph.sources],
        "targets": {sink.name: target_of(sink.writer, graph.base) | {"stream": sink.stream} for sink in graph.sinks},
        "runtime": {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "pyspark": pyspark.__version__,
            "pyarrow": pyarrow.__version__,
            "pandas": pandas.__version__,
        },
    }


def compare(old: dict | None, new: dict, *, fresh: Sequence[str], keep: Sequence[str]) -> Changes:
    """What changed since the folder was last used; refuses what nobody decided."""
    for name in (*fresh, *keep):
        if name not in new["operators"]:
            raise UsageError(
                "HF-R005",
                "UnknownOperator",
                f"there is no operator {name!r} to begin anew or to keep.",
                effect="nothing was started",
                do=f"operators are: {', '.join(new['operators'])}",
            )
    if old is None:
        return Changes()
    for field, words in (
        ("frame_ms", "length of a frame (ms)"),
        ("time", "time column"),
        ("grace_ms", "grace (ms)"),
        ("partitions", "number of partitions"),
    ):
        if old[field] != new[field]:
            raise StateRefused(
                "HF-R003",
                "ClockChanged",
                f"the {words} was {old[field]} in this state folder and is {new[field]} now.",
                why="frames and state in the folder were cut by the old one",
                effect="nothing was started; the folder is untouched",
                do="put the old value back, or begin in another folder: --state DIR",
            )
    undecided, changed, kept = [], [], []
    for name, mark in new["operators"].items():
        before = old["operators"].get(name)
        if before is None or before == mark or name in fresh:
            continue
        if name not in new["stateful"]:
            changed.append(name)
        elif name in keep:
            kept.append(name)
        else:
            undecided.append(name)
    moved = [
        name for name in new["stateful"] if name not in fresh and _unit_of(old, name) not in (None, _unit_of(new, name))
    ]
    if undecided or moved:
        name = (undecided or moved)[0]
        why = "its code or its declaration differs from the run that made its state"
        do = f"--keep {name} if the old state fits the new code, or --fresh {name} to begin with empty state"
        if not undecided:
            why = "it shares its unit with other operators than before, and state belongs to a unit"
            do = f"undo that change, or --fresh {name} to begin with empty state"
        raise StateRefused(
            "HF-R002",
            "StateUndecided",
            f"operator {name!r} has changed and has state.",
            why=why,
            effect="nothing was started; state, queues and sinks are untouched",
            do=do,
        )
    added = tuple(name for name in new["operators"] if name not in old["operators"])
    return Changes(added, tuple(changed), tuple(kept), tuple(fresh))


def begins(old: dict | None, units: Sequence[Unit], done: dict[str, int], fresh: set[str]) -> dict[str, int]:
    """The frame after which each unit begins with empty state; what it did up to there stays.

    `done` is the last frame of each unit of the old deployment. A unit that was here goes
    on; with a `fresh` operator it goes on at its own next frame, so that no consumer
    misses one. A new unit begins where its consumers stand, or where all stand. One that
    was here makes no frame again, so it cannot take over a stream that stands behind it.
    """
    if old is None:
        return {unit.name: 0 for unit in units}
    found: dict[str, int] = {}
    at = dict(done)
    for unit in reversed(units):  # consumers first
        if unit.name in old["start"]:
            _refuse_skipping(old, unit, done)
            found[unit.name] = done[unit.name] if fresh & {*unit.operators} else old["start"][unit.name]
            continue
        # A stream it takes over goes on where its old unit stopped; a consumer must find its next frame.
        bounds = [done[maker] for stream, maker in old.get("streams", {}).items() if stream in unit.outputs]
        bounds += [
            at[other.name]
            for other in units
            if other.name in at and any(port.stream in unit.outputs for port in other.inputs)
        ]
        found[unit.name] = at[unit.name] = min(bounds, default=max(done.values(), default=0))
    return found


def _refuse_skipping(old: dict, unit: Unit, done: dict[str, int]) -> None:
    for stream in unit.outputs:
        maker = old.get("streams", {}).get(stream, unit.name)
        if (last := done.get(maker, 0)) < (at := done[unit.name]):
            raise StateRefused(
                "HF-R019",
                "StreamSkipped",
                f"unit {unit.name!r} has done frame {at} and is to make stream {stream!r} now, of which frame {last} is the last.",
                why=f"unit {maker!r} made it until now; frames {last + 1} to {at} of it would never be made",
                effect="nothing was started; state, queues and sinks are untouched",
                do=f"undo that change, mend what held {maker!r} if something did, and let it catch up:\n"
                f"holdfast run FILE --until-frame {at}\nthen make the change",
            )


def _unit_of(deployment: dict, operator: str) -> tuple[str, list[str]] | None:
    return next(((unit, own) for unit, own in deployment["units"].items() if operator in own), None)


def sink_behind(sink: Sink, last: int, first: int, *, is_known: bool) -> StateRefused:
    """`is_known`: the deployment before had it too."""
    why = "it had acknowledged more: its table was deleted, restored from an older copy, or is another one"
    do = "put the table back, or begin anew with another table and a folder of its own: --state DIR"
    if not is_known:
        why = f"the process went on without this sink, and frames {last + 1} to {first - 1} were kept for nobody"
        do = f"leave its table as it is and write on to another one, under another name: sink({sink.stream!r}, ..., name='{sink.name}_2')"
        do += "\nit begins where the process stands; or begin everything anew with another table and a folder of its own: --state DIR"
    return StateRefused(
        "HF-R006",
        "SinkBehind",
        f"sink {sink.name!r} has frames up to {last}; the oldest frame still kept is {first}.",
        where=sink.line,
        why=why,
        effect="nothing was started; going on would leave a hole in the table",
        do=do,
    )
