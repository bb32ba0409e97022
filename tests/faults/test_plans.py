"""Fault plans: what they say, what they leave to the seed, and how a wrong one is answered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast as hf
from holdfast import failpoints as points
from holdfast.errors import UsageError
from holdfast.faults.plans import DO, Fault, Victims, drawn, drawn_plan, environment, fitted, homes_of, parsed
from holdfast.graph.hosting import Host
from holdfast.hosts.hosts import Homes
from holdfast.hosts.stores import OpenStore, StoreAway

WARD = Victims(("pulse", "alarms"), ("ecg", "acc"), {"pulse": "pulse", "motion": "alarms", "alarms": "alarms"})
ON_HOSTS = replace(
    WARD,
    hosts=("a", "b", "c"),
    host_of={"pulse": "a", "alarms": "b"},
    stores_of={"pulse": ("b", "c"), "alarms": ("c", "a")},
    needed=2,
)

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
        ("[[fault]]\ndo = 'lose host'", "the process has no hosts"),
        ("[[fault]]\ndo = 'kill unit'\npoint = 'restoring'", "the process has no hosts"),
        ("[[fault]]\ndo = 'lose host'\nstore = 'b'", "it takes host, unit, frame and point"),
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

    alone = {do: kind for do, kind in DO.items() if kind.victim not in ("host", "state", "frames", "copy", "store")}
    assert seen == {(do, point) for do, kind in alone.items() for point in kind.points_of(WARD)}
    seen = {(fault.do, fault.point) for seed in range(5000) for fault in drawn_plan(ON_HOSTS, 1, 60, Random(seed))}
    assert seen == {(do, point) for do, kind in DO.items() for point in kind.points}


@given(st.integers(0, 2**32), st.sampled_from((1, 2)))
def test_a_random_plan_leaves_every_unit_something_to_come_back_from(seed, copies):
    stores = {unit: ON_HOSTS.stores_of[unit][:copies] for unit in ON_HOSTS.units}
    victims = replace(ON_HOSTS, stores_of=stores, needed=copies)
    plan = drawn_plan(victims, 1, 60, Random(seed))

    lost = {fault.at for fault in plan if fault.do == "lose host"}
    for unit in victims.units:
        own = {fault.do: fault.at for fault in plan if fault.whom == unit}
        near = victims.host_of[unit] not in lost and not {"damage state", "delete state", "delete frames"} & {*own}
        harmed = {*stores[unit]} & lost | {own[do] for do in ("damage copy", "delete copy") if do in own}
        assert near or len(harmed) < copies


def test_faults_of_hosts_know_where_to_strike(tmp_path):
    process = hf.StreamProcess("pair", frame="1 second", time="ts", hosts=("a", "b", "c"), backup=hf.backup(copies=2))
    process.source("rows", hf.read.files(str(tmp_path)), schema="ts timestamp, k int")
    process.aggregate("counts", of="rows", by="k", emits={"n": "count(*)"})
    process.sink("counts", hf.write.console())
    process.protect(hf.ecoc(every=hf.frames(4)))
    text = """
    [[fault]]
    do = "lose host"
    host = "a"
    unit = "counts"
    frame = 9
    point = "renamed"
    [[fault]]
    do = "damage copy"
    unit = "counts"
    store = "c"
    point = "restoring"
    [[fault]]
    do = "fail store"
    unit = "counts"
    store = "b"
    point = "shipping"
    for = "2 seconds"
    """
    victims = Victims.of(process.graph())
    plan = drawn(fitted(parsed(text, "plan.toml"), victims, "plan.toml"), victims, 1, 60, Random(1))

    assert [str(fault) for fault in plan] == [
        "lose host a: counts, frame 9, renamed",
        "damage copy c: counts, from frame 1, restoring",
        "fail store b for 2 s: counts, from frame 1, shipping",
    ]
    made = environment(plan, [tmp_path / "0", tmp_path / "1", tmp_path / "2"], homes_of(process.graph(), tmp_path))
    assert made[0]["folder"] == str(tmp_path / "hosts" / "a")
    assert made[1]["folder"] == str(tmp_path / "hosts" / "c" / "backups" / "counts" / "files")
    assert (made[2]["store"], made[2]["each_s"], made[2]["seconds"]) == ("b", -1.0, 2.0)


def test_state_files_are_damaged_in_place_or_gone(armed, tmp_path):
    runs = tmp_path / "hosts" / "a" / "units" / "pulse" / "runs" / "pulse"
    runs.mkdir(parents=True)
    homes = Homes(tmp_path, [Host("a"), Host("b")], None, [("pulse", None, ("pulse",))])
    damaged, deleted = armed(
        Fault("damage state", "pulse", 3, "renamed"), Fault("delete state", "pulse", 3, "restoring"), homes=homes
    )
    points.reach("renamed", 3, "pulse")
    assert not damaged.exists(), "there was nothing to damage"
    (runs / "1.arrow").write_bytes(b"abc")
    points.reach("renamed", 3, "pulse")
    assert (damaged.exists(), (runs / "1.arrow").read_bytes()) == (True, b"a\x9dc")
    points.reach("restoring", 2, "pulse")
    assert (runs / "1.arrow").exists()
    points.reach("restoring", 7, "pulse")
    assert deleted.exists() and not (runs / "1.arrow").exists()


def test_a_unit_whose_checkpoint_is_struck_dies_at_its_next_point(armed):
    """A checkpoint has a thread of its own: an exception there would end that and not the query."""
    (mark,) = armed(Fault("kill unit", "pulse", 3, "shipping"))
    points.reach("shipping", 4, "pulse")
    assert mark.exists()
    points.reach("renamed", 6, "alarms")
    with pytest.raises(points.UnitKilled):
        points.reach("renamed", 6, "pulse")
    points.reach("state committed", 6, "pulse")


def test_a_store_is_away_for_as_long_as_was_said(armed, tmp_path, monkeypatch):
    homes = Homes(tmp_path, [Host("a"), Host("b")], None, [("pulse", None, ("pulse",))])
    armed(Fault("fail store", "pulse", 3, "renamed", 1_000, at="b"), homes=homes)
    monkeypatch.setattr(points, "_troubled", {})
    store = OpenStore("b", str(tmp_path / "store"))
    points.reach("renamed", 3, "pulse")
    with pytest.raises(StoreAway, match="on purpose"):
        store.trace("pulse")
    each_s, until_s = points._troubled["b"]
    monkeypatch.setattr(points, "_troubled", {"b": (each_s, until_s - 1.0)})
    assert store.trace("pulse").epoch == 0


@pytest.fixture
def armed(monkeypatch, tmp_path):
    """Arm a plan in this process; its marks are handed out."""

    def arm(*plan: Fault, homes: Homes | None = None):
        marks = [tmp_path / f"mark-{at}" for at in range(len(plan))]
        monkeypatch.setattr(points, "_plan", environment(plan, marks, homes))
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

    assert [points.stall_s("acc", 7), points.stall_s("ecg", 6), points.stall_s("ecg", 7), points.stall_s("ecg", 7)] == [
        0,
        0,
        1.5,
        0,
    ]
    assert mark.exists()


@pytest.mark.parametrize("do", ["kill driver", "delete last commit"])
def test_a_driver_dies_by_a_signal_and_leaves_its_mark(do, tmp_path):
    plan = environment([Fault(do, "pulse", 3, "committed")], [tmp_path / "mark"])
    code = "from holdfast.failpoints import reach; reach('committed', 3, 'pulse'); print('alive')"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOLDFAST_FAULTS": json.dumps(plan)},
        capture_output=True,
        text=True,
    )

    assert (run.returncode, run.stdout) == (-signal.SIGKILL, "")
    assert (tmp_path / "mark").exists()


def test_as_many_workers_die_as_faults_are_planned_for_the_frame(armed):
    """Spark gives a task up after its third death: then the query dies too."""
    marks = armed(*[Fault("kill python worker", "pulse", 3, points.AT_WORK)] * 2)
    assert points.marks_at_work(2, "pulse") == points.marks_at_work(3, "alarms") == []
    told = points.marks_at_work(3, "pulse")
    assert told == [str(mark) for mark in marks]

    code = f"from holdfast.failpoints import strike_here; strike_here({told!r}); print('alive')"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(3)]
    assert [(run.returncode, run.stdout) for run in runs] == [(-signal.SIGKILL, "")] * 2 + [(0, "alive\n")]
