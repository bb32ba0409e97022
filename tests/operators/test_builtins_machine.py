"""Built-ins on the keyed machine itself: same rows out as in the small, shards and restarts included."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from holdfast.graph.schemas import Schema
from holdfast.operators.aggregate import make_aggregate
from holdfast.operators.join import make_join
from holdfast.operators.keyed import FrameContext, FrameStep, KeyedSpec, run_keyed
from holdfast.operators.spec import read_notes
from holdfast.operators.state import drop_cache
from tests.operators.small_machine import START, SmallMachine, frames_of, paned, projected, raw, reduced, sessioned

SCHEMA = Schema.of("zone int, ts timestamp, name string, celsius double")
EMITS = {
    "n": "count(*)",
    "total": "sum(celsius)",
    "low": "min(celsius)",
    "oldest": "first(name)",
    "kinds": "count_distinct(name)",
    "spread": "stddev(celsius)",
}
SHARDS = 2


def readings(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    us = START.value // 1000 + np.sort(random.integers(0, 30_000_000, count))
    return pa.table(
        [
            random.integers(1, 6, count),
            pa.array(us).cast(SCHEMA.arrow.field("ts").type),
            pa.array(random.choice(["a", "b", "c"], count), mask=random.random(count) < 0.2),
            pa.array(random.integers(-80, 80, count) / 8, mask=random.random(count) < 0.2),
        ],
        names=SCHEMA.names,
    ).cast(SCHEMA.arrow)


def aggregate(**options):
    return make_aggregate({"by": ("zone",), "emits": EMITS, "time": "ts"} | options, SCHEMA)


def whole(keyed, rows):
    return reduced(keyed, projected(keyed, rows), {})


def as_they_are(keyed, rows):
    return rows


JOIN = {"on": ("zone",), "within_ms": 700, "how": "left", "time": "ts"}
KINDS = {
    "running": (aggregate(), whole),
    "sliding": (aggregate(window_ms=5000, every_ms=2000), paned),
    "session": (aggregate(session_ms=600), sessioned),
    "rows": (aggregate(window_rows=4, every_rows=2), raw),
    "join": (make_join(JOIN, SCHEMA, SCHEMA), as_they_are),
}


def tagged(spec: KeyedSpec, n: int, ports: list[pa.Table]) -> list[pa.RecordBatch]:
    """Rows as the engine sends them; the shard is that of the key."""
    parts = []
    for at, table in enumerate(ports):
        zones = table.column("zone").to_numpy()
        columns = {f"p{at}_{name}": table.column(name) for name in table.column_names}
        columns |= {"_n": pa.array(np.full(len(zones), n)), "_shard": pa.array((zones % SHARDS).astype(np.int32))}
        columns["_port"] = pa.array(np.full(len(zones), at, dtype=np.int32))
        arrays = [columns.get(f.name, pa.nulls(len(zones), f.type)) for f in spec.input_schema]
        parts.append(pa.table(arrays, schema=spec.input_schema))
    return pa.concat_tables(parts).to_batches()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_machine_and_the_small_one_emit_the_same(kind, restarts, tmp_path):
    """State that went through files must not differ from state that stayed in memory."""
    keyed, prepare = KINDS[kind]
    ports = tuple((f"port{at}", schema) for at, schema in enumerate(keyed.rows))
    spec = KeyedSpec(
        kind, keyed.keys.names, ports, keyed.state, ((kind, keyed.emits),), keyed.function, "ts", exact=True
    )
    small = SmallMachine(keyed)
    runs: dict = {}
    inputs = [frames_of(readings(80, seed), 4) for seed in range(1, len(ports) + 1)]
    for frames in zip(*inputs, strict=True):
        n, _, boundary, since = frames[0]
        tables = [prepare(keyed, own) for _, own, _, _ in frames]
        expected = small.frame(*tables, n=n, boundary=boundary, since=since)
        notes = tmp_path / "notes"
        notes.mkdir(exist_ok=True)
        (tmp_path / "runs").mkdir(exist_ok=True)
        step = FrameStep(n, boundary.value // 1000, since.value // 1000)
        found = []
        if restarts:
            drop_cache()
        for shard in range(SHARDS):
            context = FrameContext((step,), (shard,), runs, str(tmp_path / "runs"), str(notes))
            own = [table.filter(pa.array(table.column("zone").to_numpy() % SHARDS == shard)) for table in tables]
            found += list(run_keyed(spec, iter(tagged(spec, n, own)), context))
        for note in read_notes(notes, n, range(SHARDS)):
            runs |= note.runs
        table = pa.Table.from_batches(found, schema=spec.output_schema)
        actual = table.select([f"o0_{name}" for name in keyed.emits.names])
        assert rows_of(actual) == rows_of(expected)


def rows_of(table: pa.Table) -> Counter:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_minus_zero_and_zero_are_one_key_and_come_out_as_zero(tmp_path):
    """As in Spark. A join found no partner for 0.0 in -0.0, and windows of rows counted the two apart."""
    schema = Schema.of("zone double, ts timestamp, v int")
    for how, spec_of in {
        "join": lambda: make_join({"on": ("zone",), "within_ms": 5000, "how": "left", "time": "ts"}, schema, schema),
        "rows": lambda: make_aggregate(
            {"by": "zone", "window_rows": 2, "emits": {"n": "sum(v)"}, "time": "ts"}, schema
        ),
    }.items():
        keyed = spec_of()
        spec = KeyedSpec(
            how, keyed.keys.names, tuple((f"p{at}", rows) for at, rows in enumerate(keyed.rows)), keyed.state,
            ((how, keyed.emits),), keyed.function, "ts", exact=True,
        )  # fmt: skip
        for cut in (False, True):  # in one frame, and in two
            runs, found = {}, []
            folder = tmp_path / f"{how}-{cut}"
            (folder / "notes").mkdir(parents=True)
            (folder / "runs").mkdir()
            signs = [[0.0, -0.0]] if not cut else [[-0.0], [0.0]]
            for n, zones in enumerate(signs, 1):
                rows = pa.table([zones, [START] * len(zones), [n] * len(zones)], names=schema.names).cast(schema.arrow)
                ports = [raw(keyed, rows)] if how == "rows" else [rows.slice(0, 1), rows.slice(1)]
                if cut and how == "join":
                    ports = [rows, rows.slice(0, 0)] if n == 1 else [rows.slice(0, 0), rows]
                steps = (FrameStep(n, START.value // 1000 + n * 1000),)
                context = FrameContext(steps, tuple(range(SHARDS)), runs, str(folder / "runs"), str(folder / "notes"))
                for batch in run_keyed(spec, iter(tagged(spec, n, ports)), context):
                    found += batch.to_pylist()
                for note in read_notes(folder / "notes", n, range(SHARDS)):
                    runs |= note.runs
            assert [str(row["o0_zone"]) for row in found] == ["0.0"], (how, cut, found)
            if how == "join":
                assert found[0]["o0_v_right"] is not None
            drop_cache()
