"""A fault plan: what is to be broken, of whom, at which frame and commit point.

    [[fault]]
    do = "kill unit"
    unit = "alarms"
    frame = 41
    point = "sink written, not committed"

A fault is tied to a frame and a point, never to the clock, so it strikes at the same
place in every run. What a plan leaves open (unit, frame, point) is drawn by the seed.

No file, no clock, no chance of its own: text and a `Random` are handed in.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from holdfast.errors import HoldfastError, UsageError
from holdfast.faults.points import AT_WORK, POINTS
from holdfast.graph.declared import did_you_mean
from holdfast.graph.durations import duration_ms, show_ms
from holdfast.graph.model import Graph
from holdfast.graph.units import cut

__all__ = ["DO", "Fault", "Victims", "drawn", "drawn_plan", "environment", "fitted", "parsed"]


@dataclass(frozen=True, slots=True)
class _Kind:
    victim: str  # as points.victims knows it
    points: tuple[str, ...]
    default: str = ""  # where it strikes unless the plan says; else the seed draws


DO = {
    "kill python worker": _Kind("worker", (AT_WORK, *POINTS), AT_WORK),
    "kill unit": _Kind("unit", POINTS),
    "kill jvm": _Kind("jvm", POINTS),
    "kill driver": _Kind("driver", POINTS),
    # The run dies and, before it is started again, forgets the last frame the unit committed.
    "delete last commit": _Kind("driver", ("state committed", "sink written, not committed", "committed"), "committed"),
    "stall source": _Kind("source", ("stall",), "stall"),
}
_KEYS = ("do", "unit", "source", "frame", "point", "for")
_STALL_MS = 3_000


@dataclass(frozen=True, slots=True)
class Fault:
    do: str
    whom: str = ""  # a unit; a source where that is stalled; "" until it is drawn
    frame: int = 0  # 0: until it is drawn
    point: str = ""
    stall_ms: int = 0

    def __str__(self) -> str:
        if self.do == "stall source":
            return f"stall source {self.whom} before frame {self.frame:,} for {show_ms(self.stall_ms)}"
        return f"{self.do}: {self.whom}, frame {self.frame:,}, {self.point}"

    def to_json(self) -> dict[str, Any]:
        named = {"source": self.whom, "for": show_ms(self.stall_ms)} if self.do == "stall source" else {"unit": self.whom, "point": self.point}
        return {"do": self.do, "frame": self.frame, **named}


@dataclass(frozen=True, slots=True)
class Victims:
    """Whom a process offers: its units and its sources."""

    units: tuple[str, ...]
    sources: tuple[str, ...]
    unit_of: dict[str, str]  # operator -> unit

    @classmethod
    def of(cls, graph: Graph) -> Victims:
        units = [unit for unit in cut(graph) if unit.outputs]
        of = {operator: unit.name for unit in units for operator in unit.operators}
        return cls(tuple(unit.name for unit in units), tuple(source.name for source in graph.sources), of)


def parsed(text: str, where: str) -> list[Fault]:
    """The faults of a TOML text; every word is checked, no name yet."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            "HF-E050", "PlanUnreadable", "the fault plan is not TOML.", where=where, why=str(error), effect="nothing was started",
            do='write [[fault]], then do = "kill unit", unit = "NAME", frame = 40',
        ) from None  # fmt: skip
    stray = next((key for key in found if key != "fault"), None)
    if stray is not None or not isinstance(found.get("fault"), list) or not found["fault"]:
        raise UsageError(
            "HF-E050", "PlanUnreadable", "the fault plan names no fault." if stray is None else f"{stray!r} is no part of a fault plan.",
            where=where, effect="nothing was started", do="begin each fault with a line [[fault]]",
        )  # fmt: skip
    return [_fault(each, f"{where}, fault {at}") for at, each in enumerate(found["fault"], 1)]


def fitted(plan: Sequence[Fault], victims: Victims, where: str) -> list[Fault]:
    """The plan with names that are there; an operator stands for the unit it runs in."""
    made = []
    for at, fault in enumerate(plan, 1):
        stalls = fault.do == "stall source"
        names = victims.sources if stalls else victims.units
        whom = fault.whom if stalls else victims.unit_of.get(fault.whom, fault.whom)
        if whom and whom not in names:
            raise _not_understood(
                f"there is no {'source' if stalls else 'unit'} {whom!r}.", f"{where}, fault {at}", did_you_mean(whom, names)
            )
        made.append(replace(fault, whom=whom))
    return made


def drawn(plan: Sequence[Fault], victims: Victims, first: int, last: int, chance: Random) -> list[Fault]:
    """What the plan left open, drawn; `first` and `last` are the frames that have input."""
    made = []
    for fault in plan:
        kind = DO[fault.do]
        names = victims.sources if fault.do == "stall source" else victims.units
        # All three are drawn in any case: what one fault says must not change what the next one gets.
        whom, frame, point = chance.choice(names), chance.randint(first, max(first, last)), chance.choice(kind.points)
        made.append(
            replace(
                fault, whom=fault.whom or whom, frame=fault.frame or frame, point=fault.point or kind.default or point
            )
        )
    return made


def drawn_plan(victims: Victims, first: int, last: int, chance: Random) -> list[Fault]:
    """One to three faults, each a victim, a frame and a commit point; in the order of frames."""
    plan = []
    for _ in range(chance.randint(1, 3)):
        do = chance.choice(tuple(DO))
        point = chance.choice(DO[do].points)
        plan.append(Fault(do, point=point, stall_ms=chance.choice((200, 1_000, 3_000)) if do == "stall source" else 0))
    return sorted(drawn(plan, victims, first, last, chance), key=lambda fault: fault.frame)


def environment(plan: Sequence[Fault], marks: Sequence[Path]) -> list[dict[str, Any]]:
    """The plan as `points` reads it."""
    return [
        {
            "point": fault.point,
            "frame": fault.frame,
            "victim": DO[fault.do].victim,
            "unit": fault.whom,
            "seconds": fault.stall_ms / 1000,
            "mark": str(mark),
        }
        for fault, mark in zip(plan, marks, strict=True)
    ]


def _fault(found: Any, where: str) -> Fault:
    if not isinstance(found, dict):
        raise _not_understood("a fault is a table of keys.", where, "begin each fault with a line [[fault]]")
    for key in found:
        if key not in _KEYS:
            raise _not_understood(f"{key!r} is not known.", where, did_you_mean(key, _KEYS))
    do = found.get("do")
    if do not in DO:
        what = "it does not say what to do." if do is None else f"do = {do!r} is not known."
        raise _not_understood(what, where, did_you_mean(str(do), DO), why="there is: " + ", ".join(DO))
    kind, stalls = DO[do], do == "stall source"
    wrong = next((key for key in (("unit", "point") if stalls else ("source", "for")) if key in found), None)
    if wrong is not None:
        takes = "source, frame and for" if stalls else "unit, frame and point"
        raise _not_understood(f"{wrong!r} does not go with {do!r}.", where, f"it takes {takes}")
    whom = found.get("source" if stalls else "unit", "")
    if not isinstance(whom, str):
        raise _not_understood(f"{whom!r} is no name.", where, "write it in quotes")
    frame = found.get("frame", 0)
    if isinstance(frame, bool) or not isinstance(frame, int) or ("frame" in found and frame < 1):
        raise _not_understood(f"frame = {frame!r} is no frame.", where, "write a number from 1 on, or leave it out: the seed draws one")
    point = found.get("point", "")
    if point and point not in kind.points:
        raise _not_understood(
            f"point = {point!r} is not known for {do!r}.", where, did_you_mean(str(point), kind.points),
            why="there is: " + "; ".join(kind.points),
        )  # fmt: skip
    try:
        stall_ms = duration_ms(found.get("for", _STALL_MS), what="for") if stalls else 0
    except HoldfastError as error:
        raise _not_understood(error.what, where, error.do) from None
    return Fault(do, whom, frame, point, stall_ms)


def _not_understood(what: str, where: str, do: str, *, why: str = "") -> UsageError:
    return UsageError("HF-E051", "FaultNotUnderstood", what, where=where, why=why, effect="nothing was started", do=do)
