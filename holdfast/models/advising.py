"""Which protections keep all promises at the least cost, and why: chosen by sums, checked by simulation.

    1. For every block (`options.blocks_of`) and option: what its own faults alone leave of each promise. That two of them
       meet is in it; that faults of two blocks meet is not.
    2. The cheapest plan within all bounds (`planning`).
    3. It is simulated with all faults. Where it breaks a promise, it is out, and 2. is repeated; where the sum was nearly
       right, the bound is tightened by as much as it missed.

An advice says what each protection costs and buys, which promise a cheaper plan would break, and what a promise
costs: what would be saved if it were 10 % looser.

Pure: randomness arrives as a `numpy.random.Generator`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.models.options import Cost, Option, Prices, applied, blocks_of, cost_of
from holdfast.models.planning import Choices, Plan, cheapest, shortfall
from holdfast.models.predicting import Prediction, Promise, predict, promises_of, shares
from holdfast.models.stream import StreamModel

__all__ = ["Advice", "Bounds", "Cannot", "Considered", "advise", "with_promises"]

# How often a promise is tightened before a plan is said not to exist.
_ROUNDS = 24
_LOOSER = 1.1
# Faults that a table of what is left is made from, for each option.
_HITS = 1500
# A sum that is this near to what the simulation found is a measure of it.
_NEARLY = 1.3
# A source that is silent and a driver that stops everything do so however a block is protected.
_NOT_OF_A_BLOCK = ("source", "driver")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of the costs: times the processor work of the unprotected process; bytes a second."""

    cpu: float | None = None
    bytes: float | None = None


@dataclass(frozen=True)
class Considered:
    """A plan with its cost, and what the simulation says of it."""

    options: Mapping[str, Option]
    cost: Cost
    prediction: Prediction

    @property
    def broken(self) -> list[tuple[Promise, float]]:
        return [(promise, found.mean) for promise, found in self.prediction.broken()]


@dataclass(frozen=True)
class Cannot:
    """No plan keeps everything: what is in the way, and what the nearest plan reaches."""

    what: str  # "late of alarms" | "cpu" | "bytes"
    promise: Promise | None
    bound: float
    best: float
    alone: bool  # whatever the other bounds are


@dataclass(frozen=True)
class Advice:
    model: StreamModel
    base: Cost  # of the process without any protection
    plans: int  # how many there are
    chosen: Considered | None
    next_best: tuple[Considered, ...] = ()  # dearer, and kept too or not
    cheaper: tuple[Considered, ...] = ()  # each with one protection less
    buys: Mapping[str, dict[Promise, float]] = field(
        default_factory=dict
    )  # unit -> promise -> share that it takes away
    saves: Mapping[Promise, float] = field(default_factory=dict)  # if it were 10 % looser: share of the cost
    cannot: tuple[Cannot, ...] = ()
    rounds: int = 0

    def times(self, cost: Cost) -> float:
        """Of the processor work without protection."""
        return cost.cpu / self.base.cpu if self.base.cpu else 1.0


def advise(
    model: StreamModel,
    options: Sequence[Option] | Mapping[str, Sequence[Option]],
    *,
    until_s: float,
    rng: np.random.Generator,
    bounds: Bounds = Bounds(),
    prices: Prices = Prices(),
    replications: int = 1000,
    runners_up: int = 2,
) -> Advice:
    desk = _Desk(model, options, until_s, rng, bounds, prices, replications)
    return desk.advise(runners_up)


class _Desk:
    def __init__(self, model, options, until_s, rng, bounds, prices, replications) -> None:
        self.model, self.until_s, self.rng = model, until_s, rng
        self.prices, self.replications = prices, replications
        self.blocks = blocks_of(model)
        self.units = list(self.blocks)
        self.options = {unit: self._fitting(unit, options) for unit in self.units}
        self.promises = promises_of(model)
        nothing = {unit: Option() for unit in self.units}
        self.base = self._cost(nothing)
        self.seed = int(rng.integers(2**32))
        self.choices = self._choices(bounds)
        self.bounds = bounds

    def advise(self, runners_up: int) -> Advice:
        plans = int(np.prod([float(len(each)) for each in self.options.values()]))
        rejected: list[tuple[int, ...]] = []
        chosen, choices, rounds = None, self.choices, 0
        while chosen is None and rounds < _ROUNDS:
            rounds += 1
            plan = cheapest(choices, rejected)
            if plan is None:
                break
            looked = self.look(plan.options)
            if not looked.broken:
                chosen = looked
                break
            rejected.append(plan.options)
            choices = self._tightened(choices, plan, looked)
        if chosen is None:
            return Advice(self.model, self.base, plans, None, cannot=self._cannot(rejected), rounds=rounds)
        taken = self._numbers(chosen.options)
        others, without = [], [*rejected, taken]
        for _ in range(runners_up):
            if (plan := cheapest(choices, without)) is None:
                break
            others.append(self.look(plan.options))
            without.append(plan.options)
        return Advice(
            self.model,
            self.base,
            plans,
            chosen,
            tuple(others),
            self._cheaper(taken),
            self._buys(taken),
            self._saves(choices, taken),
            rounds=rounds,
        )

    def _fitting(self, unit: str, options) -> list[Option]:
        """Where the flow drops, a block without state has none to keep: only copies make a difference."""
        given = list(options[unit] if isinstance(options, Mapping) else options)
        names = [name for each in self.blocks[unit] for name in self.model.units[each]]
        if self.model.flow == "waits" or any(self.model.operator(name).is_stateful for name in names):
            return given
        return list(dict.fromkeys(replace(each, protect=Option().protect) for each in given))

    # -- tables ----------------------------------------------------------------------

    def _cost(self, plan: Mapping[str, Option]) -> Cost:
        total = Cost(0.0, 0.0)
        for unit, option in plan.items():
            total = total + cost_of(self.model, self.blocks[unit], option, self.prices)
        return total

    def _choices(self, bounds: Bounds) -> Choices:
        harm: list[list[np.ndarray]] = [[] for _ in self.promises]
        for unit in self.units:
            table = np.zeros((len(self.promises), len(self.options[unit])))
            for o, option in enumerate(self.options[unit]):
                table[:, o] = self._harm(unit, option)
            for k in range(len(self.promises)):
                harm[k].append(table[k])
        for k, left in enumerate(self._left_by(self._outside())):
            harm[k].append(np.array([left]))
        costs = [
            [cost_of(self.model, self.blocks[unit], option, self.prices) for option in self.options[unit]]
            for unit in self.units
        ]
        costs.append([Cost(0.0, 0.0)])  # what no block can help: one more that has no choice
        limits = [promise.at_most for promise in self.promises]
        tables = [tuple(each) for each in harm]
        if bounds.cpu is not None:
            tables.append(tuple(np.array([each.cpu for each in own]) for own in costs))
            limits.append(bounds.cpu * self.base.cpu)
        if bounds.bytes is not None:
            tables.append(tuple(np.array([each.bytes for each in own]) for own in costs))
            limits.append(bounds.bytes)
        # Processor time first; bytes decide between equals, and so does the simpler plan.
        size = max(1.0, max((each.bytes for own in costs for each in own), default=1.0))
        weights = tuple(
            np.array([each.cpu + 1e-6 * self.base.cpu * (each.bytes / size + 0.01 * o) for o, each in enumerate(own)])
            for own in costs
        )
        return Choices(weights, tuple(tables), tuple(limits))

    def _harm(self, unit: str, option: Option) -> list[float]:
        """By promise: what is left when only this block fails."""
        model, crowd = _alone(applied(self.model, {unit: option}, self.prices, self.blocks), self.blocks[unit])
        return self._left_by(model, crowd, option.n)

    def _outside(self) -> StreamModel:
        """Faults of sources, and of units that no block has."""
        inside = {unit for units in self.blocks.values() for unit in units}
        rest = [unit for unit in self.model.units if unit not in inside]
        model, _ = _alone(self.model, rest)
        silent = tuple(fault for fault in self.model.faults if fault.kind in _NOT_OF_A_BLOCK)
        return replace(model, faults=(*model.faults, *silent))

    def _left_by(self, model: StreamModel, crowd: int = 1, copies: int = 1) -> list[float]:
        if not model.faults:
            return [0.0] * len(self.promises)
        often = copies * sum(
            self.until_s / (fault.mttf_s + fault.repair_s) * len(model.targets(fault)) for fault in model.faults
        )
        # Rare faults need more replications for the same number of hits, and have fewer steps.
        replications = int(np.clip(_HITS / often, 200, 4000))
        rng = np.random.default_rng(self.seed)
        found, _ = shares(model, until_s=self.until_s, replications=replications, rng=rng)
        # Units that a host takes down together are late together: each has its part of it.
        parts = {"late": crowd, "unavailable": crowd}
        return [float(found[each.share][each.output].mean()) / parts.get(each.share, 1) for each in self.promises]

    def _tightened(self, choices: Choices, plan: Plan, looked: Considered) -> Choices:
        for promise, found in looked.broken:
            k = self.promises.index(promise)
            expected = choices.harm_of(k, plan.options)
            if promise.at_most > 0 and found < _NEARLY * expected:
                choices = choices.with_bound(k, min(choices.bounds[k], expected) * min(0.995, promise.at_most / found))
        return choices

    # -- looking -----------------------------------------------------------------------

    def look(self, numbers: Sequence[int]) -> Considered:
        options = {unit: self.options[unit][o] for unit, o in zip(self.units, numbers, strict=False)}
        model = applied(self.model, options, self.prices, self.blocks)
        rng = np.random.default_rng(self.seed)
        return Considered(
            options, self._cost(options), predict(model, until_s=self.until_s, replications=self.replications, rng=rng)
        )

    def _numbers(self, options: Mapping[str, Option]) -> tuple[int, ...]:
        return (*(self.options[unit].index(options[unit]) for unit in self.units), 0)

    def _cheaper(self, taken: Sequence[int]) -> tuple[Considered, ...]:
        """With one unit at its next cheaper option each: which promise breaks? Those that save most first, at most three."""
        found = []
        for u, _unit in enumerate(self.units):
            costs = self.choices.cost[u]
            below = [o for o in range(len(costs)) if costs[o] < costs[taken[u]] * (1 - 1e-9)]
            if below:
                nearest = max(below, key=costs.__getitem__)
                found.append((costs[taken[u]] - costs[nearest], (*taken[:u], nearest, *taken[u + 1 :])))
        found.sort(key=lambda each: -each[0])
        looked = [self.look(plan) for _, plan in found[:3]]
        return tuple(each for each in looked if each.broken)

    def _buys(self, taken: Sequence[int]) -> dict[str, dict[Promise, float]]:
        """Beside the same unit without protection."""
        found = {}
        for u, unit in enumerate(self.units):
            plain = next((o for o, each in enumerate(self.options[unit]) if each == Option()), None)
            if plain is None or plain == taken[u]:
                continue
            found[unit] = {
                promise: float(self.choices.harm[k][u][plain] - self.choices.harm[k][u][taken[u]])
                for k, promise in enumerate(self.promises)
            }
        return found

    def _saves(self, choices: Choices, taken: Sequence[int]) -> dict[Promise, float]:
        now = choices.cost_of(taken)
        found = {}
        for k, promise in enumerate(self.promises):
            plan = cheapest(choices.with_bound(k, choices.bounds[k] * _LOOSER))
            if plan is not None and plan.cost < now * (1 - 1e-5):
                found[promise] = 1 - plan.cost / now
        return found

    def _cannot(self, rejected: Sequence[tuple[int, ...]]) -> tuple[Cannot, ...]:
        found = []
        for each in shortfall(self.choices):
            promise = self.promises[each.bound] if each.bound < len(self.promises) else None
            bound, best = self.choices.bounds[each.bound], each.best
            if promise is None:
                is_cpu = self.bounds.cpu is not None and each.bound == len(self.promises)
                scale = self.base.cpu if is_cpu else 1.0
                found.append(Cannot("cpu" if is_cpu else "bytes", None, bound / scale, best / scale, each.alone))
            else:
                found.append(Cannot(self._words(promise), promise, bound, best, each.alone))
        if not found and rejected:
            # By first order there are plans; by simulation none of those tried keeps everything.
            looked = [self.look(plan) for plan in rejected]
            nearest = min(
                looked, key=lambda each: max(value / max(promise.at_most, 1e-9) for promise, value in each.broken)
            )
            found = [
                Cannot(self._words(promise), promise, promise.at_most, value, False)
                for promise, value in nearest.broken
            ]
        return tuple(found)

    def _words(self, promise: Promise) -> str:
        return f"{promise.share} of {self.model.outputs[promise.output].operator}"


def _alone(model: StreamModel, units: Sequence[str]) -> tuple[StreamModel, int]:
    """The model in which only these units fail, and how many share their host (at most)."""
    own = set(units)
    crowd = max((len(others) for others in model.hosts.values() if own & set(others)), default=1)
    apart = tuple(
        each if each.unit_name in own else replace(each, host=f"away {each.unit_name}") for each in model.operators
    )
    alone = replace(model, operators=apart, faults=())
    names = {name for unit in units for name in model.units[unit]}
    faults = []
    for fault in model.faults:
        known = alone.targets(replace(fault, of=()))
        hit = tuple(target for target, members in known if names & set(members) and target in (fault.of or (target,)))
        if hit and fault.kind not in _NOT_OF_A_BLOCK:
            faults.append(replace(fault, of=hit))
    return replace(alone, faults=tuple(faults)), crowd


def with_promises(model: StreamModel, **changes: Any) -> StreamModel:
    """The same, with these fields of every output."""
    return replace(model, outputs=tuple(replace(each, **changes) for each in model.outputs))
