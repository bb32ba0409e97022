"""SIGKILL of driver, JVM and workers at every commit point and at seeded moments.

Several faults follow each other in one state folder, each new run started at once:
what the first leaves behind is what the second has to live with. In the end the
sinks hold every frame once and equal those of a run nobody touched.
"""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.faults.points import POINTS, victims
from tests.live.runs import Bench, Fault, LiveRun, content, send

UNITS = ("rises", "per_window")
# What a run returns when its victim was killed: the signal, or "unit given up".
EXIT = {"driver": -signal.SIGKILL, "jvm": 5}


def of_points(victim: str) -> list[tuple[Fault, Fault]]:
    """Per run a worker that dies and is replaced, then the victim, both at the same point.

    Points alternate between the units, the other way round for the other victim. Those of
    the first unit come first: it is ahead and would have passed the frame.
    """
    runs = []
    for turn, (unit, start) in enumerate(zip(UNITS, (3, 17), strict=True), list(EXIT).index(victim)):
        for at, point in enumerate(POINTS[turn % 2 :: 2]):
            frame = start + 4 * at
            runs.append((Fault(point, "worker", frame, unit), Fault(point, victim, frame + 2, unit)))
    return runs


@pytest.mark.parametrize("victim", EXIT)
def test_a_kill_at_any_point_loses_and_doubles_nothing(victim, bench, undisturbed):
    """The driver's death leaves an orphan that may still write; the JVM's a driver in the middle of a frame."""
    plant = bench()
    for faults in of_points(victim):
        run = plant.start(faults=faults)
        assert run.ended() == EXIT[victim], run.said()
        for fault, mark in run.marks.items():
            assert mark.exists(), f"never happened: {fault}\n{run.said()}"
    plant.finish()
    assert_same(plant, undisturbed)


def assert_same(plant: Bench, expected: dict) -> None:
    actual = content(plant.folder)
    assert actual.keys() == expected.keys()
    for sink, found in actual.items():
        frames = [frame for _, _, frame, *_ in found["ledger"]]
        assert frames == list(range(1, len(frames) + 1)), f"{sink}: frames missing or twice"
        assert found["ledger"] == expected[sink]["ledger"]
        assert found["rows"] == expected[sink]["rows"]
