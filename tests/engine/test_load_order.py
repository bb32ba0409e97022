"""Rows that an operator is handed in order come in one order, whatever the file's, whichever columns are read."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.unit.worker import Load
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from tests.sources.conftest import SECOND, Driver

SCHEMA = Schema.of("zone int, ts timestamp, name string, x double")
ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 3), st.sampled_from(["a", "b", None]), st.sampled_from([0.0, -0.0, 0.5, float("nan"), None])),
    min_size=1, max_size=12,
)  # fmt: skip


def loaded(rows, columns=None, without=None, seed=None) -> list[tuple[str, ...]]:
    """What the loader yields of a file with these rows, in the order given or another."""
    rows = random.Random(seed).sample(rows, len(rows)) if seed is not None else rows
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table(
            [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA.arrow, strict=True)],
            schema=SCHEMA.arrow,
        )
        pq.write_table(table, f"{folder}/a.parquet", row_group_size=3)
        driver = Driver(Path(folder)).set(schema=SCHEMA, frame_us=SECOND)
        [frame] = [each for each in driver.frames(read.files("a.parquet")) if each.rows]
        port = {"references": [each.to_json() for each in frame.references]} | ({"without": without} if without else {})
        load = Load("probes", SCHEMA, 1, "ts", columns=columns, ordered=True)
        # As text, nan is nan and -0.0 is not 0.0.
        return [tuple(map(str, row.values())) for batch in load._in_order(port) for row in batch.to_pylist()]


@settings(deadline=None, max_examples=60)
@given(ROWS, st.integers(0, 99), st.sampled_from([None, ("x",), ("name", "zone"), ("ts",)]))
def test_the_order_is_by_values_alone(rows, seed, columns):
    assert loaded(rows, columns, seed=seed) == loaded(rows, columns)


@settings(deadline=None, max_examples=40)
@given(ROWS, st.integers(0, 99))
def test_a_plan_that_reads_less_sees_the_same_order(rows, seed):
    """A unit has plans that read all columns and plans that read those it uses; ties must fall alike in both."""
    assert loaded(rows, ("zone", "name"), seed=seed) == [(zone, name) for zone, _, name, _ in loaded(rows)]


def test_rows_that_were_left_out_are_those_of_the_file():
    """Which rows are left out was written down by their place in the file."""
    rows = [(1, 3, "c", 0.5), (0, 1, "a", 0.5), (1, 1, "b", 0.5)]
    assert loaded(rows, ("name", "x"), without=[[0, 1]]) == [("a", "0.5"), ("b", "0.5")]


def test_what_rises_in_time_is_left_as_it_is():
    rows = [(0, at, None, float(at)) for at in range(4)]
    assert loaded(rows, ("x",)) == [("0.0",), ("1.0",), ("2.0",), ("3.0",)]
