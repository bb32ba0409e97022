"""A fault plan: what is to be broken, of whom, at which frame and commit point.

    [[fault]]
    do = "kill unit"
    unit = "alarms"
    frame = 41
    point = "sink written, not committed"

A fault is tied to a frame and a point, never to the clock, so it strikes at the same
place in every run. What a plan leaves open (unit, frame, point) is drawn by the seed.

Where units live on logical hosts there is more to break: a host, the state files of a
unit, the copies of its checkpoints, a store; and more moments: while a checkpoint is under
way, while a unit is restarted. Such a moment has no frame of its own: `frame` says from
which on, 1 unless it is given. A random plan leaves every unit its near checkpoint or
enough copies: what takes all of them at once nobody promises to survive.

No file, no clock, no chance of its own: text and a `Random` are handed in.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from holdfast.errors import HoldfastError, UsageError
from holdfast.failpoints import AT_WORK, CHECKPOINTING, POINTS, RECOVERING
from holdfast.graph.declared import did_you_mean
from holdfast.graph.durations import duration_ms, show_ms
from holdfast.graph.model import Graph
from holdfast.graph.units import cut
from holdfast.hosts.hosts import Homes
from holdfast.hosts.sealed import quoted

__all__ = [
    "DO",
    "INSIDE",
    "Fault",
    "Victims",
    "drawn",
    "drawn_plan",
    "environment",
    "fitted",
    "homes_of",
    "parsed",
    "survivable",
]


@dataclass(frozen=True, slots=True)
class _Kind:
    victim: str  # as points.victims knows it
    points: tuple[str, ...]
    default: str = ""  # where it strikes unless the plan says; else the seed draws
    harm: str = ""

    @property
    def place(self) -> str:
        """The key that says where."""
        return {"host": "host", "copy": "store", "store": "store"}.get(self.victim, "")

    def points_of(self, victims: Victims) -> tuple[str, ...]:
        return self.points if victims.hosts else tuple(point for point in self.points if point not in _LATE)


_LATE = (*CHECKPOINTING, *RECOVERING)
_ANY = (*POINTS, *_LATE)

DO = {
    "kill python worker": _Kind("worker", (AT_WORK, *_ANY), AT_WORK),
    "kill unit": _Kind("unit", _ANY),
    "kill jvm": _Kind("jvm", _ANY),
    "kill driver": _Kind("driver", _ANY),
    # The run dies and, before it is started again, forgets the last frame the unit committed.
    "delete last commit": _Kind("driver", ("state committed", "sink written, not committed", "committed"), "committed"),
    "stall source": _Kind("source", ("stall",), "stall"),
    "lose host": _Kind("host", _ANY),
    "damage state": _Kind("state", _ANY, harm="damage"),
    "delete state": _Kind("state", _ANY, harm="delete"),
    "delete frames": _Kind("frames", _ANY, harm="delete"),
    "damage copy": _Kind("copy", _ANY, harm="damage"),
    "delete copy": _Kind("copy", _ANY, harm="delete"),
    "slow store": _Kind("store", _ANY, harm="slow"),
    "fail store": _Kind("store", _ANY, harm="fail"),
}
_HOSTED = tuple(do for do, kind in DO.items() if kind.victim in ("host", "state", "frames", "copy", "store"))
#: What one run lives through inside, without being started again.
INSIDE = ("kill python worker", "kill unit", "stall source", *_HOSTED)
# What makes a unit be restarted, whoever it is: a recovery others can strike into.
_RESTARTS = ("kill unit", "lose host")
_LASTS = ("stall source", "slow store", "fail store")
# What a request to a slow store takes: well above what a frame takes here.
_SLOW_S = 0.2
_KEYS = ("do", "unit", "source", "host", "store", "frame", "point", "for")
_STALL_MS = 3_000


@dataclass(frozen=True, slots=True)
class Fault:
    do: str
    whom: str = ""  # a unit; a source where that is stalled; "" until it is drawn
    frame: int = 0  # 0: until it is drawn
    point: str = ""
    stall_ms: int = 0
    at: str = ""  # a host, or a store

    def __str__(self) -> str:
        if self.do == "stall source":
            return f"stall source {self.whom} before frame {self.frame:,} for {show_ms(self.stall_ms)}"
        where = f" {self.at}" if self.at else ""
        lasts = f" for {show_ms(self.stall_ms)}" if self.do in _LASTS else ""
        since = "from frame" if self.point in _LATE else "frame"
        return f"{self.do}{where}{lasts}: {self.whom}, {since} {self.frame:,}, {self.point}"

    def to_json(self) -> dict[str, Any]:
        named = {"source": self.whom} if self.do == "stall source" else {"unit": self.whom, "point": self.point}
        lasts = {"for": show_ms(self.stall_ms)} if self.do in _LASTS else {}
        where = {DO[self.do].place: self.at} if self.at else {}
        return {"do": self.do, "frame": self.frame, **named, **where, **lasts}


@dataclass(frozen=True, slots=True)
class Victims:
    """Whom a process offers: its units and its sources; hosts and stores where it has them."""

    units: tuple[str, ...]
    sources: tuple[str, ...]
    unit_of: dict[str, str]  # operator -> unit
    hosts: tuple[str, ...] = ()
    host_of: Mapping[str, str] = field(default_factory=dict)
    stores_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of units that have checkpoints
    needed: int = 1
    lossy: frozenset[str] = frozenset()  # units that promise less than all

    @classmethod
    def of(cls, graph: Graph) -> Victims:
        units = [unit for unit in cut(graph) if unit.outputs]
        of = {operator: unit.name for unit in units for operator in unit.operators}
        homes = homes_of(graph, Path())
        kept = [unit.name for unit in units if homes.names and unit.protect.durability != "none"]
        stores = {unit: homes.store_names(unit) for unit in kept}
        return cls(
            tuple(unit.name for unit in units), tuple(source.name for source in graph.sources), of,
            homes.names, homes.host_of, stores, homes.needed,
            frozenset(unit.name for unit in units if unit.protect.durability in ("none", "checkpoint")),
        )  # fmt: skip

    def places(self, do: str, unit: str) -> tuple[str, ...]:
        match DO[do].victim:
            case "host":
                return self.hosts
            case "copy" | "store":
                return self.stores_of.get(unit, ())
        return ("",)


def homes_of(graph: Graph, root: Path) -> Homes:
    units = [unit for unit in cut(graph) if unit.outputs]
    return Homes(root, graph.homes, graph.backup, [(unit.name, unit.host, unit.outputs) for unit in units])


def survivable(plan: Sequence[Fault], victims: Victims) -> bool:
    """Whether every unit that is to lose nothing keeps its near checkpoint, or enough copies of the newest one, in any order."""
    lost = {fault.at for fault in plan if fault.do == "lose host"}
    for unit in sorted({*victims.units} - victims.lossy):
        own = [fault for fault in plan if fault.whom == unit]
        near = victims.host_of.get(unit) not in lost and not any(
            DO[fault.do].victim in ("state", "frames") for fault in own
        )
        stores = victims.stores_of.get(unit, ())
        harmed = {store for store in stores if store in lost} | {
            fault.at for fault in own if DO[fault.do].victim == "copy"
        }
        if not near and (len(harmed) >= victims.needed or not stores):
            return False
    return True


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
        stalls, kind, here = fault.do == "stall source", DO[fault.do], f"{where}, fault {at}"
        names = victims.sources if stalls else victims.units
        whom = fault.whom if stalls else victims.unit_of.get(fault.whom, fault.whom)
        if whom and whom not in names:
            raise _not_understood(
                f"there is no {'source' if stalls else 'unit'} {whom!r}.", here, did_you_mean(whom, names)
            )
        if not victims.hosts and (fault.do in _HOSTED or fault.point in _LATE):
            raise _not_understood(
                f"the process has no hosts: {fault.do!r}{f' at {fault.point!r}' if fault.point else ''} cannot be.", here,
                "protect it: p.protect(hf.ecoc(every='5 seconds'))",
            )  # fmt: skip
        places = {place for unit in victims.units for place in victims.places(fault.do, unit)} if kind.place else set()
        if fault.at and fault.at not in places:
            raise _not_understood(
                f"there is no {kind.place} {fault.at!r}.", here, did_you_mean(fault.at, sorted(places))
            )
        made.append(replace(fault, whom=whom))
        if not stalls and not _with_place(made[-1], victims):
            raise _not_understood(
                f"no unit has a {kind.place} to break.", here, "protect it: p.protect(hf.ecoc(every='5 seconds'))"
            )
    return made


def drawn(plan: Sequence[Fault], victims: Victims, first: int, last: int, chance: Random) -> list[Fault]:
    """What the plan left open, drawn; `first` and `last` are the frames that have input."""
    made = []
    for fault in plan:
        kind = DO[fault.do]
        names = victims.sources if fault.do == "stall source" else _with_place(fault, victims)
        # All are drawn in any case: what one fault says must not change what the next one gets.
        points = kind.points_of(victims)
        whom, frame, point = chance.choice(names), chance.randint(first, max(first, last)), chance.choice(points)
        whom, point = fault.whom or whom, fault.point or kind.default or point
        at = chance.choice(victims.places(fault.do, whom)) if kind.place else ""
        made.append(
            replace(
                fault,
                whom=whom,
                frame=fault.frame or (first if point in _LATE else frame),
                point=point,
                at=fault.at or at,
            )
        )
    return made


def _with_place(fault: Fault, victims: Victims) -> tuple[str, ...]:
    """Units with something of that kind to break."""
    if not DO[fault.do].place:
        return victims.units
    return tuple(
        u
        for u in victims.units
        if (fault.at in victims.places(fault.do, u) if fault.at else victims.places(fault.do, u))
    )


def drawn_plan(
    victims: Victims, first: int, last: int, chance: Random, *, kinds: Sequence[str] = tuple(DO), shape: str = ""
) -> list[Fault]:
    """One to three faults, each a victim, a frame and a commit point; in the order of frames.

    With hosts they strike apart, at once, or one of them into the recovery from another
    (`shape`), and never take all that a unit has.
    """
    if not victims.hosts:
        return _drawn_faults(victims, first, last, chance, [do for do in kinds if do not in _HOSTED])
    while True:
        kind = shape or chance.choice(("apart", "at once", "during a recovery"))
        plan = _drawn_faults(victims, first, last, chance, kinds)
        if kind == "at once":
            plan = _at_once(plan, victims, chance.randint(first, max(first, last)), chance)
        elif kind == "during a recovery":
            plan = _during_recovery(plan, victims, first, last, chance, kinds)
        if plan and survivable(plan, victims):
            return plan


def _drawn_faults(victims: Victims, first: int, last: int, chance: Random, kinds: Sequence[str]) -> list[Fault]:
    plan = []
    for _ in range(chance.randint(1, 3)):
        do = chance.choice([do for do in kinds if do == "stall source" or _with_place(Fault(do), victims)])
        point = chance.choice([point for point in DO[do].points_of(victims) if point not in RECOVERING])
        plan.append(Fault(do, point=point, stall_ms=chance.choice((200, 1_000, 3_000)) if do in _LASTS else 0))
    return sorted(drawn(plan, victims, first, last, chance), key=lambda fault: fault.frame)


def _at_once(plan: Sequence[Fault], victims: Victims, frame: int, chance: Random) -> list[Fault]:
    """All at the same point of the same frame of one unit; nothing where fewer than two are left."""
    whom, point = chance.choice(victims.units), chance.choice(POINTS)
    made = dict.fromkeys(_moved(fault, victims, whom, frame, point, chance) for fault in plan)
    found = [fault for fault in made if fault is not None]
    return found if len(found) > 1 else []


def _during_recovery(
    plan: Sequence[Fault], victims: Victims, first: int, last: int, chance: Random, kinds: Sequence[str]
) -> list[Fault]:
    """One makes a unit be restarted; the others strike while it is."""
    do = chance.choice([each for each in _RESTARTS if each in kinds])
    whom = chance.choice(victims.units)
    at = victims.host_of[whom] if do == "lose host" else ""
    cause = Fault(do, whom, chance.randint(first, max(first, last)), chance.choice(POINTS), at=at)
    made = dict.fromkeys(_moved(fault, victims, whom, first, chance.choice(RECOVERING), chance) for fault in plan[:2])
    late = [fault for fault in made if fault is not None]
    return [cause, *late] if late else []


def _moved(fault: Fault, victims: Victims, whom: str, frame: int, point: str, chance: Random) -> Fault | None:
    """The same fault at another moment, if it can be there."""
    kind = DO[fault.do]
    places = victims.places(fault.do, whom)
    if point not in kind.points or not places:
        return None
    return replace(fault, whom=whom, frame=frame, point=point, at=chance.choice(places) if kind.place else "")


def environment(plan: Sequence[Fault], marks: Sequence[Path], homes: Homes | None = None) -> list[dict[str, Any]]:
    """The plan as `points` reads it; `homes` says where hosts, units and stores lie."""
    return [
        {
            "point": fault.point,
            "frame": fault.frame,
            "victim": DO[fault.do].victim,
            "unit": fault.whom,
            "seconds": fault.stall_ms / 1000,
            "mark": str(mark),
            **_place(fault, homes),
        }
        for fault, mark in zip(plan, marks, strict=True)
    ]


def _place(fault: Fault, homes: Homes | None) -> dict[str, Any]:
    if homes is None or fault.do not in _HOSTED:
        return {}
    kind = DO[fault.do]
    match kind.victim:
        case "host":
            return {"folder": str(homes.folder(fault.at))}
        case "state":
            return {"folder": str(homes.unit_folder(fault.whom)), "harm": kind.harm}
        case "frames":
            return {"folders": [str(folder) for folder in homes.stream_folders(fault.whom)], "harm": kind.harm}
        case "copy":
            place = homes.stores_of(fault.whom)[fault.at].removeprefix("file://")
            return {"folder": f"{place}/{quoted(fault.whom)}/files", "harm": kind.harm}
    return {"store": fault.at, "each_s": _SLOW_S if kind.harm == "slow" else -1.0}


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
    takes = ["source", "frame"] if stalls else [*([kind.place] if kind.place else []), "unit", "frame", "point"]
    takes += ["for"] if do in _LASTS else []
    wrong = next((key for key in found if key != "do" and key not in takes), None)
    if wrong is not None:
        raise _not_understood(
            f"{wrong!r} does not go with {do!r}.", where, f"it takes {', '.join(takes[:-1])} and {takes[-1]}"
        )
    whom, at = found.get("source" if stalls else "unit", ""), found.get(kind.place, "")
    for name in (whom, at):
        if not isinstance(name, str):
            raise _not_understood(f"{name!r} is no name.", where, "write it in quotes")
    frame = found.get("frame", 0)
    if isinstance(frame, bool) or not isinstance(frame, int) or ("frame" in found and frame < 1):
        raise _not_understood(
            f"frame = {frame!r} is no frame.", where, "write a number from 1 on, or leave it out: the seed draws one"
        )
    point = found.get("point", "")
    if point and point not in kind.points:
        raise _not_understood(
            f"point = {point!r} is not known for {do!r}.", where, did_you_mean(str(point), kind.points),
            why="there is: " + "; ".join(kind.points),
        )  # fmt: skip
    try:
        stall_ms = duration_ms(found.get("for", _STALL_MS), what="for") if do in _LASTS else 0
    except HoldfastError as error:
        raise _not_understood(error.what, where, error.do) from None
    return Fault(do, whom, frame, point, stall_ms, at)


def _not_understood(what: str, where: str, do: str, *, why: str = "") -> UsageError:
    return UsageError("HF-E051", "FaultNotUnderstood", what, where=where, why=why, effect="nothing was started", do=do)
