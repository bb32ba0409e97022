"""Run a process in a test: given inputs, sinks that keep what they are handed, a folder of its own."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.declare.process import StreamProcess
from holdfast.engine.run.run import Run, start_graph
from holdfast.errors import Finding, UsageError
from holdfast.frames.identity import FrameRecord
from holdfast.graph.durations import duration_ms
from holdfast.graph.model import Graph, Sink
from holdfast.graph.schemas import Schema
from holdfast.journals.journal import Journal
from holdfast.sinks.writer import SinkContext
from holdfast.sources import read
from holdfast.testing.inputs import fitted, rows

__all__ = ["Outcome", "run_frames", "same_after_restarts"]


@dataclass(frozen=True)
class KeepingWriter:
    """A sink that keeps its frames in memory, across restarts of the run that feeds it."""

    kept: dict[int, tuple[FrameRecord, pa.Table]] = field(default_factory=dict)
    idempotent: bool = True

    def describe(self) -> str:
        return "kept in memory by a test"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        return []

    def open(self, context: SinkContext) -> KeepingWriter:
        return self

    def last(self) -> int:
        return max(self.kept, default=0)

    def write(self, batch: Sequence[tuple[FrameRecord, pa.Table]]) -> list[bool]:
        fresh = [record.n not in self.kept for record, _ in batch]
        for record, table in batch:
            # The queue's file may go away once this returns; its memory map must not.
            self.kept.setdefault(record.n, (record, _copied(table)))
        return fresh

    def close(self) -> None:
        pass


def _copied(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


@dataclass(frozen=True)
class Outcome:
    """What a run gave: `out.alarms` is the whole stream, `out.frames["alarms"]` frame by frame."""

    frames: dict[str, list[pa.Table]]
    checksums: dict[str, dict[int, str]]  # of every stream that leaves a unit, by frame
    tables: dict[str, pa.Table]

    def __getattr__(self, name: str) -> pa.Table:
        try:
            return self.tables[name]
        except KeyError:
            raise AttributeError(f"no sink reads a stream {name!r}; there are {', '.join(self.tables)}") from None


def run_frames(
    process: StreamProcess | Graph,
    *,
    params: dict[int, dict[str, Any]] | None = None,
    spark: Any = None,
    restarts: Iterable[int] = (),
    until: int | None = None,
    meddle: Callable[[Path, int], None] | None = None,
    **inputs: Any,
) -> Outcome:
    """Run over these inputs (by source; others as declared) and return what the sinks got.

    `params` changes parameters at a frame: {10: {"limit": 75.0}}. `restarts` are frames
    after which the run is stopped and a new one goes on; `meddle` is called in between
    with the state folder and the frame, to break what it wants to see mended.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        bench = _Bench(process, Path(folder), inputs, params or {}, spark)
        for stop_at in sorted(restarts):
            bench.run(until=stop_at)
            if meddle is not None:
                meddle(Path(folder) / "state", stop_at)
        bench.run(until=until)
        return bench.outcome()


def same_after_restarts(
    process: StreamProcess | Graph,
    *,
    seeds: Iterable[int] = range(3),
    restarts: int = 2,
    recording: Any = None,
    params: dict[int, dict[str, Any]] | None = None,
    spark: Any = None,
    **inputs: Any,
) -> Outcome:
    """A run with restarts at seeded frames seals the same frames as one without; raises AssertionError if not."""
    graph = process if isinstance(process, Graph) else process.graph()
    until = None if recording is None else -(-duration_ms(recording, what="recording") // graph.frame_ms)
    straight = run_frames(graph, params=params, spark=spark, until=until, **inputs)
    last = max((max(frames, default=0) for frames in straight.checksums.values()), default=0)
    for seed in seeds:
        stops = random.Random(seed).sample(range(1, last), k=min(restarts, last - 1)) if last > 1 else []
        again = run_frames(graph, params=params, spark=spark, until=until, restarts=stops, **inputs)
        compare(straight, again, f"restarts after frames {sorted(stops)} (seed {seed})")
    return straight


def compare(expected: Outcome, actual: Outcome, what: str) -> None:
    for stream, frames in expected.checksums.items():
        found = actual.checksums.get(stream, {})
        for n in sorted(set(frames) | set(found)):
            if frames.get(n) != found.get(n):
                raise AssertionError(
                    f"with {what}, frame {n} of stream {stream!r} differs: "
                    f"checksum {frames.get(n, 'missing')} without, {found.get(n, 'missing')} with"
                )


class _Bench:
    """One process over given inputs in a folder of its own, run as often as asked."""

    def __init__(
        self,
        process: StreamProcess | Graph,
        folder: Path,
        inputs: dict[str, Any],
        params: dict[int, dict[str, Any]],
        spark: Any,
    ) -> None:
        graph = process if isinstance(process, Graph) else process.graph()
        unknown = [name for name in inputs if graph.source(name) is None]
        if unknown:
            raise UsageError(
                "HF-C042",
                "UnknownSource",
                f"stream process {graph.name!r} has no source {unknown[0]!r}.",
                effect="nothing was run",
                do=f"sources are: {', '.join(source.name for source in graph.sources)}",
            )
        self._folder, self._spark = folder, spark if spark is not None else _active()
        sources = tuple(
            replace(source, reader=read.files(str(self._written(source.name, source.schema, inputs[source.name]))))
            if source.name in inputs
            else source
            for source in graph.sources
        )
        self._kept = {sink.name: KeepingWriter() for sink in graph.sinks}
        sinks = tuple(
            Sink(sink.name, self._kept[sink.name], sink.stream, sink.promises, sink.line) for sink in graph.sinks
        )
        self.graph = replace(graph, sources=sources, sinks=sinks)
        self._params = params
        self._checksums: dict[str, dict[int, str]] = {}

    def run(self, until: int | None) -> None:
        changes = dict(self._params.items())
        run = start_graph(
            self.graph,
            state=self._folder / "state",
            until_frame=until,
            rate="fast",  # a test does not wait for a recorded pace; results do not depend on it
            spark=self._spark,
            changes=changes,
        )
        with run:
            run.wait()
        self._collect(run)

    def _collect(self, run: Run) -> None:
        for unit in run.units():
            for record in Journal(run.folder.unit(unit.name), "commits").entries():
                for stream, output in record["outputs"].items():
                    self._checksums.setdefault(stream, {})[record["n"]] = output["checksum"]

    def outcome(self) -> Outcome:
        frames, tables = {}, {}
        for sink in self.graph.sinks:
            kept = self._kept[sink.name].kept
            frames[sink.stream] = [kept[n][1] for n in sorted(kept)]
            if frames[sink.stream]:
                tables[sink.stream] = pa.concat_tables(frames[sink.stream])
        return Outcome(frames, self._checksums, tables)

    def _written(self, name: str, schema: Schema, found: Any) -> Path:
        path = self._folder / "inputs" / name / "rows.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(fitted(rows(found), schema, f"the rows for source {name!r}"), path)
        return path


def _active() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()
