"""The model where the flow waits, as Holdfast's does, on processes small enough to compute by hand."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast.errors import UsageError
from holdfast.models.schedules import Hit
from holdfast.models.stream import Copies, Fault, Operator, Output, Port, Protect, State, StreamModel
from holdfast.models.waiting import simulate_waits

FAULTS = (Fault("crash", 1e9, 10.0), Fault("host", 1e9, 10.0), Fault("driver", 1e9, 10.0), Fault("source", 1e9, 10.0))
# A window of 20 s over 100 elements a second: right again when all of it is new.
WINDOW = State(2000.0)


def ward(*, protect=Protect(), within_s=3.0, copies=(), state=WINDOW, load=0.25, **output) -> StreamModel:
    """feed -> sums -> alarms, frames of 1 s; each unit needs a quarter of a second for a second of stream."""
    return StreamModel(
        "ward",
        (
            Operator("feed", rate=100.0),
            Operator("sums", (Port(("feed",), 0.1, state=state),), frame_cost_s=load, host="a", protect=protect),
            Operator("alarms", (Port(("sums",)),), frame_cost_s=load, host="b", protect=protect),
        ),
        (Output("alarms", within_s, **output),),
        FAULTS,
        copies,
        "waits",
        1.0,
    )


def run(model, *hits, until_s=1000.0, replications=1, seed=0):
    return simulate_waits(
        model, until_s=until_s, replications=replications, rng=np.random.default_rng(seed), schedule=list(hits)
    )


def test_a_crash_makes_late_and_nothing_else():
    """Down for 10 s; then at four times the pace of the stream. Delay d = 10 at first, 0.5 s of it normal work.

    Positions 100 to 110 wait; position s is done at 110 + (s - 100) / 4, so its delay falls from 10.5 by 0.75 a
    second; it is above 3 s for the first ten seconds of stream.
    """
    found = run(ward(), Hit(100.0, "crash", "sums"))

    assert found.late[0, 0] == pytest.approx((10.5 - 3) / 0.75 / 1000)
    assert found.delay_max_s[0, 0] == pytest.approx(10.5)
    assert (found.lost[0, 0], found.tainted[0, 0]) == (0, 0)
    assert found.available[0, 0] == pytest.approx(1 - 0.01)


def test_a_slow_reader_catches_up_later():
    """alarms has half the pace of sums: what sums has done by 113.3 waits for it."""
    model = ward()
    slow = replace(model.operators[2], frame_cost_s=0.5)
    found = run(replace(model, operators=(*model.operators[:2], slow)), Hit(100.0, "crash", "sums"))

    # Position s at 110 + (s - 100) / 2: delay 10.75 falls by 0.5 a second.
    assert found.late[0, 0] == pytest.approx((10.75 - 3) / 0.5 / 1000)


def test_a_driver_stops_everything_at_once():
    together = run(ward(), Hit(100.0, "driver", "driver"))

    assert together.late[0, 0] == pytest.approx(run(ward(), Hit(100.0, "crash", "sums")).late[0, 0])


def test_a_silent_source_delays_what_it_feeds():
    """It had nothing to send for 10 s and sends it at once; the pace is that of the units."""
    found = run(ward(), Hit(100.0, "source", "feed"))

    assert found.late[0, 0] == pytest.approx((10.5 - 3) / 0.75 / 1000)
    assert found.lost[0, 0] == 0


def test_a_lossless_protection_does_the_part_since_its_checkpoint_again():
    """On average half the interval of 8 s: delay 10.5 and a second more for each four that are done again."""
    kept = ward(protect=Protect("ecoc", 8.0))
    found = run(kept, Hit(100.0, "host", "a"), replications=4000)

    assert found.lost.max() == pytest.approx(0, abs=1e-12)
    assert (found.tainted == 0).all()
    assert found.delay_max_s.min() == pytest.approx(10.5, abs=0.01)
    assert found.delay_max_s.max() == pytest.approx(10.5 + 8 / 4, abs=0.01)
    assert found.delay_max_s.mean() == pytest.approx(10.5 + 4 / 4, abs=0.03)


@pytest.mark.parametrize("protect", [Protect(), Protect("checkpoint", 8.0)], ids=str)
def test_a_lost_host_taints_until_the_windows_of_the_gap_have_closed(protect):
    """The state lacks something: 20 s of stream are tainted. The frame that alarms was at work on is LOST: one in four."""
    found = run(ward(protect=protect), Hit(100.0, "host", "a"), replications=4000)

    assert found.lost.mean() == pytest.approx(0.25 * 1 / 1000, rel=0.15)
    # The tainted answer to a LOST frame has no elements: it counts as lost.
    assert found.tainted.mean() == pytest.approx(20 / 1000, rel=1e-6)


def test_a_state_that_never_stabilises_is_wrong_to_the_end():
    never = State(50.0, np.inf, gamma=np.inf)
    found = run(ward(state=never), Hit(100.0, "host", "a"), replications=50)

    assert found.tainted.mean() == pytest.approx(0.9, abs=1e-6)


def test_the_loss_of_a_stateless_unit_taints_nothing_but_loses_the_frame_under_way():
    found = run(ward(), Hit(100.0, "host", "b"))

    assert (found.lost[0, 0], found.tainted[0, 0]) == (0, 0)


def test_a_unit_that_may_skip_is_never_further_behind():
    """Held for 30 s with 5 s allowed: 25 s are LOST, and nothing is later than 5 s and the work."""
    model = ward(protect=Protect("none", behind_s=5.0))
    model = replace(model, faults=(Fault("crash", 1e9, 30.0),))
    found = run(model, Hit(100.0, "crash", "sums"))

    assert found.lost[0, 0] == pytest.approx(25 / 1000)
    assert found.delay_max_s[0, 0] == pytest.approx(5.5, abs=1e-6)
    # The window lacks 25 s: all that is open is wrong for 20 s more.
    assert found.tainted[0, 0] == pytest.approx(20 / 1000)


def test_without_the_permission_nothing_is_skipped():
    model = replace(ward(), faults=(Fault("crash", 1e9, 30.0),))
    found = run(model, Hit(100.0, "crash", "sums"))

    assert found.lost[0, 0] == 0
    assert found.delay_max_s[0, 0] == pytest.approx(30.5)


def test_a_standby_shortens_an_outage_to_its_failover():
    groups = (Copies(("sums",), failover_s=4.0),)
    found = run(ward(copies=groups), Hit(100.0, "crash", "sums"))

    assert found.delay_max_s[0, 0] == pytest.approx(4.5)


def test_a_replica_makes_it_none_and_keeps_what_a_host_loses():
    groups = (Copies(("sums",), "replicate"),)
    found = run(ward(copies=groups), Hit(100.0, "host", "a"))

    assert found.available[0, 0] == pytest.approx(1.0)
    assert found.delay_max_s[0, 0] == pytest.approx(0.5)


def test_a_standby_that_is_behind_catches_up_before_it_offers():
    """Its own outage ends at 102; by 103 it is level again, so the failover at 104 goes on at 103's place."""
    groups = (Copies(("sums",), failover_s=4.0),)
    found = run(ward(copies=groups), Hit(92.0, "crash", "sums", 1), Hit(100.0, "crash", "sums"))

    assert found.delay_max_s[0, 0] == pytest.approx(6.5)  # from 102 on there is a copy; four seconds later it is active


def test_tentative_answers_are_in_time_and_counted():
    found = run(ward(tentative_s=2.0), Hit(100.0, "crash", "sums"))

    assert found.late[0, 0] == 0
    assert found.tentative[0, 0] == pytest.approx((10.5 - 2) / 0.75 / 1000)


def test_what_is_not_there_at_the_end_is_late():
    """Down from 995 on: of the last five seconds those older than 3 s, less the work, are late."""
    found = run(ward(), Hit(995.0, "crash", "sums"))

    assert found.late[0, 0] == pytest.approx((5 - 2.5) / 1000)
    assert found.available[0, 0] == pytest.approx(1 - (5 - 2.5) / 1000)


def test_corruption_is_outvoted_by_three():
    model = replace(ward(), faults=(Fault("corruption", 1e9, of=("sums",), state_share=1.0),))
    three = replace(model, copies=(Copies(("sums",), "replicate", 3),))

    assert run(model, Hit(100.0, "corruption", "sums")).tainted[0, 0] == pytest.approx(20 / 1000)
    assert run(three, Hit(100.0, "corruption", "sums")).tainted[0, 0] == 0


def test_a_unit_that_cannot_keep_up_is_refused():
    with pytest.raises(UsageError, match="never keeps up"):
        run(ward(load=1.2))


def test_random_faults_agree_with_their_expectation():
    """Crashes are rare and independent: the expected late share is their number times what one costs."""
    model = replace(ward(), faults=(Fault("crash", 5000.0, 10.0, ("sums", "alarms")),))
    found = simulate_waits(model, until_s=7200.0, replications=4000, rng=np.random.default_rng(5))

    # Two units; a crash of the second lets the first wait for it, which costs the same. (10.5 - 3) / 0.75 = 10 s each.
    expected = 2 / 5010 * 10
    assert found.late.mean() == pytest.approx(expected, rel=0.03)
