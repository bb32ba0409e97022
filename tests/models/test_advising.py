"""Advice: what it chooses keeps all promises in the simulation, nothing cheaper does, and it says why."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from holdfast.models.advising import Bounds, advise, with_promises
from holdfast.models.options import Option, Prices, applied, blocks_of, cost_of, cost_of_model, options_for
from holdfast.models.predicting import predict
from holdfast.models.stream import Fault, Operator, Output, Port, Protect, State, StreamModel
from holdfast.models.thesis import bargain, configuration_2

HOURS_2 = 7200.0


def ward(*more: Fault, **promised: float) -> StreamModel:
    """A window of a minute, and alarms below it; a host is lost once a day, a unit crashes every hour."""
    return StreamModel(
        "ward",
        (
            Operator("feed", rate=100.0),
            Operator(
                "means", (Port(("feed",), 0.1, state=State(6000.0)),), frame_cost_s=0.2, host="a", state_bytes=2e5
            ),
            Operator("alarms", (Port(("means",)),), frame_cost_s=0.1, host="b", state_bytes=1e3),
        ),
        (Output("alarms", 5.0, **promised),),
        (Fault("crash", 3600.0, 3.0, ("means", "alarms")), Fault("host", 86_400.0, 8.0, ("a", "b")), *more),
        (),
        "waits",
        1.0,
    )


def looked_at(model, plan, prices=Prices(), seed=3):
    return predict(applied(model, plan, prices), until_s=HOURS_2, replications=400, rng=np.random.default_rng(seed))


def test_lossless_is_kept_by_the_cheapest_lossless_protection():
    model = ward(lost_at_most=0.0, wrong_at_most=0.0)
    options = options_for(model, copies=[("", 1)], skips=False)
    advice = advise(model, options, until_s=HOURS_2, rng=np.random.default_rng(1), replications=400)

    assert {unit: option.protect.kind for unit, option in advice.chosen.options.items()} == {
        "means": "ecoc",
        "alarms": "none",
    }
    assert advice.chosen.broken == []
    # alarms has no state and nobody reads it: the loss of its host loses nothing, so it needs nothing.
    assert advice.cheaper[0].options["means"].protect.kind != "ecoc"
    assert "tainted" in [promise.share for promise, _ in advice.cheaper[0].broken]


def test_the_advice_is_the_cheapest_plan_that_the_simulation_accepts():
    model = ward(lost_at_most=0.001, wrong_at_most=0.001, late_at_most=0.004)
    options = options_for(model, copies=[("", 1), ("ha", 2)], every_s=[5.0])
    advice = advise(model, options, until_s=HOURS_2, rng=np.random.default_rng(1), replications=400)
    blocks, prices = blocks_of(model), Prices()
    kept = []
    for one, other in product(options, repeat=2):
        plan = {"means": one, "alarms": other}
        if not looked_at(model, plan, seed=advice_seed()).broken():
            kept.append(sum(cost_of(model, blocks[unit], option, prices).cpu for unit, option in plan.items()))

    assert advice.chosen.broken == []
    assert advice.chosen.cost.cpu == pytest.approx(min(kept), rel=1e-6)


def advice_seed() -> int:
    """What `advise` draws from its generator to look at plans."""
    return int(np.random.default_rng(1).integers(2**32))


def test_a_bound_that_cannot_be_kept_is_named_with_by_how_much():
    """Within 5 s, always: a crash alone takes 3 s and is caught up in time, the loss of a host takes 8."""
    model = ward(late_at_most=0.0)
    advice = advise(model, [Option(), Option(Protect("ecoc", 5.0))], until_s=HOURS_2, rng=np.random.default_rng(1))

    assert advice.chosen is None
    (cannot,) = advice.cannot
    assert (cannot.what, cannot.bound, cannot.alone) == ("late of alarms", 0.0, True)
    assert cannot.best > 0


def test_a_cost_that_is_too_low_is_named():
    """The loss of either host makes late, so both have to run twice."""
    model = ward(late_at_most=1e-5)
    options = [Option(), Option(copies="replicate", n=2)]
    given = {"until_s": HOURS_2, "replications": 400}
    enough = advise(model, options, rng=np.random.default_rng(1), bounds=Bounds(cpu=2.0), **given)
    advice = advise(model, options, rng=np.random.default_rng(1), bounds=Bounds(cpu=1.5), **given)

    assert {option.n for option in enough.chosen.options.values()} == {2}
    assert advice.chosen is None
    assert [(each.what, each.bound, each.best) for each in advice.cannot] == [("cpu", 1.5, pytest.approx(2.0))]


def test_what_no_protection_can_help_is_part_of_the_sum():
    """A source that is silent for a minute every hour makes late whatever is done about the units."""
    model = ward(Fault("source", 3600.0, 60.0), late_at_most=0.005)
    advice = advise(
        model, [Option(), Option(copies="ha", n=2)], until_s=HOURS_2, rng=np.random.default_rng(1), replications=400
    )

    assert advice.chosen is None
    assert advice.cannot[0].best > 0.01
    assert advice.rounds == 1


def test_a_looser_promise_is_priced():
    """One in a thousand wrong needs ecoc for the means; nothing at all is cheaper."""
    model = ward(wrong_at_most=0.0004)
    options = [
        Option(),
        Option(Protect("checkpoint", 1.0)),
        Option(Protect("ecoc", 5.0)),
        Option(Protect("ecoc", 30.0)),
    ]
    advice = advise(model, options, until_s=HOURS_2, rng=np.random.default_rng(1), replications=400)

    assert advice.chosen.options["means"].protect.kind == "ecoc"
    assert advice.buys["means"][next(iter(advice.buys["means"]))] > 0


def test_table_5_3_has_a_better_plan_than_configuration_2_at_no_higher_cost():
    """Thesis configuration 2 leaves its aggregate without a checkpoint; the advice does not, and pays less for it.

    Two points more available; tainted elements stay within a tenth of theirs, which is asked for.
    """
    model = bargain(450.0, mttf_s=1800.0)
    # The thesis measured below 1 % for a checkpoint a second: a hundredth of the aggregate's work.
    prices = Prices(checkpoint_s=0.01 * 90 * 1.32e-5, byte_s=0.0)
    thesis = configuration_2(model)
    theirs = predict(thesis, until_s=HOURS_2, replications=1000, rng=np.random.default_rng(5)).outputs[0]
    cost = cost_of_model(thesis, prices)
    promised = with_promises(model, available_at_least=0.97, wrong_at_most=1.1 * theirs.tainted.mean)
    options = options_for(promised, copies=[("", 1), ("ha", 2)])
    base = cost_of_model(model, prices).cpu
    advice = advise(
        promised,
        options,
        until_s=HOURS_2,
        rng=np.random.default_rng(1),
        prices=prices,
        bounds=Bounds(cpu=cost.cpu / base),
    )

    assert advice.chosen is not None
    assert advice.chosen.cost.cpu <= cost.cpu
    ours = advice.chosen.prediction.outputs[0]
    assert ours.available.low > theirs.available.high + 0.01


def test_blocks_are_runs_of_single_readers_where_the_flow_drops():
    assert blocks_of(bargain(450.0)) == {
        "source": ("source", "filter1"),
        "filter2": ("filter2", "aggregate", "filter3"),
        "filter4": ("filter4",),
        "join": ("join",),
        "sink": ("sink",),
    }
    assert blocks_of(ward()) == {"means": ("means",), "alarms": ("alarms",)}


def test_there_are_24_options_where_everything_is_possible():
    assert len(set(options_for(ward()))) == 24


def test_a_plan_costs_its_copies_and_its_checkpoints():
    model, prices = ward(), Prices(checkpoint_s=0.01, byte_s=1e-9)
    plain = cost_of(model, ["means"], Option(), prices)
    kept = cost_of(model, ["means"], Option(Protect("checkpoint", 5.0), "ha", 2), prices)

    assert plain.cpu == pytest.approx(0.2)
    assert kept.bytes == pytest.approx(2 * 2e5 / 5)
    assert kept.cpu == pytest.approx(2 * (0.2 + 0.01 / 5 + 2e5 / 5 * 1e-9))
    assert cost_of_model(replace(model, faults=()), prices).cpu == pytest.approx(0.3)
