"""A process of its own that logs what a broker sends, until it is killed: python subscriber.py URL FOLDER ID CLIENT."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from holdfast.frames.clock import FrameClock
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from holdfast.sources.live.log import SourceLog
from holdfast.sources.reader import SourceContext

SCHEMA = Schema.of("patient string, ts timestamp, number bigint")
SECOND = 1_000_000


def context(folder: Path, time_column: str | None = "ts") -> SourceContext:
    return SourceContext(
        name="ecg", schema=SCHEMA, time=time_column, grace_us=0, late="admit", directory=folder, base=folder,
        frame_us=SECOND, from_n=1, clock=None, epoch=1, monotonic=time.monotonic, process="ward",
    )  # fmt: skip


def logged_rows(log_dir: Path, schema: Schema = SCHEMA) -> list[dict]:
    """What a new run would find there now, whoever writes there: the log of a copy."""
    while True:
        with tempfile.TemporaryDirectory() as copy, contextlib.suppress(shutil.Error, OSError):
            shutil.copytree(log_dir, copy, dirs_exist_ok=True)
            log = SourceLog(Path(copy), schema)
            return [row for chunk in log.chunks() for row in log.table(chunk).to_pylist()]


def main(url: str, folder: str, id: str) -> None:
    source = read.mqtt(f"{url}/ward4/{{patient}}/ecg", id=id or None).open(context(Path(folder)))
    source.set_clock(FrameClock.starting(source.first_time_us(), SECOND))
    for _ in source.frames(threading.Event()):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
