"""Three random plans of `make soak-hosts`: at once, into a recovery, apart; over a chain, a join and two cycles."""

from __future__ import annotations

import pytest

from bench import processes, soak_hosts
from holdfast.faults.plans import Victims
from holdfast.levels.measuring import measure

FRAMES = 14


@pytest.fixture(scope="module")
def runs(spark, tmp_path_factory):
    work = tmp_path_factory.mktemp("runs")
    processes.make_data(work / "data", FRAMES)
    return work, soak_hosts.Runs(work, spark)


PLANS = [("sp1", "ecoc", 45, 3), ("sp2", "uncoordinated", 43, 1), ("sp4", "extended", 49, 2)]


@pytest.mark.parametrize(("name", "kind", "seed", "number"), PLANS, ids=[plan[0] for plan in PLANS])
def test_a_random_plan_loses_doubles_and_changes_nothing(name, kind, seed, number, runs):
    work, each = runs
    graph = soak_hosts.graph_of(name, soak_hosts.LOSSLESS[kind], work / "data")
    plan = soak_hosts.plan_of(seed, number, Victims.of(graph), FRAMES - 2)
    ideal = each.ideal(name, graph)
    faulty, hit = each.outputs(graph, work / f"faulty-{name}", tuple(plan))

    assert sum(arrival.rows for output in ideal for arrival in output.arrivals) == FRAMES * 12 * (
        1 if name == "sp1" else 2
    )
    assert all(struck for fault, struck in zip(plan, hit, strict=True) if fault.do == "lose host"), plan
    assert soak_hosts.broken(graph, kind, measure(ideal, faulty)) == [], plan
