"""A source as the engine drives it, without an engine."""

import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.frames.clock import FrameClock
from holdfast.graph.schemas import Schema
from holdfast.sources.reader import SourceContext
from holdfast.sources.reference import load

SCHEMA = Schema.of("ts timestamp, zone int, celsius double")
SECOND = 1_000_000


class Driver:
    """Opens a reader again and again on the same state folder, as restarts do."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, None
        self.context = SourceContext(
            name="probes",
            schema=SCHEMA,
            time="ts",
            grace_us=0,
            late="admit",
            directory=folder / "state",
            base=folder,
            frame_us=SECOND,
            from_n=1,
            clock=None,
            epoch=1,
            monotonic=lambda: 0.0,
        )

    def set(self, **changes):
        self.context = replace(self.context, **changes)
        return self

    def open(self, reader, from_n=1):
        source = reader.open(replace(self.context, from_n=from_n, clock=self.clock))
        if self.clock is None:
            first = source.first_time_us()
            self.clock = FrameClock.starting(first or 0, self.context.frame_us)
        source.set_clock(self.clock)
        return source

    def frames(self, reader, from_n=1, stop_after=None):
        """All frames, or those up to the one with number `stop_after`."""
        source, stop, found = self.open(reader, from_n), threading.Event(), []
        try:
            for frame in source.frames(stop):
                found.append(frame)
                if frame.n == stop_after:
                    stop.set()
        finally:
            source.close()
        return found

    def rows(self, references, schema=None):
        schema = schema or self.context.schema
        batches = [batch for one in references for batch in load(one, schema)]
        return pa.Table.from_batches(batches, schema.arrow)


@pytest.fixture
def driver(tmp_path):
    return Driver(tmp_path)
