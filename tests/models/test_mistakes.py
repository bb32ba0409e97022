"""Mistakes in a network are refused, and what the error says helps: each remedy is applied.

Codes: HF-N001 to HF-N012.
"""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.errors import UsageError
from holdfast.models import san
from tests.models.nets import two_states


def net_of(*places: str, **more: int) -> san.Network:
    net = san.Network("net")
    for name in places:
        net.place(name)
    for name, tokens in more.items():
        net.place(name, tokens)
    return net


def simulated(net, reward):
    return san.simulate(net, [reward], np.random.default_rng(0))


TICKS = san.Reward("ticks", impulse={"tick": 1}, over=san.Total(0, 3))


def unknown_place_in_an_arc(fixed):
    net = net_of("queue")
    net.timed("tick", san.Deterministic(1.0), gives="queue" if fixed else "qeue")


def unknown_place_in_a_gate(fixed):
    net = net_of("queue")
    net.timed("tick", san.Deterministic(1.0), when=lambda m: m["queue" if fixed else "qeue"] == 0)
    simulated(net, TICKS)


def unknown_place_in_share(fixed):
    san.join("both", share=["up" if fixed else "upp"], a=two_states(1, 1))


def share_that_maps_to_tokens(fixed):
    part, whole = net_of("spare"), san.Network("whole")
    whole.add(part, "part", share=list(part.places) if fixed else part.places)


def negative_marking_by_a_gate(fixed):
    net = net_of("queue", "other")
    net.timed(
        "tick",
        san.Deterministic(1.0),
        when=(lambda m: m["queue"] > 0) if fixed else None,
        then=lambda m: m.__setitem__("queue", m["queue"] - 1),
    )
    simulated(net, TICKS)


def negative_marking_at_the_start(fixed):
    net_of(queue=0 if fixed else -1)


def negative_arc(fixed):
    net = net_of("queue")
    net.timed("tick", san.Deterministic(1.0), **({"takes": {"queue": 1}} if fixed else {"gives": {"queue": -1}}))


def cases_do_not_add_up(fixed):
    net = net_of("a", "b")
    net.timed(
        "tick",
        san.Deterministic(1.0),
        cases=[san.Case(0.5, "a"), san.Case(0.25, "b"), *([san.Case(0.25)] if fixed else [])],
    )


def cases_do_not_add_up_in_a_marking(fixed):
    net = net_of("a", "b")
    net.timed(
        "tick",
        san.Deterministic(1.0),
        cases=[san.Case(lambda m: 1 - m["a"] / 10, "a"), san.Case(lambda m: m["a"] / (10 if fixed else 9), "b")],
    )
    simulated(net, TICKS)


def cases_and_gives(fixed):
    net = net_of("a")
    net.timed("tick", san.Deterministic(1.0), gives=() if fixed else "a", cases=[san.Case(1.0, "a")])


def loop(solver):
    def run(fixed):
        net = net_of("b", a=1)
        net.instant("there", takes="a", gives="b")
        if fixed:
            net.timed("back", san.Exponential(1.0), takes="b", gives="a")
        else:
            net.instant("back", takes="b", gives="a")
        solver(net, san.Reward("b", rate=lambda m: m["b"], over=san.At(1)))

    return run


def loop_without_time(fixed):
    net = net_of("n")
    net.timed("tick", san.Deterministic(1.0 if fixed else 0), gives="n")
    simulated(net, TICKS)


def not_exponential(fixed):
    net = net_of("a")
    net.timed("tick", san.Deterministic(1.0), gives="a", when=lambda m: m["a"] < 2)
    simulated(net, TICKS) if fixed else san.solve(net, [TICKS])


def not_exponential_in_a_marking(fixed):
    net = net_of("a")
    net.timed(
        "tick",
        lambda m: san.Exponential(1.0) if fixed or m["a"] == 0 else san.Uniform(1, 2),
        gives="a",
        when=lambda m: m["a"] < 2,
    )
    san.solve(net, [TICKS])


def too_many_markings(fixed):
    net = net_of("a")
    net.timed("tick", san.Exponential(1.0), gives="a", when=(lambda m: m["a"] < 50) if fixed else None)
    san.solve(net, [TICKS], states_max=100)


def place_twice(fixed):
    net_of("a", "b" if fixed else "a")


def activity_twice(fixed):
    net = net_of("a")
    net.timed("tick", san.Exponential(1.0), gives="a")
    net.timed("tock" if fixed else "tick", san.Exponential(1.0), gives="a")


def shared_place_with_two_markings(fixed):
    san.join("both", share=["spare"], a=net_of(spare=1), b=net_of(spare=1 if fixed else 2))


def rate_of_nothing(fixed):
    san.Exponential(1.0 if fixed else 0.0)


def delay_that_is_a_number(fixed):
    net_of("a").timed("tick", san.Exponential(2.0) if fixed else 2.0, gives="a")


def function_that_returns_a_number(fixed):
    net = net_of("a")
    net.timed("tick", lambda m: san.Exponential(2.0) if fixed else 2.0, gives="a")
    simulated(net, TICKS)


def draw_before_now(fixed):
    net = net_of("a")
    net.timed("tick", san.Given(lambda rng: 1.0 if fixed else -1.0), gives="a")
    simulated(net, TICKS)


def word_that_is_not_known(fixed):
    net_of("a").timed("tick", san.Exponential(1.0), gives="a", changed="resample" if fixed else "redraw")


def reward_of_no_activity(fixed):
    net = net_of("a")
    net.timed("tick" if fixed else "tack", san.Deterministic(1.0), gives="a")
    simulated(net, TICKS)


def reward_of_nothing(fixed):
    san.Reward("r", rate=(lambda m: 1) if fixed else None)


def impulse_at_a_moment(fixed):
    san.Reward("r", impulse={"tick": 1}, over=san.Total(0, 1) if fixed else san.At(1))


def long_run_by_tokens(fixed):
    over = san.Average(100, 200) if fixed else san.Steady()
    simulated(two_states(1, 1), san.Reward("up", rate=lambda m: m["up"], over=over))


def interval_without_length(fixed):
    san.Total(0, 1 if fixed else 0)


def predicate_that_writes(fixed):
    net = net_of("a")

    def one_more(m):
        m["a"] += 1
        return True

    net.timed("tick", san.Deterministic(1.0), **({"then": one_more} if fixed else {"when": one_more}))
    simulated(net, TICKS)


def interval_too_wide(fixed):
    up = san.Reward("up", rate=lambda m: m["up"], over=san.Average(0, 5))
    san.estimate(two_states(1, 1), [up], seed=1, half_width=0.02, replications_max=2000 if fixed else 60)


def rates_too_far_apart(fixed):
    net = net_of(up=1, down=0, load=0)
    net.timed("fails", san.Exponential(1e6), takes="up", gives="down")
    net.timed("repaired", san.Exponential(1e6), takes="down", gives="up")
    net.timed("arrives", san.Exponential(1e-3), gives="load", when=lambda m: m["load"] < 300)
    net.timed("leaves", san.Exponential(1e-3), takes="load")
    over = san.Steady() if fixed else san.Average(0, 7200)
    san.solve(net, [san.Reward("load", rate=lambda m: m["load"], over=over)])


@pytest.mark.parametrize(
    ("code", "mistake"),
    [
        ("HF-N001", unknown_place_in_an_arc),
        ("HF-N001", unknown_place_in_a_gate),
        ("HF-N001", unknown_place_in_share),
        ("HF-N001", share_that_maps_to_tokens),
        ("HF-N002", negative_marking_by_a_gate),
        ("HF-N002", negative_marking_at_the_start),
        ("HF-N002", negative_arc),
        ("HF-N003", cases_do_not_add_up),
        ("HF-N003", cases_do_not_add_up_in_a_marking),
        ("HF-N003", cases_and_gives),
        ("HF-N004", loop(lambda net, reward: simulated(net, reward))),
        ("HF-N004", loop(lambda net, reward: san.solve(net, [reward]))),
        ("HF-N004", loop_without_time),
        ("HF-N005", not_exponential),
        ("HF-N005", not_exponential_in_a_marking),
        ("HF-N006", too_many_markings),
        ("HF-N007", place_twice),
        ("HF-N007", activity_twice),
        ("HF-N007", shared_place_with_two_markings),
        ("HF-N008", rate_of_nothing),
        ("HF-N008", delay_that_is_a_number),
        ("HF-N008", function_that_returns_a_number),
        ("HF-N008", draw_before_now),
        ("HF-N008", word_that_is_not_known),
        ("HF-N009", reward_of_no_activity),
        ("HF-N009", reward_of_nothing),
        ("HF-N009", impulse_at_a_moment),
        ("HF-N009", long_run_by_tokens),
        ("HF-N009", interval_without_length),
        ("HF-N010", predicate_that_writes),
        ("HF-N011", interval_too_wide),
        ("HF-N012", rates_too_far_apart),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_mistake_in_a_network_is_refused_and_its_remedy_helps(code, mistake):
    with pytest.raises(UsageError) as refused:
        mistake(False)
    assert refused.value.code == code
    assert refused.value.effect and refused.value.do and refused.value.why

    mistake(True)


def test_an_unknown_place_is_answered_with_the_nearest_one():
    net = net_of("queue", "server")
    with pytest.raises(UsageError) as refused:
        net.timed("tick", san.Deterministic(1.0), takes="qeue")

    assert refused.value.do == "did you mean 'queue'?"


def test_a_loop_that_is_left_by_chance_is_no_mistake():
    """Unstable markings that come round again, and end with probability 1."""
    net = net_of("out", "toss", new=1)
    net.timed("begins", san.Exponential(1.0), takes="new", gives="toss")
    net.instant("tosses", takes="toss", cases=[san.Case(0.9, "toss"), san.Case(0.1, "out")])
    tosses = san.Reward("tosses", impulse={"tosses": 1}, over=san.Total(0, 50))

    assert san.solve(net, [tosses])["tosses"] == pytest.approx(10.0, abs=1e-9)
    assert san.estimate(net, [tosses], seed=5, replications=400, confidence=0.999)["tosses"].covers(10.0)
