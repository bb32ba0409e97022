"""The rows that operators of a finished run were given, frame by frame, without asking the engine.

A source is opened again, in a folder of its own, and cut again: its references say where the
rows of a frame lie. Streams between units were kept beside the sinks. Rows that the run decided
to leave out (`on_error=`) are left out here too: the decision is part of the input.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.flow.parameters import Config
from holdfast.engine.flow.source_runner import open_source
from holdfast.engine.state_folder import StateFolder
from holdfast.faults.keeping import frames_in, rows_in
from holdfast.frames.clock import FrameClock
from holdfast.frames.identity import END_US
from holdfast.graph.model import Graph
from holdfast.graph.schemas import Schema
from holdfast.graph.units import UnitInput
from holdfast.sources.reference import load

__all__ = ["FrameTimes", "Inputs"]


@dataclass(frozen=True)
class FrameTimes:
    """When frames end, for units with so many stages before them that answer a frame late."""

    clock: FrameClock
    first: int  # the first frame of the run
    last_data: int | None  # None: the run did not come to the end of its input
    depth: int = 0

    def boundary_us(self, n: int) -> int:
        is_over = self.last_data is not None and n > self.last_data + self.depth
        return END_US if is_over else self.clock.boundary_us(n)

    def since_us(self, n: int) -> int:
        return self.boundary_us(n - 1)


class Inputs:
    def __init__(
        self, graph: Graph, state: Path, kept: Mapping[str, Mapping[str, Path]], work: Path, first: int
    ) -> None:
        """`state`: the state folder of the run; `kept`: by stream and sink, where its frames are; `work`: for sources."""
        folder = StateFolder(state)
        deployed = folder.deployment()
        self._folder, self._work, self._graph, self.first = folder, work, graph, first
        self.schemas = {stream: Schema.of(ddl) for stream, ddl in deployed["schemas"].items()}
        self.clock = FrameClock(deployed["t0_us"], graph.frame_ms * 1000)
        self.params = Config(folder.config, graph.params)
        self.outputs = {
            stream: {name: frames_in(path) for name, path in sinks.items()} for stream, sinks in kept.items()
        }
        self.last = max(
            (n for sinks in self.outputs.values() for frames in sinks.values() for n in frames), default=first - 1
        )
        self._sources = {source.name: self._cut(source.name) for source in graph.sources}
        self._left_out: dict[str, Exclusions] = {}

    @property
    def last_data(self) -> int | None:
        """The last frame of the input, if the run came to it."""
        return None if self.goes_on else max(max(frames, default=self.first - 1) for frames in self._sources.values())

    @property
    def goes_on(self) -> bool:
        """There is input behind the last frame of the run."""
        return any(n > self.last for frames in self._sources.values() for n in frames)

    def _cut(self, name: str) -> dict[int, tuple]:
        """Frame -> references, up to the last of the run."""
        source = self._graph.source(name)
        found: dict[int, tuple] = {}
        directory = self._work / "sources" / name
        directory.mkdir(parents=True)
        opened = open_source(source, self._graph, directory, from_n=self.first, clock=self.clock, epoch=1)
        try:
            opened.set_clock(self.clock)
            for frame in opened.frames(threading.Event()):
                if frame.n > self.last:
                    found[frame.n] = ()  # the input goes on
                    break
                found[frame.n] = frame.references
        finally:
            opened.close()
        return found

    def rows(self, stream: str, n: int) -> pa.Table:
        """A frame of a stream; without rows where there was none."""
        schema = self.schemas[stream]
        if stream not in self._sources:
            frame = next(iter(self.outputs[stream].values())).get(n)
            return schema.arrow.empty_table() if frame is None else rows_in(frame.path).select(list(schema.names))
        references = self._sources[stream].get(n, ())
        batches = [batch for reference in references for batch in load(reference, schema)]
        return pa.Table.from_batches(batches, schema.arrow)

    def port(self, unit: str, port: UnitInput, n: int) -> pa.Table:
        """What a unit was given in frame n."""
        table = self.rows(port.stream, n - port.feedback_frames)
        if unit not in self._left_out:
            self._left_out[unit] = Exclusions(self._folder.decisions(unit))
        key = f"{port.stream}@{port.feedback_frames}" if port.feedback_frames else port.stream
        ranges = self._left_out[unit].at(n).get(key, [])
        if not ranges:
            return table
        keep = np.ones(table.num_rows, dtype=bool)
        for begin, end in ranges:
            keep[begin:end] = False
        return table.filter(pa.array(keep))

    def times(self, depth: int) -> FrameTimes:
        return FrameTimes(self.clock, self.first, self.last_data, depth)
