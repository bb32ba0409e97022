"""The cheapest choice of one option for each unit that stays within all bounds: a mixed integer program.

What an option costs and what it leaves of each fault are sums over units (first order), so this is a multiple
choice knapsack. `scipy.optimize.milp` (HiGHS) proves its answer; plans that were looked at and rejected are cut off.

Pure: plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, sparse

__all__ = ["Choices", "Plan", "Shortfall", "cheapest", "shortfall"]


@dataclass(frozen=True)
class Choices:
    """Units have options by number. `cost[u][o]`; `harm[k][u][o]` is summed over units and bounded by `bounds[k]`."""

    cost: tuple[np.ndarray, ...]
    harm: tuple[tuple[np.ndarray, ...], ...]
    bounds: tuple[float, ...]

    def cost_of(self, plan: Sequence[int]) -> float:
        return float(sum(costs[o] for costs, o in zip(self.cost, plan, strict=True)))

    def harm_of(self, k: int, plan: Sequence[int]) -> float:
        return float(sum(harms[o] for harms, o in zip(self.harm[k], plan, strict=True)))

    def with_bound(self, k: int, bound: float) -> Choices:
        return replace(self, bounds=(*self.bounds[:k], bound, *self.bounds[k + 1 :]))


@dataclass(frozen=True, slots=True)
class Plan:
    options: tuple[int, ...]  # by unit
    cost: float


@dataclass(frozen=True, slots=True)
class Shortfall:
    """No plan is within all bounds; the nearest one is, but for this."""

    bound: int
    best: float  # what the nearest plan has
    alone: bool  # even if the other bounds did not exist


def cheapest(choices: Choices, without: Sequence[tuple[int, ...]] = ()) -> Plan | None:
    """`without`: plans that may not be chosen. None: there is no plan within all bounds."""
    first, total = _columns(choices)
    rows, low, high = _one_each(choices, first, total)
    for k, bound in enumerate(choices.bounds):
        row = np.concatenate([np.asarray(each, float) for each in choices.harm[k]])
        rows.append(row / (bound or 1.0))
        low.append(-np.inf)
        high.append(1.0 if bound > 0 else 0.0)
    for plan in without:
        row = np.zeros(total)
        row[[int(first[u]) + o for u, o in enumerate(plan)]] = 1.0
        rows.append(row)
        low.append(-np.inf)
        high.append(len(plan) - 1.0)
    cost = np.concatenate([np.asarray(each, float) for each in choices.cost])
    # An option that breaks a bound alone is out before the solver's tolerance matters.
    allowed = np.ones(total)
    for k, bound in enumerate(choices.bounds):
        allowed[np.concatenate([np.asarray(each, float) for each in choices.harm[k]]) > bound * (1 + 1e-9) + 1e-12] = (
            0.0
        )
    found = _solve(cost, rows, low, high, allowed, np.ones(total))
    if found is None:
        return None
    options = tuple(int(found[int(first[u]) : int(first[u + 1])].argmax()) for u in range(len(choices.cost)))
    return Plan(options, choices.cost_of(options))


def shortfall(choices: Choices) -> list[Shortfall]:
    """Which bounds are in the way, and what the nearest plan reaches: the least sum of shares above the bounds."""
    first, total = _columns(choices)
    alone = [sum(float(np.min(each)) for each in harm) for harm in choices.harm]
    rows, low, high = _one_each(choices, first, total)
    count = len(choices.bounds)
    rows = [np.concatenate([row, np.zeros(count)]) for row in rows]
    for k, bound in enumerate(choices.bounds):
        scale = bound or max(alone[k], 1e-12)
        slack = np.zeros(count)
        slack[k] = -1.0
        rows.append(
            np.concatenate([np.concatenate([np.asarray(each, float) for each in choices.harm[k]]) / scale, slack])
        )
        low.append(-np.inf)
        high.append(bound / scale)
    cost = np.concatenate([np.zeros(total), np.ones(count)])
    found = _solve(
        cost,
        rows,
        low,
        high,
        np.concatenate([np.ones(total), np.full(count, np.inf)]),
        np.concatenate([np.ones(total), np.zeros(count)]),
    )
    if found is None:
        return []
    plan = tuple(int(found[int(first[u]) : int(first[u + 1])].argmax()) for u in range(len(choices.cost)))
    reached = [choices.harm_of(k, plan) for k in range(count)]
    return [
        Shortfall(k, reached[k], alone[k] > bound * (1 + 1e-9) + 1e-12)
        for k, bound in enumerate(choices.bounds)
        if reached[k] > bound * (1 + 1e-9) + 1e-12
    ]


def _columns(choices: Choices) -> tuple[np.ndarray, int]:
    first = np.cumsum([0, *(len(each) for each in choices.cost)])
    return first, int(first[-1])


def _one_each(choices: Choices, first: np.ndarray, total: int) -> tuple[list[np.ndarray], list[float], list[float]]:
    rows = []
    for u in range(len(choices.cost)):
        row = np.zeros(total)
        row[int(first[u]) : int(first[u + 1])] = 1.0
        rows.append(row)
    return rows, [1.0] * len(rows), [1.0] * len(rows)


def _solve(cost, rows, low, high, upper, integral) -> np.ndarray | None:
    # Costs around one, so that the solver's gap is a gap of the cost.
    scale = float(np.abs(cost).max()) or 1.0
    constraints = optimize.LinearConstraint(sparse.csr_array(np.stack(rows)), np.array(low), np.array(high))
    answer = optimize.milp(
        cost / scale,
        integrality=integral,
        bounds=optimize.Bounds(np.zeros(len(cost)), upper),
        constraints=constraints,
        options={"mip_rel_gap": 0.0, "time_limit": 60.0},
    )
    return answer.x if answer.x is not None else None
