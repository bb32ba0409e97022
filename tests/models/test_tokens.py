"""The token simulator: its intervals cover the exact answer as often as they say, its clocks mean what is written."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from holdfast.models import san
from holdfast.models.san.estimates import generators, interval
from holdfast.models.san.firing import Compiled
from tests.models.nets import queue, two_states


@pytest.mark.parametrize(
    ("net", "reward"),
    [
        (two_states(0.1, 0.4), san.Reward("up", rate=lambda m: m["up"], over=san.Average(0, 60))),
        (queue(3, 0.9, 1.0, 0.1, 0.5), san.Reward("served", impulse={"served": 1}, over=san.Total(5, 25))),
    ],
    ids=["two states", "queue with breakdowns"],
)
def test_the_interval_covers_the_exact_answer_in_about_95_of_100_seeds(net, reward):
    exact = san.solve(net, [reward])[reward.name]
    covered = sum(
        san.estimate(net, [reward], seed=seed, replications=40)[reward.name].covers(exact) for seed in range(200)
    )

    # Binomial(200, 0.95) is outside once in some 3,000 times.
    assert 180 <= covered <= 198


def test_a_seed_gives_the_same_bits_whatever_runs_beside_it():
    net, reward = queue(5, 0.9, 1.0, 0.1, 0.5), san.Reward("served", impulse={"served": 1}, over=san.Total(0, 50))
    compiled = Compiled(net)
    alone = [san.simulate(net, [reward], rng)["served"] for rng in generators(7, 0, 12)]
    in_parts = [
        san.simulate(compiled, [reward], rng)["served"] for part in ((0, 5), (5, 12)) for rng in generators(7, *part)
    ]

    assert alone == in_parts
    assert len(set(alone)) > 1
    found = san.estimate(net, [reward], seed=7, replications=12)["served"]
    assert found == interval(alone)


def test_the_interval_is_students():
    """By the table: t(0.975) with 3 degrees of freedom is 3.182, t(0.95) with 4 is 2.132."""
    found = interval([1.0, 2.0, 3.0, 4.0])
    assert (found.mean, found.half_width) == (2.5, pytest.approx(3.182 * (5 / 3) ** 0.5 / 2, rel=1e-3))
    assert found.replications == 4

    narrower = interval([1.0, 2.0, 3.0, 4.0, 5.0], confidence=0.9)
    assert narrower.half_width == pytest.approx(2.132 * 2.5**0.5 / 5**0.5, rel=1e-3)


def test_replications_are_added_until_the_interval_is_as_narrow_as_asked():
    net, reward = two_states(0.1, 0.4), san.Reward("up", rate=lambda m: m["up"], over=san.Average(0, 30))
    exact = san.solve(net, [reward])["up"]
    few = san.estimate(net, [reward], seed=3, half_width=0.03)["up"]
    more = san.estimate(net, [reward], seed=3, relative=0.01)["up"]

    assert few.half_width <= 0.03 and more.half_width <= 0.01 * more.mean
    assert few.replications < more.replications
    assert more.covers(exact)


def one_shot(delay, **more):
    net = san.Network("one")
    net.place("a", 1)
    net.place("b")
    net.timed("goes", delay, takes="a", gives="b", **more)
    return net


@pytest.mark.parametrize(
    ("delay", "by", "chance"),
    [
        (san.Exponential(0.5), 2.0, 1 - np.exp(-1.0)),
        (san.Uniform(1.0, 4.0), 2.0, 1 / 3),
        (san.Erlang(3, 2.0), 2.0, special.gammainc(3, 4.0)),
        (san.Weibull(2.0, 3.0), 2.0, 1 - np.exp(-((2 / 3) ** 2))),
        (san.Given(lambda rng: 1.0 + (rng.random() < 0.3)), 1.5, 0.7),
        (san.Deterministic(2.0), 2.0, 1.0),
        (san.Deterministic(2.0), 1.999, 0.0),
    ],
    ids=str,
)
def test_a_delay_has_the_distribution_it_names(delay, by, chance):
    there = san.Reward("b", rate=lambda m: m["b"], over=san.At(by))
    found = san.estimate(one_shot(delay), [there], seed=11, replications=1500, confidence=0.999)["b"]

    assert found.covers(chance)


def values(net, *rewards, seed=0):
    return san.simulate(net, rewards, np.random.default_rng(seed))


def interrupted(**more):
    """'works' takes 10 and is disabled from 4 to 7."""
    net = san.Network("interrupted")
    net.place("on", 1)
    net.place("off")
    net.place("rested")
    net.place("done")
    net.timed("pauses", san.Deterministic(4.0), takes="on", gives="off", when=lambda m: not m["rested"])
    net.timed("resumes", san.Deterministic(3.0), takes="off", gives=["on", "rested"])
    net.timed("works", san.Deterministic(10.0), gives="done", when=lambda m: m["on"] and not m["done"], **more)
    return net


@pytest.mark.parametrize(("how", "done_at"), [({}, 17.0), ({"disabled": "resume"}, 13.0)], ids=["forgets", "resumes"])
def test_an_interrupted_activity_forgets_its_draw_or_resumes_it(how, done_at):
    not_done = san.Reward("not done", rate=lambda m: not m["done"], over=san.Total(0, 100))

    assert values(interrupted(**how), not_done)["not done"] == pytest.approx(done_at)


@pytest.mark.parametrize(
    ("later", "how", "done_at"),
    [
        (3.0, {}, 10.0),
        (3.0, {"changed": "resample"}, 7.0),
        (10.0, {}, 10.0),
        (10.0, {"changed": "resample"}, 10.0),
        (10.0, {"reactivate": lambda m: m["second"]}, 14.0),
    ],
    ids=[
        "another delay, kept",
        "another delay, resampled",
        "same, kept",
        "same, nothing to resample",
        "same, reactivated",
    ],
)
def test_a_draw_is_kept_when_the_marking_changes_unless_declared_otherwise(later, how, done_at):
    """The delay is 10 at first; the marking changes at time 4."""
    net = san.Network("changing")
    for name, tokens in (("first", 1), ("second", 0), ("done", 0)):
        net.place(name, tokens)
    net.timed("changes", san.Deterministic(4.0), takes="first", gives="second")
    net.timed(
        "works",
        lambda m: san.Deterministic(later if m["second"] else 10.0),
        gives="done",
        when=lambda m: not m["done"],
        **how,
    )
    not_done = san.Reward("not done", rate=lambda m: not m["done"], over=san.Total(0, 100))

    assert values(net, not_done)["not done"] == pytest.approx(done_at)


def test_an_activity_disabled_only_in_passing_was_not_interrupted():
    """The token leaves 'on' and is back in it before any time has passed."""
    net = san.Network("passing")
    for name, tokens in (("on", 1), ("away", 0), ("done", 0), ("due", 1)):
        net.place(name, tokens)
    net.timed("blinks", san.Deterministic(4.0), takes=["on", "due"], gives="away")
    net.instant("back", takes="away", gives="on")
    net.timed("works", san.Deterministic(10.0), takes="on", gives="done")
    not_done = san.Reward("not done", rate=lambda m: not m["done"], over=san.Total(0, 100))

    assert values(net, not_done)["not done"] == pytest.approx(10.0)


def test_what_is_due_at_one_moment_completes_in_the_order_of_declaration():
    """Two want the only token at time 5; a third is enabled by neither."""
    for first, second in (("a", "b"), ("b", "a")):
        net = san.Network("tie")
        net.place("token", 1)
        net.place("a")
        net.place("b")
        net.timed(f"to {first}", san.Deterministic(5.0), takes="token", gives=first)
        net.timed(f"to {second}", san.Deterministic(5.0), takes="token", gives=second)
        found = values(
            net,
            san.Reward(first, rate=lambda m, p=first: m[p], over=san.At(5.0)),
            san.Reward(second, rate=lambda m, p=second: m[p], over=san.At(5.0)),
        )

        assert found == {first: 1.0, second: 0.0}


def test_rewards_are_taken_over_exactly_their_interval():
    """A tick each second: (2, 5] holds 3, 4 and 5; the count at 5 includes the tick at 5."""
    net = san.Network("ticks")
    net.place("n")
    net.timed("tick", san.Deterministic(1.0), gives="n")
    found = values(
        net,
        san.Reward("ticks", impulse={"tick": 1}, over=san.Total(2, 5)),
        san.Reward("worth", impulse={"tick": lambda m: m["n"]}, over=san.Total(0, 4)),
        san.Reward("average", rate=lambda m: m["n"], over=san.Average(0.5, 2.5)),
        san.Reward("at", rate=lambda m: m["n"], over=san.At(5)),
        san.Reward("both", rate=lambda m: 1.0, impulse={"tick": 10}, over=san.Total(0, 3)),
    )

    assert found == {
        "ticks": 3.0,
        "worth": 0 + 1 + 2 + 3,
        "average": (0.5 * 0 + 1 * 1 + 0.5 * 2) / 2,
        "at": 5.0,
        "both": 33.0,
    }


def test_parts_that_share_a_place_are_one_network():
    """A producer and a consumer, each written without the other, meet in 'belt'."""
    producer, consumer = san.Network("producer"), san.Network("consumer")
    producer.place("belt")
    producer.timed("makes", san.Deterministic(1.0), gives="belt")
    consumer.place("belt")
    consumer.place("eaten")
    consumer.timed(
        "eats", san.Deterministic(2.0), takes="belt", then=lambda m: None, cases=[san.Case(1.0, then=_one_more)]
    )
    both = san.join("both", share=["belt"], left=producer, right=consumer)
    found = values(
        both,
        san.Reward("eaten", rate=lambda m: m["right.eaten"], over=san.At(10.5)),
        san.Reward("belt", rate=lambda m: m["belt"], over=san.At(10.5)),
    )

    assert found == {"eaten": 4.0, "belt": 6.0}


def _one_more(m):
    m["eaten"] += 1


@pytest.mark.parametrize("seed", range(4))
def test_simulator_and_exact_solver_agree_on_networks_of_parts(seed):
    """Gates, cases that depend on the marking, priorities, weights and sharing, all at once."""
    rng = np.random.default_rng(seed)
    part = san.Network("part")
    for name, tokens in (("idle", 1), ("busy", 0), ("broken", 0), ("tools", 2)):
        part.place(name, tokens)
    rates = [float(rate) for rate in rng.uniform(0.3, 2.0, 3)]
    part.timed(
        "starts",
        lambda m: san.Exponential(rates[0] * m["tools"]),
        takes="idle",
        when=lambda m: m["tools"] > 0,
        then=lambda m: m.__setitem__("tools", m["tools"] - 1),
        gives="busy",
    )
    part.timed(
        "ends",
        san.Exponential(rates[1]),
        takes="busy",
        cases=[
            san.Case(
                lambda m: 0.2 + 0.3 * m["tools"],
                then=lambda m: (m.__setitem__("idle", 1), m.__setitem__("tools", m["tools"] + 1)),
            ),
            san.Case(lambda m: 0.8 - 0.3 * m["tools"], gives="broken"),
        ],
    )
    part.timed("fixed", san.Exponential(rates[2]), takes="broken", gives=["idle", "tools"])
    net = san.replicate("shop", part, 2, share=["tools"])
    net.place("alarm")
    net.instant(
        "both broken",
        takes=["part[0].broken", "part[1].broken"],
        gives=["part[0].idle", "part[1].idle", "alarm"],
        weight=2.0,
        then=lambda m: m.__setitem__("tools", 2),
    )
    net.instant(
        "one helps", takes=["part[0].broken", "part[1].broken"], gives=["part[0].idle", "part[1].broken", "tools"]
    )
    net.instant("heard", takes="alarm", priority=1)
    rewards = [
        san.Reward("busy", rate=lambda m: m["part[0].busy"] + m["part[1].busy"], over=san.Average(0, 10)),
        san.Reward("alarms", impulse={"heard": 1, "one helps": 0.5}, over=san.Total(1, 10)),
        san.Reward("tools", rate=lambda m: m["tools"], over=san.At(3.0)),
    ]
    exact = san.solve(net, rewards)
    found = san.estimate(net, rewards, seed=seed, replications=1200, confidence=0.9995)

    assert {name: each.covers(exact[name]) for name, each in found.items()} == dict.fromkeys(exact, True), (
        exact,
        found,
    )
