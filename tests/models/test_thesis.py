"""Chapter 5 of the thesis: table 5.4 to its digits, figures 5.12 to 5.14 as the inequalities its text states."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from holdfast.models.fluid import simulate_drops
from holdfast.models.thesis import (
    TABLE_5_4,
    TABLE_5_4_RATE,
    TABLE_5_4_SECONDS,
    bargain,
    configuration_1,
    configuration_2,
    corrupted_by_hand,
    fully_replicated,
    one_crash,
)

RATES = (250.0, 350.0, 450.0, 550.0)
MTTFS_S = (1800.0, 3000.0, 4200.0, 5400.0)
HOURS_2 = 7200.0


@cache
def crashing(configuration, rate, mttf_s=5400.0, repair_s=3.5):
    model = configuration(bargain(rate, mttf_s=mttf_s, repair_s=repair_s))
    # One seed for all: neighbours in a figure meet the same draws as far as they can.
    return simulate_drops(model, until_s=HOURS_2, replications=2000, rng=np.random.default_rng(512))


@cache
def corrupted(rate, mttf_s):
    model = fully_replicated(bargain(rate, corruption_mttf_s=mttf_s))
    return simulate_drops(model, until_s=HOURS_2, replications=4000, rng=np.random.default_rng(514))


@pytest.mark.parametrize("name", TABLE_5_4)
def test_table_5_4(name):
    """One crash of 16 s. The length of the run and 0.222 were read off the table; the rest is not fitted."""
    availability, tainted = TABLE_5_4[name]
    model = configuration_1(bargain(TABLE_5_4_RATE, repair_s=16.0))
    rng = np.random.default_rng(1)
    found = simulate_drops(model, until_s=TABLE_5_4_SECONDS, replications=1, rng=rng, schedule=one_crash(name))

    assert found.available[0] == pytest.approx(availability, abs=0.0005)
    assert found.tainted[0, 0] == pytest.approx(tainted, rel=0.005)


def test_table_5_4_by_hand():
    """The row of Filter 2, as the text allows to compute it: 16 s down, the aggregate, then the join."""
    lost = 16 * 440
    unstable_s = (0.035 * 15495 + 1.98 * lost) / 440 + (0.03 * 3099 + 0.41 * lost) / 440
    model = configuration_1(bargain(TABLE_5_4_RATE, repair_s=16.0))
    rng = np.random.default_rng(1)
    found = simulate_drops(model, until_s=TABLE_5_4_SECONDS, replications=1, rng=rng, schedule=one_crash("filter2"))

    assert found.available[0] == pytest.approx(1 - (16 + unstable_s) / 360, abs=1e-9)
    assert found.tainted[0, 0] == pytest.approx((16 + unstable_s) * 1760 * 0.222, rel=1e-9)


@pytest.mark.parametrize("configuration", [configuration_1, configuration_2])
@pytest.mark.parametrize("repair_s", [3.5, 15.0])
def test_figure_5_12_over_rate(configuration, repair_s):
    """(a) availability rises, (b) tainted elements too, (c) their share falls."""
    found = [crashing(configuration, rate, repair_s=repair_s) for rate in RATES]
    available = [each.availability().mean for each in found]
    tainted = [each.tainted_at().mean for each in found]
    shares = [each.tainted_share().mean for each in found]

    assert available == sorted(available)
    assert tainted == sorted(tainted)
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("mttf_s", MTTFS_S)
def test_figure_5_13_what_groups_gain(mttf_s):
    """(e) more available by less than a hundredth, and fewer tainted elements."""
    with_checkpoints, with_groups = crashing(configuration_1, 450.0, mttf_s), crashing(configuration_2, 450.0, mttf_s)

    assert 0.005 <= with_groups.availability().mean - with_checkpoints.availability().mean <= 0.010
    assert 0.3 <= with_groups.tainted_at().mean / with_checkpoints.tainted_at().mean <= 0.6


@pytest.mark.parametrize("configuration", [configuration_1, configuration_2])
@pytest.mark.parametrize("mttf_s", MTTFS_S)
def test_figure_5_13_without_propagation(configuration, mttf_s):
    """(f) who looks at crashes alone overestimates availability, beyond any doubt of the simulation."""
    found = crashing(configuration, 450.0, mttf_s)

    assert found.up.mean() > found.availability().high


@pytest.mark.parametrize("mttf_s", [1 / 1.52e-4, 1 / 1.39e-4])
def test_figure_5_14_corruption(mttf_s):
    """(g) under full replication: far less is lost than by crashes, and more comes out than without faults."""
    found = [corrupted(rate, mttf_s) for rate in RATES]

    assert all(each.tainted_at().high < 300 for each in found)
    available = [each.availability().mean for each in found]
    assert available == sorted(available)
    shares = [each.tainted_share().mean for each in found]
    assert shares == sorted(shares, reverse=True)
    for each, rate in zip(found, RATES, strict=True):
        assert 1 - each.availability().mean < 0.1 * (1 - crashing(configuration_1, rate).availability().mean)
        output = each.clean[0] + each.tainted[0]
        assert output.mean() - 2 * output.std() / np.sqrt(len(output)) > each.nominal[0]


def test_figure_5_14_falls_with_the_rate_of_faults():
    often, seldom = corrupted(450.0, 1 / 1.52e-4), corrupted(450.0, 1 / 1.39e-4)

    assert often.availability().mean < seldom.availability().mean


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("mttf_s", [1 / 1.52e-4, 1 / 1.39e-4])
def test_figure_5_14_beside_the_closed_form(rate, mttf_s):
    found = corrupted(rate, mttf_s)
    available, tainted = corrupted_by_hand(rate, mttf_s)

    # Three half-widths: eight points are compared, and none of them may miss by chance.
    assert abs(found.availability().mean - available) < 3 * found.availability().half_width
    assert abs(found.tainted_at().mean - tainted) < 3 * found.tainted_at().half_width


def test_configuration_2_is_dominated():
    """Its aggregate begins empty; a second fault falls into that refill. A checkpoint of it costs nearly nothing."""
    plain = crashing(configuration_2, 450.0, 1800.0)
    model = configuration_2(bargain(450.0, mttf_s=1800.0), also=("aggregate",))
    better = simulate_drops(model, until_s=HOURS_2, replications=2000, rng=np.random.default_rng(512))

    assert better.availability().mean > plain.availability().mean + 0.015


def test_the_same_seed_gives_the_same_result():
    model = configuration_2(bargain(450.0, mttf_s=1800.0))
    one, other = (simulate_drops(model, until_s=900.0, replications=20, rng=np.random.default_rng(3)) for _ in range(2))

    assert (one.available == other.available).all()
    assert (one.tainted == other.tainted).all()


def test_no_fault_no_harm():
    model = replace(configuration_2(bargain(450.0)), faults=())
    found = simulate_drops(model, until_s=900.0, replications=2, rng=np.random.default_rng(3))

    assert (found.available == 1).all()
    assert found.clean[0] == pytest.approx(found.nominal[0])
