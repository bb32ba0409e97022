"""Runs a keyed operator: one call of the user's function for all touched keys.

A task is given the rows of its shards for one frame or several. For each frame, in
order: rows sorted canonically, state of the touched keys (those with rows, and those
whose `wake` the boundary has reached), the function, new state committed as one file,
output handed on, a note left for the driver.

Output and state of frame n depend on its rows and the state after n-1 only, not on
which worker holds a shard, which shards share a task, how many frames came in one
call or how often it was tried: files are never changed and the driver names the
ones that count.  The function must treat keys independently of one another.

Touches the runs and notes directories of its context, no clock, no session.
Driven by `engine`, inside mapInArrow.
"""

from __future__ import annotations

import inspect
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import HoldfastError, OperatorError, invariant
from holdfast.frames.content import canonical
from holdfast.operators.exchange import Misfit, to_df, to_table
from holdfast.operators.index import distinct, normal, sorted_by
from holdfast.operators.spec import FrameContext, FrameStep, KeyedSpec, Note, write_note
from holdfast.operators.state import NotTouched, Store, open_store

__all__ = ["FrameContext", "FrameStep", "KeyedSpec", "run_keyed"]

_ROWS_PER_BATCH = 65_536


def run_keyed(spec: KeyedSpec, batches: Iterator[pa.RecordBatch], frame: FrameContext) -> Iterator[pa.RecordBatch]:
    """Rows of `spec.input_schema` in, rows of `spec.output_schema` out."""
    rows = _collect(spec, batches)
    store = open_store(frame.runs_dir, spec.key_schema, spec.state)
    store.load({shard: tuple(frame.runs.get(shard, ())) for shard in frame.shards})
    for step in frame.steps:
        own = rows if "_n" not in rows.column_names else rows.filter(pc.equal(rows["_n"], step.n))
        outs, note = _run_frame(spec, store, own, frame, step)
        write_note(frame.notes_dir, note)
        for at, table in enumerate(outs):
            yield from _tagged(spec, step.n, at, table)


def _run_frame(
    spec: KeyedSpec, store: Store, rows: pa.Table, frame: FrameContext, step: FrameStep
) -> tuple[list[pa.Table], Note]:
    ports, given, given_shards = _ports(spec, rows)
    due, due_shards = store.due(step.boundary_us, frame.shards)
    keys, shards = _touched_keys(pa.concat_tables([*given, due]), np.concatenate([*given_shards, due_shards]))
    invariant(
        bool(np.isin(shards, frame.shards).all()),
        f"operator {spec.name!r} was given rows of shards it does not own",
    )
    note: dict[str, Any] = {"n": step.n, "epoch": frame.epoch, "shards": frame.shards}
    if not keys.num_rows:
        return [], Note(**note, runs={})
    touched = store.touch(keys, shards)
    state, outs, counts = _call(spec, touched.rows, ports, step)
    try:
        runs = store.commit(step.n, state, touched)
    except NotTouched as error:
        raise _wrong_key(spec, step.n, error) from error
    count = sum(port.num_rows for port in ports)
    return outs, Note(**note, runs=runs, keys=keys.num_rows, rows=count, counts=counts)


def _collect(spec: KeyedSpec, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return spec.input_schema.empty_table()
    return pa.Table.from_batches(filled).combine_chunks()


def _ports(spec: KeyedSpec, rows: pa.Table) -> tuple[list[pa.Table], list[pa.Table], list[np.ndarray]]:
    """Per port its rows in canonical order; keys and shards of all rows, in any order."""
    ports, keys, shards = [], [], []
    which = rows["_port"]
    for at, (_, schema) in enumerate(spec.ports):
        here = pc.equal(which, at)
        own = rows if len(spec.ports) == 1 and pc.all(here).as_py() else rows.filter(here)
        columns = [own[f"p{at}_{name}"] for name in schema.names]
        table = pa.table(columns, names=list(schema.names))
        ports.append(canonical(table, schema, spec.time))
        keys.append(table.select(spec.keys).cast(spec.key_schema.arrow))
        shards.append(own["_shard"].to_numpy())
    return ports, keys, shards


def _touched_keys(keys: pa.Table, shards: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """Each key once, sorted, with its shard."""
    keys = normal(keys).combine_chunks()
    first = distinct(keys)
    keys = keys.take(pa.array(first))
    order = sorted_by(keys)
    return keys.take(pa.array(order)), shards[first][order]


def _call(
    spec: KeyedSpec, state: pa.Table, ports: list[pa.Table], step: FrameStep
) -> tuple[pa.Table, list[pa.Table], dict[str, int]]:
    dfs = [to_df(table, exact=spec.exact) for table in (state, *ports)]
    try:
        found = spec.function(*dfs, **_keywords(spec, step))
    except HoldfastError:
        raise
    except Exception as error:
        raise _raised(spec, step.n, error) from error
    if not (isinstance(found, tuple) and len(found) == 2):
        raise OperatorError(
            "HF-O002",
            "NotStateAndOutput",
            f"operator {spec.name!r} returned {_kind(found)}, not a pair (state, output).",
            where=_where(spec, step.n),
            why="a keyed function returns what remains of the state, and what it emits",
            effect=_EFFECT,
            do="return state, out",
        )
    schema = pa.schema([*spec.key_schema.arrow, *spec.state.arrow])
    after = _fit(spec, step.n, "state", found[0], schema, spec.keys)
    outs: list[pa.Table] = []
    counts: dict[str, int] = {}
    named = _by_stream(spec, step.n, found[1])
    for name, emitted in spec.emits:
        out = named.get(name)
        late = getattr(out, "attrs", {}).get("late_rows", 0)
        if late:
            counts["late_rows"] = counts.get("late_rows", 0) + int(late)
            if spec.too_late != "drop":
                raise _too_late(spec, step.n, int(late))
        outs.append(_fit(spec, step.n, f"output {name!r}", out, emitted.arrow, spec.keys))
    return after, outs, counts


def _too_late(spec: KeyedSpec, n: int, rows: int) -> OperatorError:
    return OperatorError(
        "HF-U090",
        "TooLateForWindow",
        f"{rows} rows of frame {n} came too late for their windows in operator {spec.name!r}.",
        where=_where(spec, n),
        why=f"the windows were answered before, and too_late={spec.too_late!r} is declared",
        effect="the frame was not sealed; nothing is lost: with too_late='quarantine' it is made without these rows, which are "
        "set aside; with 'fail' its unit is given up at this frame",
        do=f"declare too_late='quarantine' (or 'drop') and run again with --keep {spec.name}: its state stays, and the frame "
        "is made",
    )


def _keywords(spec: KeyedSpec, step: FrameStep) -> dict[str, Any]:
    """Parameters, and of the frame what the function asks for by name."""
    known = inspect.signature(spec.function).parameters
    about = {
        "boundary": pd.Timestamp(step.boundary_us, unit="us", tz="UTC"),
        "since": None if step.since_us is None else pd.Timestamp(step.since_us, unit="us", tz="UTC"),
        "frame": step.n,
    }
    asked = {
        name: value
        for name, value in about.items()
        if name in known and known[name].kind is inspect.Parameter.KEYWORD_ONLY
    }
    return {**asked, **step.params}


def _by_stream(spec: KeyedSpec, n: int, out: Any) -> Mapping[str, Any]:
    names = [name for name, _ in spec.emits]
    if isinstance(out, Mapping):
        strange = [name for name in out if name not in names]
        if strange:
            raise _misfit(spec, n, "output", f"it emits no stream {strange[0]!r}", f"use one of {', '.join(names)}")
        return out
    if len(names) > 1 and out is not None:
        why = f"it emits {', '.join(names)}, but one {_kind(out)} came back"
        raise _misfit(spec, n, "output", why, "return a dict: stream name -> DataFrame")
    return {names[0]: out} if names else {}


def _fit(spec: KeyedSpec, n: int, what: str, found: Any, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Table:
    try:
        return to_table(found, schema, keys)
    except Misfit as error:
        raise _misfit(spec, n, what, error.why, error.do) from error


def _tagged(spec: KeyedSpec, n: int, at: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    schema = spec.output_schema
    for start in range(0, table.num_rows, _ROWS_PER_BATCH):
        part = table.slice(start, _ROWS_PER_BATCH).combine_chunks()
        rows = part.num_rows
        own = {f"o{at}_{name}": part.column(name).chunk(0) for name in part.column_names}
        own["_n"] = pa.repeat(pa.scalar(n, pa.int64()), rows)
        own["_out"] = pa.repeat(pa.scalar(at, pa.int32()), rows)
        arrays = [own[field.name] if field.name in own else pa.nulls(rows, field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


_EFFECT = "the frame was not sealed; its input is kept and the state is as before it"


def _where(spec: KeyedSpec, n: int) -> str:
    return f"operator {spec.name!r}, frame {n}" + (f", {spec.where}" if spec.where else "")


def _kind(found: Any) -> str:
    return f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__


def _raised(spec: KeyedSpec, n: int, error: Exception) -> OperatorError:
    return OperatorError(
        "HF-O001",
        "OperatorRaised",
        f"operator {spec.name!r} raised {type(error).__name__}.",
        where=_where(spec, n),
        why=f"{type(error).__name__}: {error}\n{_user_lines(error)}".rstrip(),
        effect=_EFFECT,
        do="correct the function and run again: it goes on with this frame",
    )


def _user_lines(error: Exception) -> str:
    """The traceback without our lines and those of installed packages."""
    here = __file__
    places = sysconfig.get_paths()
    skipped = (places["purelib"], places["platlib"], places["stdlib"])
    lines = [
        summary
        for summary in traceback.extract_tb(error.__traceback__)
        if summary.filename != here and not summary.filename.startswith(skipped)
    ]
    return "".join(traceback.format_list(lines)).rstrip()


def _misfit(spec: KeyedSpec, n: int, what: str, why: str, do: str) -> OperatorError:
    return OperatorError(
        "HF-O003",
        "ColumnsDiffer",
        f"{what} of operator {spec.name!r} is not as declared.",
        where=_where(spec, n),
        why=why,
        effect=_EFFECT,
        do=do,
    )


def _wrong_key(spec: KeyedSpec, n: int, error: NotTouched) -> OperatorError:
    shown = ", ".join(f"{name}={value!r}" for name, value in error.key.items())
    if error.twice:
        return OperatorError(
            "HF-O005",
            "StateKeyTwice",
            f"operator {spec.name!r} returned two rows of state for one key.",
            where=_where(spec, n),
            why=f"key {shown} came twice",
            effect=_EFFECT,
            do="return one row for each key, e.g. groupby(keys).last()",
        )
    return OperatorError(
        "HF-O004",
        "StateKeyNotTouched",
        f"operator {spec.name!r} returned state for a key it was not given.",
        where=_where(spec, n),
        why=f"key {shown} has neither rows nor state in this call",
        effect=_EFFECT,
        do="return rows of the keys handed in only",
    )
