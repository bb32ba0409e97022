"""The cheapest plan within bounds: equal to looking at all plans, where those are few enough."""

from itertools import product

import numpy as np
import pytest

from holdfast.models.planning import Choices, cheapest, shortfall


def instance(seed: int, units: int, options: int, promises: int = 3) -> Choices:
    """Dearer options leave less harm, mostly; bounds are met by some plans and not by others."""
    rng = np.random.default_rng(seed)
    cost = tuple(np.sort(rng.random(options)) * rng.uniform(0.5, 2.0) for _ in range(units))
    harm = tuple(
        tuple(rng.random(options) * np.linspace(1.0, 0.1, options) for _ in range(units)) for _ in range(promises)
    )
    bounds = tuple(float(rng.uniform(0.1, 0.7)) * units * 0.3 for _ in range(promises))
    return Choices(cost, harm, bounds)


def by_looking_at_all(choices: Choices, without=()) -> tuple[float, tuple[int, ...]] | None:
    plans = product(*(range(len(each)) for each in choices.cost))
    kept = (
        plan
        for plan in plans
        if plan not in without and all(choices.harm_of(k, plan) <= bound for k, bound in enumerate(choices.bounds))
    )
    return min(((choices.cost_of(plan), plan) for plan in kept), default=None)


def test_the_plan_is_the_cheapest_of_all():
    """Two hundred instances of up to six units; some of them have no plan at all."""
    feasible = 0
    for seed in range(200):
        choices = instance(seed, units=2 + seed % 5, options=2 + seed % 4)
        expected, found = by_looking_at_all(choices), cheapest(choices)
        assert (found is None) == (expected is None), seed
        if expected is not None:
            feasible += 1
            assert found.options == expected[1], seed
    assert 100 < feasible < 190


def test_a_plan_that_was_rejected_is_not_proposed_again():
    choices = instance(3, 4, 4)
    first = cheapest(choices)
    second = cheapest(choices, without=[first.options])

    assert second.options == by_looking_at_all(choices, [first.options])[1]


def test_a_bound_of_zero_takes_only_what_does_no_harm():
    choices = Choices((np.array([0.0, 5.0]),), ((np.array([1e-9, 0.0]),),), (0.0,))

    assert cheapest(choices).options == (1,)


def test_a_bound_that_no_plan_meets_is_named_with_what_the_best_reaches():
    cost = (np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    harm = ((np.array([0.5, 0.2]), np.array([0.5, 0.3])), (np.array([0.1, 0.1]), np.array([0.1, 0.1])))
    choices = Choices(cost, harm, (0.4, 1.0))

    assert cheapest(choices) is None
    (only,) = shortfall(choices)
    assert (only.bound, only.best, only.alone) == (0, pytest.approx(0.5), True)


def test_bounds_that_are_in_each_others_way_are_named_too():
    """Less of one is more of the other: each alone can be kept."""
    harm = ((np.array([1.0, 0.0]),), (np.array([0.0, 1.0]),))
    choices = Choices((np.array([0.0, 0.0]),), harm, (0.5, 0.4))

    assert cheapest(choices) is None
    assert [each.alone for each in shortfall(choices)] == [False]
