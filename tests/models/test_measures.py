"""An interval says how far a mean may be off, whatever was taken off the samples before."""

import numpy as np

from holdfast.models.fluid import simulate_drops
from holdfast.models.measures import measured
from holdfast.models.thesis import bargain, configuration_1, configuration_2


def test_what_samples_owe_to_a_control_is_taken_off():
    rng = np.random.default_rng(3)
    luck = rng.normal(size=(1, 1000))
    samples = 5.0 + 2.0 * luck[0] + 0.1 * rng.normal(size=1000)

    plain, regressed = measured(samples), measured(samples, luck)

    assert regressed.half_width < plain.half_width / 10
    assert abs(regressed.mean - 5.0) <= 2 * regressed.half_width


def test_few_replications_are_not_fitted_to_chance():
    """Thirteen controls and twenty samples would explain anything."""
    rng = np.random.default_rng(4)
    samples, luck = rng.normal(size=20), rng.normal(size=(13, 20))

    assert measured(samples, luck) == measured(samples)


def test_faults_beyond_expectation_have_mean_zero_however_they_depend_on_each_other():
    """A clock stands while its target is down; counted against a fixed expectation the mean would be off."""
    model = configuration_2(bargain(450.0, mttf_s=300.0, repair_s=60.0))
    surprise = simulate_drops(model, until_s=7200.0, replications=2000, rng=np.random.default_rng(5)).surprise

    off = surprise.mean(axis=1) / (surprise.std(axis=1) / np.sqrt(2000))

    assert np.abs(off).max() < 4.0


def test_the_narrower_interval_covers_as_often_as_it_says():
    model = configuration_1(bargain(450.0, mttf_s=1800.0, repair_s=3.5))
    exact = simulate_drops(model, until_s=7200.0, replications=20_000, rng=np.random.default_rng(6)).available.mean()
    found = [
        simulate_drops(model, until_s=7200.0, replications=500, rng=np.random.default_rng(seed)).availability()
        for seed in range(100)
    ]

    assert sum(each.low - 2e-4 <= exact <= each.high + 2e-4 for each in found) >= 88
