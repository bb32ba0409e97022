"""The fluid model where the flow drops, rule by rule, on graphs small enough to compute by hand."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast.errors import UsageError
from holdfast.models.fluid import simulate_drops
from holdfast.models.schedules import Hit
from holdfast.models.stream import Copies, Fault, Operator, Output, Port, Protect, State, StreamModel

CRASH = Fault("crash", 1e9, 10.0)
HOST = Fault("host", 1e9, 20.0)
KEPT = Protect("checkpoint", 2.0)
SUMS = State(1000.0, 0.1, 0.5, 1.0, 0.05)


def chain(*, protect=KEPT, state=SUMS, copies=(), host="", faults=(CRASH, HOST)) -> StreamModel:
    """feed -> half -> sums -> out; 100 elements a second, 50 of them reach sums."""
    return StreamModel(
        "chain",
        (
            Operator("feed", rate=100.0),
            Operator("half", (Port(("feed",), 0.5, 0.6),), host=host),
            Operator("sums", (Port(("half",), state=state),), host=host, protect=protect),
            Operator("out", (Port(("sums",)),)),
        ),
        faults=faults,
        copies=copies,
    )


def run(model, *hits, until_s=400.0, replications=1):
    return simulate_drops(
        model, until_s=until_s, replications=replications, rng=np.random.default_rng(0), schedule=list(hits)
    )


def test_a_crash_without_state_costs_what_was_sent_meanwhile():
    found = run(chain(), Hit(100.0, "crash", "out"))

    assert found.available[0] == pytest.approx(1 - 10 / 400)
    assert found.clean[0, 0] == pytest.approx(50 * 390)
    assert found.tainted[0, 0] == 0


def test_a_restored_state_is_wrong_until_z_elements_came():
    """Z = 0.1 x 1,000 + 0.5 x 50 x (2 + 10) = 400: eight seconds."""
    found = run(chain(), Hit(100.0, "crash", "sums"))

    assert found.available[0] == pytest.approx(1 - 18 / 400)
    assert found.tainted[0, 0] == pytest.approx(400)


def test_a_state_below_a_crash_lacks_what_did_not_come():
    """No age of a checkpoint here: Z = 100 + 0.5 x 50 x 10 = 350, seven seconds."""
    found = run(chain(), Hit(100.0, "crash", "feed"))

    assert found.available[0] == pytest.approx(1 - 17 / 400)
    assert found.tainted[0, 0] == pytest.approx(350)


def test_an_empty_state_refills_with_less_output_and_no_taint():
    """1,000 elements at 50 a second: twenty seconds at half the output."""
    found = run(chain(protect=Protect()), Hit(100.0, "crash", "sums"))

    assert found.available[0] == pytest.approx(1 - 30 / 400)
    assert found.tainted[0, 0] == 0
    assert found.clean[0, 0] == pytest.approx(50 * 370 + 25 * 20)


def test_a_lost_host_takes_all_its_operators_at_once():
    """Both are down for 20 s: Z = 100 + 0.5 x 50 x 22 = 650. Hit one after the other they would be down for 40 s."""
    found = run(chain(host="a"), Hit(100.0, "host", "a"))

    assert found.available[0] == pytest.approx(1 - (20 + 13) / 400)
    assert found.up[0] == pytest.approx(1 - 20 / 400)


def test_only_the_share_that_is_missing_counts():
    """Two feeds: half of the elements are missing, and the other half refills meanwhile."""
    model = StreamModel(
        "two",
        (
            Operator("one", rate=25.0),
            Operator("other", rate=25.0),
            Operator("sums", (Port(("one", "other"), state=SUMS),), protect=Protect("checkpoint", 2.0)),
        ),
        faults=(CRASH,),
    )
    found = run(model, Hit(100.0, "crash", "one"))

    # Z = 100 + 0.5 x 25 x 10 = 225 at once; 25 a second come all along: nine seconds, within the ten that "one" is down.
    assert found.tainted[0, 0] == pytest.approx(225)
    assert found.available[0] == pytest.approx(1 - 10 / 400)


def test_tainted_elements_hold_the_state_below():
    """Two states in a row: the second is right only after the first is, and then has its own way to go."""
    operators = chain().operators
    second = Operator("later", (Port(("sums",), state=SUMS),), protect=Protect("checkpoint", 2.0))
    model = replace(chain(), operators=(*operators[:3], second, replace(operators[3], ports=(Port(("later",)),))))
    found = run(model, Hit(100.0, "crash", "sums"))

    # sums: 10 s down + 8 s. later lacks 500 elements: Z = 100 + 250 = 350, which only clean ones count down: 7 s more.
    assert found.available[0] == pytest.approx(1 - 25 / 400)
    assert found.tainted[0, 0] == pytest.approx(50 * (8 + 7))


def test_a_standby_takes_over_and_the_active_one_comes_back_as_standby():
    groups = (Copies(("half", "sums"), failover_s=3.0),)
    found = run(chain(copies=groups), Hit(100.0, "crash", "half"), Hit(104.0, "crash", "sums", 1))

    # 3 s without an active copy; the standby, hit 1 s after it took over, is followed by the first copy when that is
    # whole again at 110, three seconds later; its sums lacked 500 elements at 100: Z = 350, seven seconds from 110 on.
    assert found.up[0] == pytest.approx(1 - (3 + 9) / 400)
    assert found.available[0] == pytest.approx(1 - (3 + 9 + 4) / 400)
    assert found.tainted[0, 0] == pytest.approx(50 * 4)


def test_a_standby_that_is_hit_is_not_missed():
    groups = (Copies(("half", "sums"), failover_s=3.0),)
    found = run(chain(copies=groups), Hit(100.0, "crash", "sums", 1))

    assert found.available[0] == 1


def test_replicas_lose_nothing_until_the_last_is_down():
    groups = (Copies(("half",), "replicate"),)
    one = run(chain(copies=groups), Hit(100.0, "crash", "half"))
    both = run(chain(copies=groups), Hit(100.0, "crash", "half"), Hit(104.0, "crash", "half", 1))

    assert one.available[0] == 1
    # From 104 to 110 there is none: Z = 100 + 0.5 x 50 x 6 = 250, five seconds.
    assert both.available[0] == pytest.approx(1 - (6 + 5) / 400)


def test_a_corrupted_element_passes_by_chance_and_taints_the_state_it_meets():
    model = chain(faults=(Fault("corruption", 1e9, of=("half",)),))
    hits = [[Hit(100.0, "corruption", "half")]] * 4000
    found = simulate_drops(model, until_s=400.0, replications=4000, rng=np.random.default_rng(0), schedule=hits)

    # It leaves half with 0.6; sums is wrong for 0.05 x 1,000 elements, and the element itself is one more.
    assert set(np.unique(found.tainted[0].round(6))) == {0.0, 51.0}
    assert np.mean(found.tainted[0] > 0) == pytest.approx(0.6, abs=0.025)


def test_outputs_are_judged_by_what_is_above_them():
    model = replace(chain(), outputs=(Output("out"), Output("half")))
    found = run(model, Hit(100.0, "crash", "sums"))

    assert found.available_of[0, 0] == pytest.approx(1 - 18 / 400)
    assert found.available_of[1, 0] == 1


def test_an_unknown_fault_in_a_schedule_is_refused():
    with pytest.raises(UsageError, match="no fault 'crash' of 'nothing'"):
        run(chain(), Hit(1.0, "crash", "nothing"))


def test_two_states_have_the_availability_of_the_textbook():
    """up with mean m, down with mean r: m / (m + r) in the long run."""
    model = StreamModel(
        "two", (Operator("feed", rate=1.0),), faults=(Fault("crash", 100.0, 25.0, exponential_repair=True),)
    )
    found = simulate_drops(model, until_s=20_000.0, replications=400, rng=np.random.default_rng(7))

    assert abs(found.availability().mean - 0.8) < 3 * found.availability().half_width
    assert found.availability().half_width < 0.003
