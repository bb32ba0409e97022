"""SIGKILL of driver, JVM and workers at every commit point and at seeded moments.

Several faults follow each other in one state folder, each new run started at once:
what the first leaves behind is what the second has to live with. In the end the
sinks hold every frame once and equal those of a run nobody touched.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from holdfast.engine.unit.keyed_plan import notes_dir
from holdfast.failpoints import POINTS, victims
from tests.live.conftest import assert_same
from tests.live.runs import Bench, Fault, LiveRun, send

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
    """The driver's death leaves an orphan that may still write; the JVM's a driver in the middle of a frame (HF-U030: run again)."""
    plant = bench()
    for faults in of_points(victim):
        run = plant.start(faults=faults)
        assert run.ended() == EXIT[victim], run.said()
        for fault, mark in run.marks.items():
            assert mark.exists(), f"never happened: {fault}\n{run.said()}"
    plant.finish()
    assert_same(plant, undisturbed)


# Files by which the moments of a start, and of frame n in the first unit, can be seen.
STARTING = {"lock taken": "epoch", "checkpoint forked": "units/per_window/spark/*.ready"}
RUNNING = {
    "state written, frame not": f"{notes_dir(Path('units/rises'), 'rises', '*')}/{{n:08d}}.*",
    "frame written, not sealed": "staging/*/{n:08d}.*",
    "sealed": "streams/rises/{n:08d}.*",
    "in the sink": "no such file",
}


def has_come(plant: Bench, run: LiveRun, pattern: str, n: int) -> bool:
    """Some files live for milliseconds: a look that comes too late is content with the ledger."""
    return run.wrote(plant.state, pattern.format(n=n)) or plant.last_written() >= n


@pytest.mark.parametrize("seed", [2])
def test_kills_at_ten_seeded_moments_lose_and_double_nothing(seed, bench, undisturbed):
    """From outside, wherever the run happens to be: starting, in a task, between two commits, in the middle of a write."""
    draw = random.Random(seed)
    plant = bench()
    run, fresh = plant.start(), True
    for _ in range(10):
        victim = draw.choice(("driver", "jvm", "worker"))
        moments = RUNNING | STARTING if fresh and victim == "driver" else RUNNING
        seen = draw.choice(sorted(moments.values())), plant.last_sealed("rises") + draw.choice((1, 1, 2))
        assert run.reaches(lambda run=run, seen=seen: has_come(plant, run, *seen)), run.said()
        assert run.kill(victim), f"no {victim} to kill"
        fresh = victim != "worker"
        if fresh:
            assert run.ended() == EXIT[victim], run.said()
            run = plant.start()
    assert run.ended() == 0, run.said()
    assert_same(plant, undisturbed)


def test_an_orphan_that_wakes_up_late_changes_nothing(bench, undisturbed):
    """Java and workers of a dead run, stopped in the middle of a frame, go on when the next run is far ahead."""
    plant = bench()
    first = plant.start()
    assert first.reaches(lambda: has_come(plant, first, RUNNING["state written, frame not"], 6)), first.said()
    orphans = victims("jvm", first.os_process.pid) + victims("worker", first.os_process.pid)
    send(signal.SIGSTOP, *orphans)
    first.kill("driver")
    assert first.ended() == EXIT["driver"]
    behind = plant.last_written()

    second = plant.start()
    assert second.reaches(lambda: plant.last_written() >= behind + 6), second.said()
    assert set(orphans) & set(plant.javas())
    send(signal.SIGCONT, *orphans)

    assert second.ended() == 0, second.said()
    assert_same(plant, undisturbed)
