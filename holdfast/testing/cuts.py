"""Does a keyed function give the same output however the stream is cut into frames?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.declare.process import StreamProcess, declared_by
from holdfast.errors import UsageError
from holdfast.frames.clock import FrameClock
from holdfast.frames.content import canonical
from holdfast.frames.identity import END_US
from holdfast.graph.durations import duration_ms, show_ms
from holdfast.graph.model import Graph, Operator
from holdfast.operators.keyed import FrameContext, FrameStep, KeyedSpec, run_keyed
from holdfast.operators.spec import read_notes
from holdfast.testing.inputs import fitted, rows

__all__ = ["same_however_cut"]


def same_however_cut(
    function: Callable[..., Any],
    *inputs: Any,
    process: StreamProcess | None = None,
    cuts: Sequence[Any] = ("10 seconds", "1 second", "370 ms"),
    params: dict[str, Any] | None = None,
) -> pa.Table:
    """Run a keyed function over the rows (one input per port) cut at each length; all must agree.

    Returns what it emits, in order. Needs no Spark: it is the machine that runs it there.
    """
    graph, operator = _find(function, process)
    tables = [_port(graph, edge.stream, found) for edge, found in zip(operator.inputs, inputs, strict=True)]
    expected: pa.Table | None = None
    for cut in cuts:
        actual = _run(graph, operator, tables, duration_ms(cut, what="cut"), params or {})
        if expected is None:
            expected = actual
        elif not expected.equals(actual):
            raise AssertionError(_difference(operator, expected, actual, cuts[0], cut))
    return expected


def _find(function: Callable[..., Any], process: StreamProcess | None) -> tuple[Graph, Operator]:
    owner = process or declared_by(function)
    if owner is not None:
        graph = owner.graph()
        for operator in graph.operators:
            if operator.kind == "keyed" and operator.name == function.__name__:
                return graph, operator
    raise UsageError(
        "HF-C043",
        "NotKeyed",
        f"{getattr(function, '__name__', function)!r} is no keyed operator of a stream process.",
        effect="nothing was run",
        do="give the function that @process.keyed decorates",
    )


def _without_time(operator: Operator, stream: str, time: Any) -> UsageError:
    return UsageError(
        "HF-G046",
        "CutNeedsTime",
        f"the rows for {stream!r}, which {operator.name!r} reads, cannot be cut into frames.",
        where=operator.line,
        why=f"they have no column {time!r}, the process's time"
        if isinstance(time, str)
        else "the process's time is their arrival",
        effect="nothing was run",
        do=f"emit {time!r} upstream and hand it in with the rows"
        if isinstance(time, str)
        else "declare time='ts' for the process",
    )


def _port(graph: Graph, stream: str, found: Any) -> pa.Table:
    source = graph.source(stream)
    table = rows(found)
    return table if source is None else fitted(table, source.schema, f"the rows for {stream!r}")


def _run(graph: Graph, operator: Operator, tables: list[pa.Table], frame_ms: int, params: dict[str, Any]) -> pa.Table:
    from holdfast.graph.schemas import Schema

    time = graph.time
    options = operator.options
    emits = tuple((stream.split(".", 1)[-1], options["emits"][stream]) for stream in operator.outputs)
    ports = tuple((e.port, Schema.of(t.schema)) for e, t in zip(operator.inputs, tables, strict=True))
    spec = KeyedSpec(operator.name, tuple(options["keys"]), ports, options["state"], emits, operator.function, time)  # type: ignore[arg-type]
    for edge, table in zip(operator.inputs, tables, strict=True):
        if not isinstance(time, str) or time not in table.column_names:
            raise _without_time(operator, edge.stream, time)
    times = [table[time].cast(pa.int64()).to_numpy() for table in tables]
    clock = FrameClock.starting(min(int(t.min()) for t in times if len(t)), frame_ms * 1000)
    numbers = [clock.frame_of(t) for t in times]
    last = max(int(n.max()) for n in numbers if len(n))
    values = {name: graph.param(name).default for name in operator.params} | params
    out: list[pa.RecordBatch] = []
    runs: dict = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-cut-") as folder:
        for sub in ("runs", "notes"):
            (Path(folder) / sub).mkdir()
        for n in range(1, last + 2):
            boundary = clock.boundary_us(n) if n <= last else END_US
            step = FrameStep(n, boundary, clock.boundary_us(n - 1), values)
            context = FrameContext((step,), (0,), runs, f"{folder}/runs", f"{folder}/notes")
            batches = _batches(spec, tables, [np.flatnonzero(numbers[at] == n) for at in range(len(tables))])
            out += list(run_keyed(spec, iter(batches), context))
            for note in read_notes(f"{folder}/notes", n, [0]):
                runs = {**runs, **note.runs}
    whole = pa.Table.from_batches(out, spec.output_schema).drop_columns(["_n"])
    if len(emits) == 1:
        whole = whole.drop_columns(["_out"])
        whole = whole.rename_columns([name.removeprefix("o0_") for name in whole.column_names])
    schema = Schema.of(whole.schema)
    return canonical(whole, schema, None)


def _batches(spec: KeyedSpec, tables: list[pa.Table], chosen: list[np.ndarray]) -> list[pa.RecordBatch]:
    batches = []
    for at, table in enumerate(tables):
        part = table.take(pa.array(chosen[at]))
        count = part.num_rows
        columns: list[pa.Array] = []
        for field in spec.input_schema:
            if field.name == "_n":
                continue
            if field.name in ("_shard", "_port"):
                columns.append(pa.array([at if field.name == "_port" else 0] * count, pa.int32()))
            elif field.name.startswith(f"p{at}_"):
                columns.append(part[field.name[len(f"p{at}_") :]].combine_chunks())
            else:
                columns.append(pa.nulls(count, field.type))
        names = [field.name for field in spec.input_schema if field.name != "_n"]
        batches.append(pa.RecordBatch.from_arrays([_flat(c) for c in columns], names))
    return batches


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _difference(operator: Operator, expected: pa.Table, actual: pa.Table, first: Any, cut: Any) -> str:
    here = f"{operator.name!r} cut at {show_ms(duration_ms(cut))} differs from {show_ms(duration_ms(first))}"
    if expected.num_rows != actual.num_rows:
        return f"{here}: {actual.num_rows} rows against {expected.num_rows}"
    for at, (left, right) in enumerate(zip(expected.to_pylist(), actual.to_pylist(), strict=True)):
        if left != right:
            return f"{here}: row {at} is {right} against {left}"
    return here
