"""The fluid model against every element drawn for itself, under the same faults."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.models import san
from holdfast.models.fluid import simulate_drops
from holdfast.models.schedules import Hit
from holdfast.models.stream import Copies, Fault, Operator, Port, Protect, State, StreamModel
from holdfast.models.thesis import bargain, configuration_1, configuration_2
from holdfast.models.tokens.elements import follow
from holdfast.models.tokens.net import network_of, rewards_of
from tests.models.graphs import random_graph, random_schedule

UNTIL_S = 400.0
RUNS_MAX = 64


def compared(model: StreamModel, seed: int, narrow: float = 0.004):
    """(availability, tainted elements) of the fluid model and of tokens: means over the same schedules.

    Schedules are added until the standard error of the difference in tainted elements is below `narrow` of them: chance
    has to be smaller than what is to be seen.
    """
    fluid, tokens = np.empty((2, 0)), np.empty((2, 0))
    while True:
        start = fluid.shape[1]
        schedules = [random_schedule(model, UNTIL_S, 6, 1000 * seed + i) for i in range(start, start + 8)]
        flows = simulate_drops(model, until_s=UNTIL_S, replications=8, rng=np.random.default_rng(0), schedule=schedules)
        runs = [
            follow(model, each, UNTIL_S, np.random.default_rng([seed, start + i])) for i, each in enumerate(schedules)
        ]
        fluid = np.hstack([fluid, [flows.available, flows.tainted.sum(0)]])
        tokens = np.hstack([tokens, np.transpose([(run.available, sum(run.tainted.values())) for run in runs])])
        error = (tokens - fluid)[1].std(ddof=1) / len(fluid[1]) ** 0.5
        if error <= narrow * fluid[1].mean() or len(fluid[1]) >= RUNS_MAX:
            return fluid.mean(1), tokens.mean(1)


def agree(model: StreamModel, seed: int) -> None:
    fluid, tokens = compared(model, seed)

    assert tokens[0] == pytest.approx(fluid[0], abs=0.001)
    assert tokens[1] == pytest.approx(fluid[1], rel=0.01)


@pytest.mark.parametrize("protected", [configuration_1, configuration_2])
def test_fluid_and_tokens_agree_on_bargain_discovery(protected):
    model = protected(bargain(450.0, repair_s=8.0))

    agree(model, seed=1)


@pytest.mark.parametrize("seed", range(20))
def test_fluid_and_tokens_agree_on_a_random_graph(seed):
    """3 to 10 operators, states with and without checkpoints, groups, faults that fall into each other."""
    agree(random_graph(seed), seed)


def test_a_thin_tainted_stream_among_clean_ones_is_counted_on_the_safe_side():
    """Where the fluid model is not exact, and by how much.

    It holds a state wrong as long as tainted elements come. Element by element a small state is right
    again between two of them, if enough clean ones lie between. So it counts too many tainted elements, never too few.
    """
    operators = (
        Operator("in", rate=300.0),
        Operator(
            "sums", (Port(("in",), 0.1, 0.1, state=State(900.0, alpha=0.3, beta=1.0)),), protect=Protect("checkpoint")
        ),
        Operator("raw", (Port(("in",), 0.9, 0.9),)),
        Operator(
            "both", (Port(("sums", "raw"), state=State(100.0, alpha=0.05, beta=0.1)),), protect=Protect("checkpoint")
        ),
    )
    model = StreamModel("thin", operators, faults=(Fault("crash", 100.0, 4.0, of=("sums",)),))
    fluid, tokens = compared(model, seed=1, narrow=0.02)

    assert tokens[0] == pytest.approx(fluid[0], abs=0.001)
    # 5 elements refill the state, one in ten is tainted: it is right again before the next with 0.9 ** 5 = 0.59.
    assert 0.3 * fluid[1] < tokens[1] < 0.6 * fluid[1]


@pytest.mark.parametrize("failover_s", [0.2, 1.0])
def test_fluid_and_tokens_choose_the_same_copy(failover_s):
    """Before the failover is over the first copy is repaired, and its state is wrong; or it is not back yet."""
    operators = (
        Operator("in", rate=200.0),
        Operator("work", (Port(("in",), state=State(4000.0, alpha=0.5)),), protect=Protect("checkpoint")),
    )
    group = Copies(("work",), failover_s=failover_s)
    model = StreamModel("choice", operators, faults=(Fault("crash", 100.0, 0.5),), copies=(group,))
    schedule = [Hit(5.0011, "crash", "work", 0), Hit(9.0011, "crash", "work", 1)]
    fluid = simulate_drops(model, until_s=40.0, replications=1, rng=np.random.default_rng(0), schedule=schedule)
    tokens = follow(model, schedule, 40.0, np.random.default_rng(0))

    # At the second fault no copy's state is right: the first one that is whole takes over, and taints.
    assert tokens.tainted["work"] > 100
    assert fluid.tainted[0, 0] == pytest.approx(tokens.tainted["work"], abs=2)
    assert fluid.available[0] == pytest.approx(tokens.available, abs=0.001)


def test_fluid_and_network_agree_where_faults_are_drawn():
    """Each draws its own faults: crashes while others are down, corruptions of elements and states."""
    operators = (
        Operator("in", rate=10.0),
        Operator(
            "work",
            (Port(("in",), 0.9, 0.8, state=State(60.0, 0.2, 1.0, alpha_taint=0.3)),),
            protect=Protect("checkpoint"),
        ),
        Operator("out", (Port(("work",), state=State(30.0, 0.2, 0.5, alpha_taint=0.3)),)),
    )
    faults = (Fault("crash", 40.0, 2.0), Fault("corruption", 30.0))
    model = StreamModel("drawn", operators, faults=faults)
    fluid = simulate_drops(model, until_s=60.0, replications=20_000, rng=np.random.default_rng(1))
    tokens = san.estimate(network_of(model), rewards_of(model, 60.0), seed=2, replications=120, confidence=0.999)

    # Z counts whole elements: half an element, 0.05 s, more for each fault.
    assert tokens["available"].low - 0.005 <= fluid.available.mean() <= tokens["available"].high + 0.005
    assert tokens["tainted out"].low * 0.97 <= fluid.tainted[0].mean() <= tokens["tainted out"].high * 1.03
