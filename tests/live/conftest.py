"""Folders to run in, and the undisturbed run all others are compared with."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.live.runs import Bench, content

HERE = Path(__file__).parent
FRAMES = 40


def readings() -> pa.Table:
    """Forty seconds of four zones, about ten rows a second, three seconds of silence."""
    draw = np.random.default_rng(2)
    times = np.sort(draw.integers(0, FRAMES * 1_000_000, FRAMES * 10))
    times = times[~np.isin(times // 1_000_000, (11, 12, 13))]
    return pa.table(
        {
            "ts": pa.array(1_700_000_000_000_000 + times, pa.timestamp("us", "UTC")),
            "zone": pa.array(draw.integers(0, 4, len(times)), pa.int32()),
            "celsius": pa.array(draw.normal(70, 15, len(times))),
            "count": pa.array(draw.integers(0, 1000, len(times))),
        }
    )


def furnished(folder: Path, file: str) -> Path:
    shutil.copy(HERE / file, folder / file)
    (folder / "readings").mkdir()
    pq.write_table(readings(), folder / "readings" / "0.parquet")
    return folder


@pytest.fixture
def bench(tmp_path_factory):
    """Makes folders with a copy of a process file in each; nothing in them outlives the test."""
    made: list[Bench] = []

    def make(file: str = "plant.py", **settings) -> Bench:
        made.append(Bench(furnished(tmp_path_factory.mktemp("bench"), file), file, **settings))
        return made[-1]

    yield make
    for each in made:
        each.clear_away()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> dict:
    """What the sinks of plant.py hold after a run nobody touched."""
    twin = Bench(furnished(tmp_path_factory.mktemp("undisturbed"), "plant.py"), "plant.py")
    try:
        twin.finish()
    finally:
        twin.clear_away()
    found = content(twin.folder)
    assert_whole(found)
    return found


def assert_whole(found: dict) -> None:
    """Against the input itself, so that two runs cannot be wrong in the same way."""
    table = readings()
    warm = [row for row in table.to_pylist() if row["celsius"] > 50]
    rises = found["rises"]["rows"]
    assert len(rises) == len(warm)
    per_zone = {zone: sum(row["zone"] == zone for row in warm) for zone in range(4)}
    assert {zone: max(row[3] for row in rises if row[1] == zone) for zone in range(4)} == per_zone
    windows = found["per_window"]["rows"]
    assert sum(row[3] for row in windows) == len(warm)
    assert sum(row[2] for row in windows) == sum(row[3] for row in rises)
    for sink in found.values():
        frames = [row[2] for row in sink["ledger"]]
        assert frames == list(range(1, FRAMES + 3))  # the end frame, and one more for Spark's windows


def assert_same(plant: Bench, expected: dict) -> None:
    """Row by row, frame by frame; which run wrote a frame is no matter."""
    actual = content(plant.folder)
    assert actual.keys() == expected.keys()
    for sink, found in actual.items():
        frames = [frame for _, _, frame, *_ in found["ledger"]]
        assert frames == list(range(1, len(frames) + 1)), f"{sink}: frames missing or twice"
        assert found["ledger"] == expected[sink]["ledger"]
        assert found["rows"] == expected[sink]["rows"]
