"""The one streaming source of a unit: the frames it may take, as its host permits them.

It decides nothing. The host writes what is permitted into `permit.json` (whole
file, by rename); this source hands out the numbers above the last offset. The
offset names every input frame used (stream, n, kind, epoch, checksum), so
Spark's offset log holds the decision and a replay takes the same frames.

Our own session has this source as a class of its JVM (jvm/holdfast/FrameTicks.java), so a
query starts without an interpreter of its own. Here is the same in Python, for sessions that
were made without our jar; offsets are alike, and one goes on where the other stopped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from holdfast.atomic import write_whole

__all__ = ["FrameTicks", "publish_permits", "ticks"]

# Spark asks again after every empty answer; 50 ms keeps that to twenty calls a second.
_WAIT_S = 0.05
# A stat of a small file takes a few microseconds: a thousand a second are noise.
_POLL_S = 0.001


def publish_permits(path: Path, permits: list[dict]) -> None:
    """Make these frames available to the unit's query: [{"n": 12, "inputs": [[stream, n, kind, epoch, checksum]]}]."""
    write_whole(path, json.dumps(permits, separators=(",", ":")))


def ticks(spark: SparkSession, permits: Path, after: int) -> DataFrame:
    """The numbers of the frames after this one, as they are permitted."""
    name = "holdfast.FrameTicks"
    if not isinstance(spark._jvm.holdfast.FrameTicks, JavaClass):
        spark.dataSource.register(FrameTicks)
        name = FrameTicks.name()
    return spark.readStream.format(name).option("permits", str(permits)).option("after", str(after)).load()


class FrameTicks(DataSource):
    @classmethod
    def name(cls) -> str:
        return "holdfast-frames"

    def schema(self) -> str:
        return "n long"

    def simpleStreamReader(self, schema) -> SimpleDataSourceStreamReader:
        return _Ticks(Path(self.options["permits"]), int(self.options["after"]))


class _Ticks(SimpleDataSourceStreamReader):
    def __init__(self, path: Path, after: int) -> None:
        self._path, self._after = path, after
        self._stamp: tuple[int, int] | None = None
        self._permits: list[Any] = []

    def initialOffset(self) -> dict:
        return {"n": self._after, "inputs": []}

    def read(self, start: dict) -> tuple[Iterator[tuple], dict]:
        deadline = time.monotonic() + _WAIT_S
        while True:
            fresh = [permit for permit in self._known() if permit["n"] > start["n"]]
            if fresh:
                end = {"n": fresh[-1]["n"], "inputs": [row for permit in fresh for row in permit["inputs"]]}
                return iter([(permit["n"],) for permit in fresh]), end
            if time.monotonic() >= deadline:
                return iter(()), start
            time.sleep(_POLL_S)

    def readBetweenOffsets(self, start: dict, end: dict) -> Iterator[tuple]:
        return iter([(n,) for n in range(start["n"] + 1, end["n"] + 1)])

    def commit(self, end: dict) -> None:
        """Lags a batch and never comes on stop: no signal for us."""

    def _known(self) -> list[dict]:
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            return []
        stamp = (stat.st_ino, stat.st_mtime_ns)
        if stamp != self._stamp:
            self._permits = json.loads(self._path.read_text())
            self._stamp = stamp
        return self._permits
