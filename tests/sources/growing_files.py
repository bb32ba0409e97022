"""Rows in files that grow, and the engine's part in reading them: actions between two looks, then the frames."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import SourceError
from holdfast.frames.clock import FrameClock
from holdfast.sources.files import growing_source as growing

from .conftest import SECOND, Driver

T0 = 1_700_000_000 * SECOND
HEADER = "ts,zone,celsius\n"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Every turn of the source looks at the folder."""
    monkeypatch.setattr(growing, "POLL_S", 0.0)
    monkeypatch.setattr(growing, "POLL_SHARE", 0.0)
    monkeypatch.setattr(growing, "LOOK_S", 0.0)


def line(number: int) -> str:
    """One row every quarter of a second; its number is its reading."""
    return f"{np.datetime64(T0 + number * SECOND // 4, 'us')}Z,{number % 5},{number}.0\n"


def lines(start: int, stop: int) -> str:
    return "".join(map(line, range(start, stop)))


def parquet(path, start: int, stop: int) -> None:
    numbers = np.arange(start, stop)
    times = pa.array(T0 + numbers * SECOND // 4, pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "zone": (numbers % 5).astype("int32"), "celsius": numbers.astype(float)})
    pq.write_table(table, path, row_group_size=8)


class Script(threading.Event):
    """Whenever the source has nothing to do, the next of these is done; after the last it is stopped."""

    def __init__(self, *actions) -> None:
        super().__init__()
        self._actions = list(actions)

    def wait(self, timeout=None) -> bool:
        if self._actions:
            self._actions.pop(0)()
        else:
            self.set()
        return self.is_set()


def driven(driver: Driver, reader, *actions, from_n: int = 1) -> list:
    """The frames of one run; it ends when nothing is left to do."""
    if driver.context.boundary is None:
        driver.set(boundary="hold")
    if driver.context.time is not None:
        driver.clock = FrameClock.starting(T0, SECOND)
    source = driver.open(reader, from_n)
    try:
        return list(source.frames(Script(*actions)))
    finally:
        source.close()


def numbers(driver: Driver, frames) -> list[int]:
    table = driver.rows([each for frame in frames for each in frame.references])
    return [int(celsius) for celsius in table.column("celsius").to_pylist()]


def told(frames):
    return [(frame.n, frame.rows, frame.checksum, [each.ranges for each in frame.references]) for frame in frames]


def appends(path, words: str):
    def append() -> None:
        with open(path, "a") as file:
            file.write(words)

    return append


def refused(code: str, driver: Driver, reader, *actions, from_n: int = 1) -> SourceError:
    with pytest.raises(SourceError, match=code) as found:
        driven(driver, reader, *actions, from_n=from_n)
    return found.value


def stamp(number: int) -> str:
    return f"{np.datetime64(T0 + number * SECOND // 4, 'us')}Z"


def readings(driver: Driver, frames: list) -> list[float]:
    return [value for frame in frames for value in driver.rows(frame.references).column("celsius").to_pylist()]
