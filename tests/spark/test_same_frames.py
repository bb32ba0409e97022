"""Every frame has the same content however the run is interrupted, for every kind of operator.

A straight run on one core is compared, frame by frame and stream by stream, with a run on
two that is stopped at five seeded frames and loses its last commit entry (Spark's and
ours) at two of the stops.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.journals.journal import Journal
from holdfast.testing.runs import compare, run_frames
from tests.spark.processes import PROCESSES, changes_of, inputs_of


def lose_last_entry(state: Path, frame: int) -> None:
    """Delete what says that the last frame is done; at odd frames Spark's entry only."""
    for unit in (state / "units").iterdir():
        commits = [entry for entry in unit.glob("spark/*/commits/*") if entry.name.isdigit()]
        if commits:
            max(commits, key=lambda entry: int(entry.name)).unlink()
        if frame % 2 == 0:
            Journal(unit, "commits").cut_after(frame - 1)


@pytest.mark.parametrize("name", PROCESSES)
def test_restarts_and_lost_commit_entries_change_no_frame(name, straight, spark):
    """A frame that comes out differently after a restart would poison every consumer downstream."""
    expected = straight(name)
    frames = max(max(numbers) for numbers in expected.checksums.values())
    stops = sorted(random.Random(name).sample(range(1, frames), 5))

    def meddle(state: Path, stop: int) -> None:
        if stop in stops[1:3]:
            lose_last_entry(state, stop)

    actual = run_frames(
        PROCESSES[name](), spark=spark, params=changes_of(name), restarts=stops, meddle=meddle, **inputs_of(name)
    )

    compare(expected, actual, f"restarts after {stops}")
    for stream, table in expected.tables.items():
        assert table.num_rows > 0
        assert actual.tables[stream].equals(table), f"the sink of {stream!r} differs"
