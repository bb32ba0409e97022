"""The exact solver against closed forms and against equations solved in another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import expm

from holdfast.models import san
from tests.models.nets import queue, queue_by_hand, two_states

FAILS, REPAIRED = 1 / 1800, 1 / 3.5
UP = {"rate": lambda m: m["up"]}


def test_two_states_are_solved_as_the_closed_form_says():
    both = FAILS + REPAIRED
    found = san.solve(
        two_states(FAILS, REPAIRED),
        [
            san.Reward("long run", **UP),
            san.Reward("after 2 s", **UP, over=san.At(2.0)),
            san.Reward("over 2 h", **UP, over=san.Average(0, 7200)),
            san.Reward("second hour", **UP, over=san.Average(3600, 7200)),
            san.Reward("failures", impulse={"fails": 1}, over=san.Total(0, 7200)),
            san.Reward("failures a second", impulse={"fails": 1}),
        ],
    )

    def up_until(t: float) -> float:
        return REPAIRED / both * t + FAILS / both**2 * (1 - math.exp(-both * t))

    expected = {
        "long run": REPAIRED / both,
        "after 2 s": REPAIRED / both + FAILS / both * math.exp(-both * 2),
        "over 2 h": up_until(7200) / 7200,
        "second hour": (up_until(7200) - up_until(3600)) / 3600,
        "failures": FAILS * up_until(7200),
        "failures a second": FAILS * REPAIRED / both,
    }
    assert found == {name: pytest.approx(value, abs=1e-12) for name, value in expected.items()}


@pytest.mark.parametrize("rates", [(0.8, 1.0, 0.01, 0.1), (1.4, 1.0, 0.3, 0.2), (3e-4, 1e-3, 1e-5, 7.0)])
def test_a_queue_with_breakdowns_is_solved_as_its_equations_written_by_hand(rates):
    room = 10
    by_hand = queue_by_hand(room, *rates)
    found = san.solve(
        queue(room, *rates),
        [
            san.Reward("up", **UP),
            san.Reward("inside", rate=lambda m: m["inside"]),
            san.Reward("served", impulse={"served": 1}),
            san.Reward("let in", impulse={"arrives": 1}),
            san.Reward("full", rate=lambda m: m["inside"] == room),
        ],
    )

    assert found["up"] == pytest.approx(rates[3] / (rates[2] + rates[3]), abs=1e-9)
    assert found["inside"] == pytest.approx(by_hand.sum(0) @ np.arange(room + 1), abs=1e-9)
    assert found["served"] == pytest.approx(rates[1] * by_hand[1, 1:].sum(), abs=1e-9)
    assert found["served"] == pytest.approx(found["let in"], abs=1e-12)
    assert found["let in"] == pytest.approx(rates[0] * (1 - found["full"]), abs=1e-12)


def test_a_queue_without_breakdowns_has_the_closed_form_of_m_m_1_k():
    load, room = 0.7, 12
    found = san.solve(queue(room, load, 1.0, 1e-300, 1.0), [san.Reward("full", rate=lambda m: m["inside"] == room)])

    assert found["full"] == pytest.approx((1 - load) * load**room / (1 - load ** (room + 1)), rel=1e-9)


def test_a_large_chain_is_solved_as_a_small_one():
    """Above 400 states the equations are solved by another method."""
    rates = (0.9, 1.0, 0.01, 0.1)
    for room in (100, 250):
        found = san.solve(queue(room, *rates), [san.Reward("inside", rate=lambda m: m["inside"])])

        assert found["inside"] == pytest.approx(queue_by_hand(room, *rates).sum(0) @ np.arange(room + 1), rel=1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_random_networks_with_unstable_markings_are_solved_as_dense_algebra_solves_them(seed):
    """Cases, weights, priorities, probabilistic loops among unstable markings: against expm of the whole."""
    rng = np.random.default_rng(seed)
    places = [f"p{i}" for i in range(5)]
    net = san.Network("random")
    for i, name in enumerate(places):
        net.place(name, int(i == 0))
    # One token that walks. From p0, p1 by timed activities, from the others at once.
    jump = rng.dirichlet(np.ones(5), size=5) * (rng.random((5, 5)) < 0.7)
    jump[:, 0] += 0.05
    jump /= jump.sum(1, keepdims=True)
    rates = rng.uniform(0.2, 3.0, 2)
    for i in range(5):
        cases = [san.Case(float(p), gives=name) for p, name in zip(jump[i], places, strict=True)]
        if i < 2:
            net.timed(f"go{i}", san.Exponential(rates[i]), takes=places[i], cases=cases)
        elif i < 4:
            net.instant(f"go{i}", takes=places[i], cases=cases)
        else:
            # The same step as two activities that share it by weight; a third of lower priority never goes.
            net.instant("a", takes=places[i], cases=cases, weight=1.0)
            net.instant("b", takes=places[i], cases=cases, weight=3.0)
            net.instant("never", takes=places[i], gives="p1", priority=-1)

    timed, at_once = jump[:2], jump[2:]
    through = np.linalg.solve(np.eye(3) - at_once[:, 2:], np.hstack([at_once[:, :2], np.eye(3)]))
    step = timed[:, :2] + timed[:, 2:] @ through[:, :2]
    generator = np.diag(rates) @ (step - np.eye(2))
    visits = timed[:, 2:] @ through[:, 2:]  # of p2, p3, p4 between two stable markings
    at = np.array([1.0, 0.0]) @ expm(generator * 1.7)
    grown = np.zeros((3, 3))
    grown[:2, :2], grown[:2, 2] = generator, rates * visits[:, 2] / 4
    earned = (np.array([1.0, 0.0, 0.0]) @ expm(grown * 1.7))[2]

    found = san.solve(
        net,
        [
            san.Reward("p1", rate=lambda m: m["p1"], over=san.At(1.7)),
            san.Reward("a went", impulse={"a": 1}, over=san.Total(0, 1.7)),
            san.Reward("never went", impulse={"never": 1}, over=san.Total(0, 1.7)),
        ],
    )
    assert found["p1"] == pytest.approx(at[1], abs=1e-9)
    assert found["a went"] == pytest.approx(earned, abs=1e-9)
    assert found["never went"] == 0.0


def test_the_long_run_depends_on_where_a_token_ends_up():
    """Two closed classes: the start decides how likely each is."""
    net = san.Network("fork")
    net.place("start", 1)
    for name in ("left", "right", "further"):
        net.place(name)
    net.timed("goes", san.Exponential(0.3), takes="start", cases=[san.Case(0.25, "left"), san.Case(0.75, "right")])
    net.timed("on", san.Exponential(2.0), takes="right", gives="further")
    net.timed("back", san.Exponential(1.0), takes="further", gives="right")
    found = san.solve(net, [san.Reward(name, rate=lambda m, name=name: m[name]) for name in net.places])

    assert found == pytest.approx({"start": 0.0, "left": 0.25, "right": 0.25, "further": 0.5}, abs=1e-12)


def test_a_start_in_an_unstable_marking_is_spread_over_the_stable_ones():
    net = san.Network("start")
    for name, tokens in (("new", 1), ("a", 0), ("b", 0)):
        net.place(name, tokens)
    net.instant("begins", takes="new", cases=[san.Case(0.2, "a"), san.Case(0.8, "b")])
    net.timed("goes", san.Exponential(1.0), takes="a", gives="b")

    found = san.solve(
        net,
        [
            san.Reward("a", rate=lambda m: m["a"], over=san.At(0.5)),
            san.Reward("began", impulse={"begins": 1}, over=san.Total(0, 9)),
        ],
    )
    assert found["a"] == pytest.approx(0.2 * math.exp(-0.5), abs=1e-12)
    assert found["began"] == 0.0  # at time 0, before every interval


def test_rates_may_depend_on_the_marking():
    """Three machines, one repair crew: the closed form of a birth and death chain."""
    net = san.Network("machines")
    net.place("up", 3)
    net.place("down")
    net.timed("fails", lambda m: san.Exponential(0.1 * m["up"]), takes="up", gives="down")
    net.timed("repaired", san.Exponential(1.0), takes="down", gives="up")
    found = san.solve(net, [san.Reward("none up", rate=lambda m: m["up"] == 0)])
    weights = np.cumprod([1.0, 0.3, 0.2, 0.1])

    assert found["none up"] == pytest.approx(weights[3] / weights.sum(), abs=1e-14)


def test_copies_of_a_part_share_one_place():
    """Three machines, one crew that holds on to a machine until it is repaired: a birth and death chain."""
    machine = san.Network("machine")
    for name, tokens in (("up", 1), ("down", 0), ("in repair", 0), ("crew", 1)):
        machine.place(name, tokens)
    machine.timed("fails", san.Exponential(0.1), takes="up", gives="down")
    machine.instant("taken up", takes=["down", "crew"], gives="in repair")
    machine.timed("repaired", san.Exponential(1.0), takes="in repair", gives=["up", "crew"])
    shop = san.replicate("shop", machine, 3, share=["crew"])
    found = san.solve(shop, [san.Reward("none up", rate=lambda m: not any(m[f"machine[{i}].up"] for i in range(3)))])
    weights = np.cumprod([1.0, 0.3, 0.2, 0.1])

    assert found["none up"] == pytest.approx(weights[3] / weights.sum(), abs=1e-12)


@pytest.mark.parametrize(("fails", "repaired"), [(1e-4, 1e6), (1e5, 2e5), (3e-8, 4e3)])
def test_rates_that_lie_far_apart_are_solved_as_the_closed_form_says(fails, repaired):
    """Uniformisation alone would need up to ten thousand million steps."""
    both, until = fails + repaired, 7200.0
    found = san.solve(
        two_states(fails, repaired),
        [
            san.Reward("down", rate=lambda m: m["down"], over=san.Average(0, until)),
            san.Reward("failures", impulse={"fails": 1}, over=san.Total(0, until)),
            san.Reward("at", rate=lambda m: m["down"], over=san.At(until)),
        ],
    )
    down = fails / both - fails / both**2 / until

    assert found["down"] == pytest.approx(down, rel=1e-7, abs=1e-12)
    assert found["at"] == pytest.approx(fails / both, rel=1e-7, abs=1e-12)
    assert found["failures"] == pytest.approx(fails * (1 - down) * until, rel=1e-9)
