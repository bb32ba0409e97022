"""A stream graph as models see it: how much flows, what an operator remembers, what fails, what protects.

Elements, not frames: a source has a rate, an operator passes on a share of what it reads
(selectivity) and may remember some of it (state). After a fault the state of a port is not right
until `Z = min(alpha S + beta L, gamma S)` correct elements have come in at it, where S is the size
of the state and L is what it missed; what is made meanwhile is tainted.

Two kinds of flow, since they lose in different ways:

    "drops"   what is sent to an operator that is down is gone (the thesis' streams)
    "waits"   it waits in a queue, and the operator catches up (Holdfast): a crash makes late, not
              wrong; only a lost host's folder, and a unit that may skip, lose anything

Operators with the same `unit` fail together; units on the same `host` are hit together by a fault
of that host. A model is read from and written to `model.toml` (`models.files`).

What holds where the flow drops (every solver keeps to it; nominal means without any fault):

 1. A target that is hit is down for its repair time, reads nothing and sends nothing. Its clock runs
    while it is up; what is down is not hit again.
 2. Clean elements pass with `selectivity`, tainted ones with `tainted_selectivity`. While any port of
    an operator has Z > 0, all that it reads passes with `tainted_selectivity` and is tainted.
 3. A hit operator that keeps its state: Z = max(Z, to_refill((every_s + repair) x nominal rate of the
    port)). One that keeps none: Z = 0, and until S clean elements came in it passes `refilling` of
    what it would, not tainted.
 4. A port with state below a hit operator (anywhere in the closure, not only next to it):
    Z = max(Z, to_refill(repair x what the port nominally lacks per second while that operator is down)).
 5. A tainted element at a port with state: Z = max(Z, to_refill_tainted).
 6. Z and what is left to refill go down by one with each clean element that the port reads.
 7. "ha": every copy has all members, reads the same inputs, and inside the group its own members. One
    copy is active and read by others. When a member of it is hit nothing is sent; `failover_s` after a
    whole copy was there for it, that one is active: one with Z = 0 and nothing to refill, if there is
    one, else the lowest number. Rule 4 holds inside a copy; outside the group with L of `failover_s`,
    when the active copy is lost.
 8. "replicate": all copies are read; of clean and of tainted elements the larger number counts.
 9. A corruption hits one copy of one operator. Without state: one tainted element on its way out, which
    passes by `tainted_selectivity`. With state, `state_share` of the time: rule 5 at its port.
10. Available: every operator, of "ha" groups the active copy, of "replicate" groups at least one copy,
    is up; none that is read has Z > 0, something to refill, or a tainted element.

Pure: plain values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from holdfast.errors import UsageError

__all__ = ["Copies", "Fault", "Operator", "Output", "Port", "Protect", "State", "StreamModel", "refused"]

FLOWS = ("drops", "waits")
DURABILITIES = ("none", "checkpoint", "uncoordinated", "ecoc")
COPIES = ("ha", "replicate")
# crash: a unit stops and restarts, its folder stays. host: every unit on it stops, its folder is gone.
# driver: every unit stops and restarts. corruption: one wrong element, or a wrong state, that nothing notices.
# source: nothing comes from outside.
FAULTS = ("crash", "host", "driver", "corruption", "source")
NEVER = math.inf


@dataclass(frozen=True, slots=True)
class State:
    """What an operator remembers of one port. Sizes are counted in elements of that port."""

    size: float  # S
    alpha: float = 1.0  # share of S that is refilled after any loss
    beta: float = 0.0  # more for each element lost
    gamma: float = 1.0  # never more than this share of S; infinite alpha and gamma: never right again
    alpha_taint: float | None = None  # alpha where the loss is a tainted element; None: alpha
    refilling: float = 0.5  # share of its selectivity that an operator without any state has while it refills

    def to_refill(self, lost: float) -> float:
        """Z after `lost` elements are missing."""
        return min(self.alpha * self.size + self.beta * lost, self.gamma * self.size)

    @property
    def to_refill_tainted(self) -> float:
        """Z after a tainted element."""
        alpha = self.alpha if self.alpha_taint is None else self.alpha_taint
        return min(alpha * self.size, self.gamma * self.size)


@dataclass(frozen=True, slots=True)
class Port:
    """One input. An operator that reads nothing is a source."""

    reads: tuple[str, ...]  # operators
    selectivity: float = 1.0
    tainted_selectivity: float | None = None  # of wrong elements, and of an unstable operator; None: the same
    cost_s: float = 0.0  # processor seconds an element
    state: State | None = None

    @property
    def selectivity_bad(self) -> float:
        return self.selectivity if self.tainted_selectivity is None else self.tainted_selectivity


@dataclass(frozen=True, slots=True)
class Protect:
    """How an operator's state outlives the loss of it."""

    kind: str = "none"  # "none" | "checkpoint" | "uncoordinated" | "ecoc"
    every_s: float = 1.0  # age of the newest checkpoint at a fault: at most this
    behind_s: float = NEVER  # further behind than this: skip, LOST, go on (only where the flow waits)

    @property
    def keeps_state(self) -> bool:
        return self.kind != "none"

    @property
    def is_lossless(self) -> bool:
        return self.kind in ("uncoordinated", "ecoc")

    def __str__(self) -> str:
        if self.kind == "none":
            text = "none"
        else:
            text = f"{self.kind} every {self.every_s:g} s"
        return text if math.isinf(self.behind_s) else f"{text}, skips when {self.behind_s:g} s behind"


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    ports: tuple[Port, ...] = ()
    rate: float = 0.0  # elements a second, of a source
    cost_s: float = 0.0  # processor seconds an element, of a source; other costs are the ports'
    frame_cost_s: float = 0.0  # seconds a frame, whatever is in it (where the flow waits)
    unit: str = ""  # what fails and restarts together; "": itself
    host: str = ""
    protect: Protect = Protect()
    state_bytes: float = 0.0  # what a checkpoint of it weighs
    element_bytes: float = 0.0  # what an element that it sends weighs

    @property
    def is_source(self) -> bool:
        return not self.ports

    @property
    def is_stateful(self) -> bool:
        return any(port.state is not None for port in self.ports)

    @property
    def unit_name(self) -> str:
        return self.unit or self.name


@dataclass(frozen=True, slots=True)
class Copies:
    """Operators that run `n` times: one copy is active ("ha"), or all are and are compared ("replicate")."""

    members: tuple[str, ...]
    kind: str = "ha"
    n: int = 2
    failover_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Hits each of its targets on its own, after exponential times of mean `mttf_s` in which the target is up."""

    kind: str
    mttf_s: float
    repair_s: float = 0.0  # until the target works again; of "source" until it speaks again
    of: tuple[str, ...] = ()  # units ("crash", "corruption"), hosts ("host"), sources; empty: all
    exponential_repair: bool = False  # else always the same
    state_share: float = 0.5  # of "corruption": how often it hits the state instead of one element


@dataclass(frozen=True, slots=True)
class Output:
    """What arrives at `operator`, and what was promised of it; infinite or 1: nothing was."""

    operator: str
    within_s: float = NEVER
    late_at_most: float = 1.0  # share that may come later than that
    lost_at_most: float = 1.0
    wrong_at_most: float = 1.0
    available_at_least: float = 0.0
    tentative_s: float = NEVER  # what is not there by then is answered from what is there, and corrected later


@dataclass(frozen=True)
class StreamModel:
    """Operators stand upstream first; `outputs` empty: whatever nobody reads."""

    name: str
    operators: tuple[Operator, ...]
    outputs: tuple[Output, ...] = ()
    faults: tuple[Fault, ...] = ()
    copies: tuple[Copies, ...] = ()
    flow: str = "drops"
    frame_s: float = 0.0  # length of a frame, where the flow waits
    notes: dict[str, str] = field(default_factory=dict)  # where its numbers come from

    def __post_init__(self) -> None:
        if not self.outputs:
            read = {name for each in self.operators for port in each.ports for name in port.reads}
            ends = tuple(Output(each.name) for each in self.operators if each.name not in read)
            object.__setattr__(self, "outputs", ends)
        _check(self)

    # -- lookups -----------------------------------------------------------------

    @cached_property
    def index(self) -> dict[str, int]:
        return {each.name: i for i, each in enumerate(self.operators)}

    def operator(self, name: str) -> Operator:
        return self.operators[self.index[name]]

    @cached_property
    def units(self) -> dict[str, tuple[str, ...]]:
        """unit -> its operators, both upstream first."""
        found: dict[str, list[str]] = {}
        for each in self.operators:
            found.setdefault(each.unit_name, []).append(each.name)
        return {unit: tuple(names) for unit, names in found.items()}

    @cached_property
    def hosts(self) -> dict[str, tuple[str, ...]]:
        """host -> units on it. A unit without a host is on one of its own."""
        found: dict[str, list[str]] = {}
        for unit, names in self.units.items():
            found.setdefault(self.operator(names[0]).host or unit, []).append(unit)
        return {host: tuple(units) for host, units in found.items()}

    def targets(self, fault: Fault) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """(name, operators hit together) of each target of the fault."""
        if fault.kind == "host":
            found = {
                host: tuple(name for unit in units for name in self.units[unit]) for host, units in self.hosts.items()
            }
        elif fault.kind == "driver":
            found = {"driver": tuple(self.index)}
        elif fault.kind == "source":
            found = {each.name: (each.name,) for each in self.operators if each.is_source}
        else:
            found = dict(self.units)
        return tuple((name, found[name]) for name in (fault.of or found))

    @cached_property
    def rates(self) -> dict[str, tuple[tuple[float, ...], float]]:
        """Without a fault: operator -> (elements a second in at each port, out)."""
        found: dict[str, tuple[tuple[float, ...], float]] = {}
        for each in self.operators:
            ins = tuple(sum(found[name][1] for name in port.reads) for port in each.ports)
            out = each.rate + sum(rate * port.selectivity for rate, port in zip(ins, each.ports, strict=True))
            found[each.name] = (ins, out)
        return found

    def above(self, name: str, port: int | None = None) -> frozenset[str]:
        """Every operator on the way to it, or to one port of it; without itself."""
        operator = self.operator(name)
        todo = [each for i, p in enumerate(operator.ports) if port in (None, i) for each in p.reads]
        seen: set[str] = set()
        while todo:
            if (each := todo.pop()) not in seen:
                seen.add(each)
                todo += [read for p in self.operator(each).ports for read in p.reads]
        return frozenset(seen)

    # -- changes -----------------------------------------------------------------

    def with_protection(self, protect: Protect, names: Iterable[str] | None = None) -> StreamModel:
        """The same, with these operators (all where left out) protected so."""
        chosen = set(self.index if names is None else names)
        changed = tuple(replace(each, protect=protect) if each.name in chosen else each for each in self.operators)
        return replace(self, operators=changed)

    def with_rate(self, rate: float) -> StreamModel:
        """The same, with every source at this rate."""
        changed = tuple(replace(each, rate=rate) if each.is_source else each for each in self.operators)
        return replace(self, operators=changed)


def refused(what: str, where: str = "", why: str = "", do: str = "") -> UsageError:
    return UsageError("HF-M001", "ModelRefused", what, where=where, why=why, effect="nothing was computed", do=do)


def _check(model: StreamModel) -> None:
    where = f"model {model.name!r}"
    if model.flow not in FLOWS:
        raise refused(f"flow = {model.flow!r} is not known.", where, do=f"write one of {', '.join(FLOWS)}")
    if model.flow == "waits" and model.frame_s <= 0:
        raise refused("a flow that waits has frames, and frame_s is not given.", where, do="write frame_s = 1.0")
    seen: set[str] = set()
    for each in model.operators:
        at = f"{where}, operator {each.name!r}"
        if each.name in seen:
            raise refused(f"operator {each.name!r} stands there twice.", where, do="give each a name of its own")
        for port in each.ports:
            for name in port.reads:
                if name not in seen:
                    why = (
                        "it stands further below"
                        if any(name == other.name for other in model.operators)
                        else "there is none"
                    )
                    what = f"{each.name!r} reads {name!r}, which does not stand above it."
                    raise refused(what, at, why, "list operators upstream first")
            if not all(0 <= number < math.inf for number in (port.selectivity, port.selectivity_bad, port.cost_s)):
                raise refused("a selectivity or a cost is negative or infinite.", at)
            if port.state is not None and not port.state.size > 0:
                raise refused(f"a state of {port.state.size:g} elements is not a state.", at, do="leave it out")
        if each.is_source and each.rate <= 0:
            raise refused(
                "an operator without ports is a source, and a source has a rate.", at, do="write rate = 100.0"
            )
        if not each.is_source and each.rate:
            raise refused("only a source has a rate.", at, do="leave it out, or drop the ports")
        if each.protect.kind not in DURABILITIES:
            raise refused(
                f"protection {each.protect.kind!r} is not known.", at, do=f"write one of {', '.join(DURABILITIES)}"
            )
        if not 0 < each.protect.every_s < math.inf or each.protect.behind_s < 0:
            raise refused("a protection has a positive every_s, and a behind_s that is not negative.", at)
        if not all(0 <= number < math.inf for number in (each.rate, each.cost_s, each.frame_cost_s, each.state_bytes)):
            raise refused("a rate, a cost or a size is negative or infinite.", at)
        seen.add(each.name)
    _check_rest(model, where, seen)


def _check_rest(model: StreamModel, where: str, names: set[str]) -> None:
    copied: set[str] = set()
    for group in model.copies:
        at = f"{where}, copies of {', '.join(group.members)}"
        if group.kind not in COPIES or group.n < 2:
            do = 'write kind = "ha" or "replicate", and n = 2 or more'
            raise refused(f"{group.n} copies of kind {group.kind!r} are not known.", at, do=do)
        if not 0 <= group.failover_s < math.inf:
            raise refused("failover_s is negative or infinite.", at)
        for name in group.members:
            if name not in names:
                raise refused(f"there is no operator {name!r}.", at)
            if name in copied:
                raise refused(f"{name!r} is in two groups of copies.", at)
        copied.update(group.members)
    for fault in model.faults:
        at = f"{where}, fault {fault.kind!r}"
        if fault.kind not in FAULTS:
            raise refused(f"fault {fault.kind!r} is not known.", where, do=f"write one of {', '.join(FAULTS)}")
        if not fault.mttf_s > 0 or not 0 <= fault.repair_s < math.inf:
            raise refused("a fault has a positive mttf_s and a repair_s that is not negative.", at)
        known = {name for name, _ in model.targets(replace(fault, of=()))}
        for name in fault.of:
            if name not in known:
                raise refused(f"{name!r} is not one of its targets.", at, f"they are: {', '.join(sorted(known))}")
    for output in model.outputs:
        if output.operator not in names:
            raise refused(f"output {output.operator!r} is not an operator.", where)
