"""A sample of the frames of a finished run, computed again and compared with what the run gave.

Every stream that leaves a unit is looked at: those that go to sinks, and those between units. A
frame is computed from its unit's inputs as the run had them, so a frame that differs is the fault of
this unit, and one that agrees says nothing of the units before it: they have lines of their own.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from holdfast.engine.flow.end_of_input import late_stages
from holdfast.faults.keeping import rows_in
from holdfast.faults.trial import kept_folders
from holdfast.frames.content import canonical, checksum
from holdfast.frames.identity import Kind
from holdfast.graph.model import Graph
from holdfast.graph.units import Unit, cut
from holdfast.levels.recomputed import Differing, Recomputed, compared
from holdfast.levels.sampling import sampled
from holdfast.oracle.inputs import Inputs
from holdfast.oracle.tables import Tables, rows_of
from holdfast.oracle.units import Made, UnitFrames

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from holdfast.graph.schemas import Schema

__all__ = ["recompute"]


def recompute(
    graph: Graph,
    ran: Path,
    spark: SparkSession,
    *,
    count: int | None,
    seed: int,
    first: int = 1,
    until: int | None = None,
) -> list[Recomputed]:
    """`ran`: the folder of a run that kept all its streams; `count`: frames a stream at most, None: all."""
    with tempfile.TemporaryDirectory(prefix="holdfast-oracle-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        inputs = Inputs(graph, ran / "state", kept_folders(graph, ran), work, first)
        typed = replace(graph, sources=tuple(replace(each, schema=inputs.schemas[each.name]) for each in graph.sources))
        units = [unit for unit in cut(graph) if unit.outputs]
        tables, found = Tables(work), []
        for unit in units:
            times = inputs.times(late_stages(graph, units, unit))
            frames = UnitFrames(spark, typed, unit, inputs, times, tables)
            found += _Unit(typed, unit, inputs, frames, until).looked_at(count, seed)
            tables.forget()
        return found


class _Unit:
    def __init__(self, graph: Graph, unit: Unit, inputs: Inputs, frames: UnitFrames, until: int | None) -> None:
        self._graph, self._unit, self._inputs, self._frames, self._until = graph, unit, inputs, frames, until

    def looked_at(self, count: int | None, seed: int) -> list[Recomputed]:
        lines = {
            (stream, sink): self._line(stream, sink)
            for stream in self._unit.outputs
            for sink in self._inputs.outputs[stream]
        }
        if self._frames.left_out:
            return list(lines.values())
        wanted = {}
        for stream in self._unit.outputs:
            sinks = self._inputs.outputs[stream].values()
            there = {n: frame.rows for frames in sinks for n, frame in frames.items() if frame.is_whole}
            if there:
                wanted[stream] = sampled(there, count, Random(f"{seed} {stream}").randrange)
        try:
            for made in self._frames.frames(wanted):
                for sink in self._inputs.outputs[made.stream]:
                    lines[made.stream, sink] = self._judged(lines[made.stream, sink], made)
        except Exception as error:
            # Not the user's code: that is told as a frame that differs. What has no answer is not said to be right.
            why = f"the other way ended with {self._said(error)}"
            return [
                line if {*line.frames} >= {*wanted.get(line.stream, ())} else replace(line, left_out=why)
                for line in lines.values()
            ]
        return list(lines.values())

    def _said(self, error: Exception) -> str:
        return _words(error) if self._graph.values != "hide" else type(error).__name__

    def _line(self, stream: str, sink: str) -> Recomputed:
        """Nothing computed yet; frames that have to be there and are not are known already."""
        there, last = self._inputs.outputs[stream][sink], self._inputs.last
        missing = [n for n in range(self._inputs.first, last + 1) if n not in there]
        if self._inputs.goes_on and (self._until is None or last < self._until):
            missing.append(last + 1)  # the run ended before its input did
        return Recomputed(
            sink, stream, self._unit.name, self._graph.producer_of(stream).name, self._frames.way(stream), of=len(there),
            differs=tuple(Differing(n, came=False) for n in missing), left_out=self._frames.left_out,
        )  # fmt: skip

    def _judged(self, line: Recomputed, made: Made) -> Recomputed:
        quote, frame = self._graph.values != "hide", self._inputs.outputs[line.stream][line.output].get(made.n)
        if made.error is not None:
            if not made.users:
                return replace(line, left_out=f"the other way ended at frame {made.n:,} with {self._said(made.error)}")
            return _differing(line, Differing(made.n, raised=self._said(made.error)))
        if frame is None:
            return line  # that it is not there is in the line
        schema, actual = self._inputs.schemas[line.stream], rows_in(frame.path)
        line = replace(line, frames=tuple(sorted((*line.frames, made.n))), rows=line.rows + actual.num_rows)
        if _digest(made.rows, schema) == _digest(actual, schema):
            return line
        differing, undecided = compared(
            made.n, rows_of(made.rows, schema), rows_of(actual, schema), slack=made.slack,
            otherwise=[rows_of(table, schema) for table in made.otherwise], quote=quote,
        )  # fmt: skip
        line = replace(line, undecided=line.undecided + undecided)
        return line if differing is None else _differing(line, differing)


def _differing(line: Recomputed, found: Differing) -> Recomputed:
    differs = tuple(sorted((*line.differs, found), key=lambda each: each.n))
    return replace(line, differs=differs, found_first=line.found_first or found.n)


def _digest(table: pa.Table, schema: Schema) -> str:
    return checksum(canonical(table, schema, None), n=1, boundary_us=0, kind=Kind.STABLE)


def _words(error: Exception) -> str:
    """The kind of an error and its first line; of one in a worker the last, where Python says what it was."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [
        line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and not line.startswith("org.")
    ]
    said = raised[-1] if raised else f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return said[:300]
