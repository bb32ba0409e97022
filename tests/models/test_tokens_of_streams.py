"""Stream graphs element by element: the network, the arrays, and what is known of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from holdfast.errors import UsageError
from holdfast.models import san
from holdfast.models.schedules import Hit
from holdfast.models.stream import Copies, Fault, Operator, Port, Protect, State, StreamModel
from holdfast.models.thesis import TABLE_5_4, TABLE_5_4_RATE, TABLE_5_4_SECONDS, bargain, configuration_1, one_crash
from holdfast.models.tokens.elements import follow
from holdfast.models.tokens.net import network_of, rewards_of
from tests.models.graphs import random_graph, random_schedule


def by_network(model, schedule, until_s, seed=0, **more):
    return san.simulate(network_of(model, schedule, **more), rewards_of(model, until_s), np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(20))
def test_network_and_arrays_agree_to_the_element_where_nothing_is_left_to_chance(seed):
    """The rules written twice, as gates and as running maxima: states, groups, hosts, faults into faults."""
    model = random_graph(seed, whole=True, rate=8.0)
    schedule = random_schedule(model, 60.0, 7, seed)
    network = by_network(model, schedule, 60.0)
    arrays = follow(model, schedule, 60.0, np.random.default_rng(0))

    assert network["available"] == pytest.approx(arrays.available, abs=1e-9)
    for name in arrays.clean:
        assert (network[f"clean {name}"], network[f"tainted {name}"]) == (arrays.clean[name], arrays.tainted[name])


def test_the_random_graphs_reach_what_they_are_meant_to_try():
    """Otherwise the test above would show little."""
    models = [random_graph(seed, whole=True, rate=8.0) for seed in range(20)]
    states = [port.state for model in models for each in model.operators for port in each.ports if port.state]
    keeps = {each.protect.keeps_state for model in models for each in model.operators if each.is_stateful}
    kinds = {hit.kind for seed, model in enumerate(models) for hit in random_schedule(model, 60.0, 7, seed)}
    tainted = [
        sum(follow(m, random_schedule(m, 60.0, 7, s), 60.0, np.random.default_rng(0)).tainted.values())
        for s, m in enumerate(models)
    ]

    assert len(states) > 20 and keeps == {True, False}
    assert sum(bool(model.copies) for model in models) >= 5
    assert kinds == {"crash", "host", "driver"}
    assert sum(count > 0 for count in tainted) >= 10


@pytest.mark.parametrize("name", TABLE_5_4)
def test_table_5_4_comes_out_element_by_element(name):
    """One crash among 792,000 elements; a single run, so the tolerance is that of its draws."""
    model = configuration_1(bargain(TABLE_5_4_RATE, repair_s=16.0))
    available, tainted = TABLE_5_4[name]
    found = follow(model, one_crash(name, 100.0001), TABLE_5_4_SECONDS, np.random.default_rng(1))

    assert found.available == pytest.approx(available, abs=0.002)
    assert found.tainted["sink"] == pytest.approx(tainted, rel=0.02, abs=4 * tainted**0.5)


def chain_of(
    *more, state=None, rate=20.0, faults=(Fault("crash", 100.0, 2.0),), copies=(), protect=Protect("checkpoint")
):
    operators = (
        Operator("in", rate=rate),
        Operator("work", (Port(("in",), 1.0, 1.0, state=state),), protect=protect),
        Operator("out", (Port(("work",)),)),
        *more,
    )
    return StreamModel("chain", operators, faults=faults, copies=copies)


def test_an_operator_that_crashed_taints_until_its_state_has_refilled():
    """By hand: 2 s down, then Z = 0.05 x 400 + 1 x 20/s x (1 + 2) s = 80 elements, 4 s at 20 a second."""
    model = chain_of(state=State(400.0, alpha=0.05, beta=1.0))
    found = by_network(model, [Hit(5.01, "crash", "work")], 20.01)

    assert found["tainted out"] == 80.0
    assert found["available"] == pytest.approx(1 - (2 + 4) / 20.01, abs=0.05 / 20)  # one element more or less
    assert found["clean out"] == 20 * 20 - 80 - 40


def test_an_operator_without_protection_refills_and_taints_nothing():
    model = chain_of(state=State(40.0, refilling=0.0), protect=Protect())
    found = by_network(model, [Hit(5.01, "crash", "work")], 20.01)

    assert found["tainted out"] == 0.0
    assert found["clean out"] == 20 * 20 - 40 - 40  # 2 s down, then 40 elements to refill


def test_a_group_fails_over_and_never_has_two_active_copies():
    """Its second copy takes over after a second, and the first one is not needed when it is back."""
    model = chain_of(copies=(Copies(("work",), failover_s=1.0),))
    schedule = [Hit(5.01, "crash", "work", 0), Hit(9.01, "crash", "work", 1), Hit(9.51, "crash", "work", 0)]
    found = by_network(model, schedule, 20.0)

    # 5.01-6.01 nobody, then copy 1. At 9.01 copy 0 begins to take over and is hit half a second later; the next
    # that is whole is copy 1 at 11.01, so at 12.01 one is active: the first of the two that are right.
    assert found["available"] == pytest.approx(1 - (1.0 + 3.0) / 20, abs=1e-9)
    active = [
        san.simulate(
            network_of(model, schedule),
            [san.Reward("a", rate=lambda m: m["group 0.active"], over=san.At(at))],
            np.random.default_rng(0),
        )["a"]
        for at in (1.0, 5.5, 7.0, 8.0, 9.2, 11.5, 12.5)
    ]
    assert active == [1, 0, 2, 2, 0, 0, 1]


def test_a_copy_whose_state_is_right_is_preferred():
    """The first copy is repaired before the failover is over, and would taint: the second one takes over."""
    fault = Fault("crash", 100.0, 0.5)
    model = chain_of(state=State(400.0, alpha=0.5), faults=(fault,), copies=(Copies(("work",), failover_s=1.0),))
    schedule = [Hit(5.01, "crash", "work", 0)]
    network = by_network(model, schedule, 20.01)
    arrays = follow(model, schedule, 20.01, np.random.default_rng(0))

    assert network["tainted out"] == arrays.tainted["out"] == 0
    assert network["available"] == pytest.approx(arrays.available) == pytest.approx(1 - 1 / 20.01)


def test_a_crash_of_one_of_two_copies_that_are_both_read_loses_nothing():
    both = chain_of(copies=(Copies(("work",), "replicate"),))
    found = by_network(both, [Hit(5.01, "crash", "work", 1)], 20.01)

    assert found["clean out"] == 400.0 and found["tainted out"] == 0.0
    assert found["available"] == 1.0
    # The second copy is behind in its count until the next punctuation, at 15 s: then it may be the only one.
    later = by_network(both, [Hit(5.01, "crash", "work", 1), Hit(16.01, "crash", "work", 0)], 20.01)
    assert later["clean out"] == 400.0
    sooner = by_network(both, [Hit(5.01, "crash", "work", 1), Hit(10.01, "crash", "work", 0)], 20.01)
    assert sooner["clean out"] == 400.0 - 40.0


@pytest.mark.parametrize(("state_share", "tainted"), [(0.0, 1.0 + 10), (1.0, 10.0 + 10)], ids=["element", "state"])
def test_a_corruption_is_one_wrong_element_or_a_wrong_state(state_share, tainted):
    """Either way the state below, of ten elements to refill, is wrong after the last tainted one."""
    after = Operator("after", (Port(("out",), state=State(100.0, alpha_taint=0.1)),))
    fault = Fault("corruption", 100.0, state_share=state_share)
    model = chain_of(after, state=State(100.0, alpha_taint=0.1), faults=(fault,))
    found = by_network(model, [Hit(5.01, "corruption", "work")], 20.0)

    assert found["tainted after"] == tainted


def test_costs_do_not_matter_below_capacity():
    """The reason why elements may take no time elsewhere."""
    model = configuration_1(bargain(45.0, repair_s=8.0))
    model = replace(model, operators=tuple(_shrunk(each, 0.1) for each in model.operators))
    schedule = [Hit(10.003, "crash", "filter2"), Hit(60.007, "crash", "join")]
    free = by_network(model, schedule, 100.0, seed=3)
    costly = by_network(model, schedule, 100.0, seed=4, costs=True)
    tainted = 0.5 * (free["tainted sink"] + costly["tainted sink"])

    assert costly["available"] == pytest.approx(free["available"], abs=0.03)
    assert abs(costly["tainted sink"] - free["tainted sink"]) < 5 * (2 * tainted) ** 0.5


def _shrunk(operator, factor):
    """State of another size; with the rate scaled alike everything takes as long as before."""
    ports = tuple(replace(p, state=p.state and replace(p.state, size=p.state.size * factor)) for p in operator.ports)
    return replace(operator, ports=ports)


def test_what_cannot_be_followed_is_refused():
    both = chain_of(copies=(Copies(("work",), "replicate"),))
    with pytest.raises(UsageError, match="HF-M001"):
        follow(both, [], 10.0, np.random.default_rng(0))
    drawn = chain_of(faults=(Fault("crash", 100.0, 2.0, exponential_repair=True),))
    with pytest.raises(UsageError, match="HF-M001"):
        network_of(drawn)
    with pytest.raises(UsageError, match="HF-M001"):
        network_of(replace(both, flow="waits", frame_s=1.0))
