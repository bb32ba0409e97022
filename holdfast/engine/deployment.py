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
from holdfast.graph.model import Graph
from holdfast.graph.schemas import Schema
from holdfast.graph.units import Unit

__all__ = ["Changes", "compare", "describe"]


@dataclass(frozen=True, slots=True)
class Changes:
    new: tuple[str, ...] = ()  # operators that were not here before
    changed: tuple[str, ...] = ()  # other code, no state
    kept: tuple[str, ...] = ()  # other code, old state: the user said so
    fresh: tuple[str, ...] = ()  # begins with empty state: the user said so

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


def describe(graph: Graph, units: Sequence[Unit], schemas: dict[str, Schema], t0_us: int | None) -> dict:
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
        "operators": {each.name: fingerprint(each) for each in graph.operators},
        "stateful": [each.name for each in graph.operators if each.is_stateful],
        "units": {unit.name: list(unit.operators) for unit in units},
        "schemas": {stream: schema.ddl for stream, schema in schemas.items()},
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
        unit
        for unit, operators in old["units"].items()
        if unit in new["units"]
        and new["units"][unit] != operators
        and any(each in new["stateful"] for each in operators)
        and not set(new["units"][unit]) & {*fresh}
    ]
    if undecided or moved:
        name = (undecided or moved)[0]
        why = "its code or its declaration differs from the run that made its state"
        if not undecided:
            why = "it shares its unit with other operators than before, and state belongs to a unit"
        raise StateRefused(
            "HF-R002",
            "StateUndecided",
            f"operator {name!r} has changed and has state.",
            why=why,
            effect="nothing was started; state, queues and sinks are untouched",
            do=f"--keep {name} if the old state fits the new code, or --fresh {name} to begin with empty state",
        )
    added = tuple(name for name in new["operators"] if name not in old["operators"])
    return Changes(added, tuple(changed), tuple(kept), tuple(fresh))
