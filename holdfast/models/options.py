"""What a unit may be protected with, and what that costs beside not protecting it.

Costs are processor seconds a second and bytes a second. A copy costs the unit's work once more; a checkpoint
costs `checkpoint_s` and `byte_s` for each byte of it; what travels is the state, and with "uncoordinated" the
output since the last one too. Both numbers belong to the machine and are assumed: no record of a run says what a
checkpoint cost.

Pure: plain values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from holdfast.models.stations import load_of
from holdfast.models.stream import Copies, Operator, Protect, StreamModel

__all__ = ["Cost", "Option", "Prices", "applied", "blocks_of", "cost_of", "cost_of_model", "options_for"]


_NONE = Protect()


@dataclass(frozen=True, slots=True)
class Option:
    """For one unit: how its state is kept, and how many copies of it run."""

    protect: Protect = _NONE
    copies: str = ""  # "ha" | "replicate"; "": one
    n: int = 1

    def __str__(self) -> str:
        if self.n == 1:
            return str(self.protect)
        kept = "" if self.protect == _NONE else f" and {self.protect}"
        return f"{self.copies}({self.n}){kept}"


@dataclass(frozen=True, slots=True)
class Prices:
    checkpoint_s: float = 0.001  # processor seconds a checkpoint
    byte_s: float = 5e-9  # processor seconds a byte of it: 200 MB a second to pack, hash and ship
    failover_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Cost:
    cpu: float  # processor seconds a second
    bytes: float  # a second

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cpu + other.cpu, self.bytes + other.bytes)


def options_for(
    model: StreamModel,
    *,
    every_s: Iterable[float] = (1.0, 5.0),
    copies: Iterable[tuple[str, int]] = (("", 1), ("ha", 2), ("replicate", 2), ("replicate", 3)),
    skips: bool = True,
) -> list[Option]:
    """Up to 24: six ways to keep a state times four numbers of copies."""
    every = sorted(every_s)
    kept = [Protect(), *(Protect("checkpoint", each) for each in every)]
    if model.flow == "waits":
        kept += [Protect("ecoc", every[-1]), Protect("uncoordinated", every[-1])]
        bounds = [output.within_s for output in model.outputs if math.isfinite(output.within_s)]
        if skips and bounds:
            # Half of what is promised is left for the work itself and for those below.
            kept.append(Protect("checkpoint", every[-1], min(bounds) / 2))
    return [Option(protect, kind, n) for kind, n in copies for protect in kept]


def blocks_of(model: StreamModel) -> dict[str, tuple[str, ...]]:
    """What is protected together: name -> units, upstream first.

    Where the flow waits a unit alone: its inputs wait for a copy of it. Where it drops, a run of units of which each is
    the only reader of the one before: a copy that takes over must have missed nothing, so its feeders are copied too.
    """
    units = list(model.units)
    if model.flow == "waits":
        return {unit: (unit,) for unit in units if not model.operator(model.units[unit][0]).is_source}
    inputs = {unit: _neighbours(model, unit) for unit in units}
    readers = {unit: [other for other in units if unit in inputs[other]] for unit in units}
    ends = {model.operator(output.operator).unit_name for output in model.outputs}
    head: dict[str, str] = {}
    for unit in units:
        before = next(iter(inputs[unit]), None)
        joins = len(inputs[unit]) == 1 and len(readers[before]) == 1 and not {unit, before} & ends
        head[unit] = head[before] if joins else unit
    return {first: tuple(unit for unit in units if head[unit] == first) for first in dict.fromkeys(head.values())}


def _neighbours(model: StreamModel, unit: str) -> list[str]:
    reads = (name for own in model.units[unit] for port in model.operator(own).ports for name in port.reads)
    return [each for each in dict.fromkeys(model.operator(name).unit_name for name in reads) if each != unit]


def cost_of(model: StreamModel, units: Iterable[str], option: Option, prices: Prices) -> Cost:
    """Of a block."""
    operators = [model.operator(name) for unit in units for name in model.units[unit]]
    work = sum(load_of(model, each) for each in operators) * option.n
    kept = [each for each in operators if _is_kept(model, each)] if option.protect.keeps_state else []
    if not kept:
        return Cost(work, 0.0)
    protect, count = option.protect, len({each.unit_name for each in kept})
    sent = (
        sum(model.rates[each.name][1] * each.element_bytes for each in kept) if protect.kind == "uncoordinated" else 0.0
    )
    shipped = sum(each.state_bytes for each in kept) / protect.every_s + sent
    own = prices.checkpoint_s * count / protect.every_s + prices.byte_s * shipped
    return Cost(work + own * option.n, shipped * option.n)


def _is_kept(model: StreamModel, operator: Operator) -> bool:
    """Where the flow drops, an operator without state has nothing to keep; where it waits, it has frames."""
    return operator.is_stateful or model.flow == "waits"


def applied(
    model: StreamModel, plan: Mapping[str, Option], prices: Prices, blocks: Mapping[str, tuple[str, ...]] | None = None
) -> StreamModel:
    """The model with each block of the plan protected so, and copied as one."""
    blocks = blocks_of(model) if blocks is None else blocks
    option_of = {unit: option for block, option in plan.items() for unit in blocks[block]}
    changed = []
    for each in model.operators:
        option = option_of.get(each.unit_name)
        if option is not None:
            each = replace(each, protect=option.protect if _is_kept(model, each) else _NONE)
        changed.append(each)
    kept = tuple(
        group
        for group in model.copies
        if not any(model.operator(name).unit_name in option_of for name in group.members)
    )
    made = tuple(
        Copies(
            tuple(name for unit in blocks[block] for name in model.units[unit]),
            option.copies,
            option.n,
            prices.failover_s,
        )
        for block, option in plan.items()
        if option.n > 1
    )
    return replace(model, operators=tuple(changed), copies=(*kept, *made))


def cost_of_model(model: StreamModel, prices: Prices) -> Cost:
    """Of what the model declares."""
    groups = {model.operator(name).unit_name: group.n for group in model.copies for name in group.members}
    total = Cost(0.0, 0.0)
    for unit, names in model.units.items():
        protect = next(
            (model.operator(each).protect for each in names if model.operator(each).protect.keeps_state), _NONE
        )
        total = total + cost_of(
            model, [unit], Option(protect, "ha" if unit in groups else "", groups.get(unit, 1)), prices
        )
    return total
