"""Fault plans: what they say, what they leave to the seed, and how a wrong one is answered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.faults import points
from holdfast.faults.plans import DO, Fault, Victims, drawn, drawn_plan, environment, fitted, parsed

WARD = Victims(("pulse", "alarms"), ("ecg", "acc"), {"pulse": "pulse", "motion": "alarms", "alarms": "alarms"})

TWO_HITS = """
[[fault]]
do = "kill python worker"
unit = "pulse"
frame = 40
[[fault]]
do = "kill unit"
unit = "motion"
frame = 41
point = "sink written, not committed"
[[fault]]
do = "stall source"
source = "ecg"
frame = 7
for = "2 seconds"
"""


def test_a_plan_names_what_whom_when_and_where():
    plan = drawn(fitted(parsed(TWO_HITS, "two_hits.toml"), WARD, "two_hits.toml"), WARD, 1, 60, Random(1))

    assert [str(fault) for fault in plan] == [
        "kill python worker: pulse, frame 40, at work",
        "kill unit: alarms, frame 41, sink written, not committed",
        "stall source ecg before frame 7 for 2 s",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[fault]]\ndo = 'kil unit'", "did you mean 'kill unit'?"),
        ("[[fault]]\ndo = 'kill unit'\npoint = 'renamd'", "did you mean 'renamed'?"),
        ("[[fault]]\ndo = 'kill unit'\nfrme = 3", "did you mean 'frame'?"),
        ("[[fault]]\ndo = 'kill unit'\nunit = 'puls'", "did you mean 'pulse'?"),
        ("[[fault]]\ndo = 'stall source'\nsource = 'exg'", "did you mean 'ecg'?"),
        ("[[fault]]\ndo = 'stall source'\nunit = 'pulse'", "it takes source, frame and for"),
        ("[[fault]]\ndo = 'stall source'\nfor = 'long'", "not a duration"),
        ("[[fault]]\ndo = 'kill jvm'\npoint = 'at work'", "there is: sealed, not renamed"),
        ("[[fault]]\ndo = 'kill unit'\nframe = 0", "the seed draws one"),
        ("[[fault]]\nunit = 'pulse'", "it does not say what to do"),
        ("[[fault]", "is not TOML"),
        ("fault = 3", "names no fault"),
        ("[[fualt]]\ndo = 'kill unit'", "'fualt' is no part of a fault plan"),
        ("", "names no fault"),
    ],
)
def test_a_plan_that_cannot_be_understood_is_refused_with_what_was_meant(text, says):
    with pytest.raises(UsageError, match="nothing was started") as refused:
        fitted(parsed(text, "plan.toml"), WARD, "plan.toml")
    assert says in str(refused.value)
    assert "plan.toml" in refused.value.where


@given(st.integers(0, 2**32), st.integers(1, 500))
def test_the_seed_draws_what_is_left_open_and_nothing_else(seed, last):
    plan = [Fault("kill unit"), Fault("kill jvm", "pulse", 3, "renamed"), Fault("stall source", stall_ms=1)]
    one, again = (drawn(plan, WARD, 1, last, Random(seed)) for _ in range(2))

    assert one == again
    assert one[1] == plan[1]
    assert one[0].whom in WARD.units and 1 <= one[0].frame <= last and one[0].point in points.POINTS
    assert one[2].whom in WARD.sources


@given(st.integers(0, 2**32))
def test_a_plan_of_chaos_has_one_to_three_faults_that_can_be_carried_out(seed):
    plan = drawn_plan(WARD, 1, 60, Random(seed))

    assert 1 <= len(plan) <= 3
    assert plan == drawn_plan(WARD, 1, 60, Random(seed))
    for fault in plan:
        assert fault.point in DO[fault.do].points
        assert fault.whom in (WARD.sources if fault.do == "stall source" else WARD.units)


def test_every_kind_of_fault_is_drawn_at_every_point():
    seen = {(fault.do, fault.point) for seed in range(400) for fault in drawn_plan(WARD, 1, 60, Random(seed))}

    assert seen == {(do, point) for do, kind in DO.items() for point in kind.points}


@pytest.fixture
def armed(monkeypatch, tmp_path):
    """Arm a plan in this process; its marks are handed out."""

    def arm(*plan: Fault):
        marks = [tmp_path / f"mark-{at}" for at in range(len(plan))]
        monkeypatch.setattr(points, "_plan", environment(plan, marks))
        return marks

    return arm


def test_a_unit_dies_once_at_its_point_and_never_again(armed):
    (mark,) = armed(Fault("kill unit", "pulse", 3, "renamed"))
    points.reach("renamed", 2, "pulse")
    points.reach("renamed", 3, "alarms")
    assert not mark.exists()

    with pytest.raises(points.UnitKilled):
        points.reach("renamed", 3, "pulse")
    assert mark.read_text() == "renamed 3 pulse"
    points.reach("renamed", 3, "pulse")


def test_a_fault_whose_mark_is_there_does_not_strike_in_the_next_run(armed):
    """The run that was killed cannot remember that it was."""
    (mark,) = armed(Fault("kill unit", "pulse", 3, "renamed"))
    mark.write_text("renamed 3 pulse")

    points.reach("renamed", 3, "pulse")


def test_a_source_is_silent_once(armed):
    (mark,) = armed(Fault("stall source", "ecg", 7, "stall", 1500))

    assert [points.stall_s("acc", 7), points.stall_s("ecg", 6), points.stall_s("ecg", 7), points.stall_s("ecg", 7)] == [0, 0, 1.5, 0]
    assert mark.exists()


@pytest.mark.parametrize("do", ["kill driver", "delete last commit"])
def test_a_driver_dies_by_a_signal_and_leaves_its_mark(do, tmp_path):
    plan = environment([Fault(do, "pulse", 3, "committed")], [tmp_path / "mark"])
    code = "from holdfast.faults.points import reach; reach('committed', 3, 'pulse'); print('alive')"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "HOLDFAST_FAULTS": json.dumps(plan)}, capture_output=True, text=True
    )

    assert (run.returncode, run.stdout) == (-signal.SIGKILL, "")
    assert (tmp_path / "mark").exists()
