"""A file whose columns have any names is read by them, the time's among them; a live record too."""

from __future__ import annotations

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.graph.schemas import Column, Schema, folded
from holdfast.sources import read
from holdfast.sources.live.wire import Record, parse_records
from holdfast.sources.parse.bad import Terms
from tests.names import NASTY, names

from .conftest import SECOND, Driver

T0 = 1_700_000_000 * SECOND
FORMATS = {"parquet": "a.parquet", "jsonl": "a.jsonl", "csv": "a.csv"}


def write(table: pa.Table, path, kind: str) -> None:
    rows = [{**row, table.column_names[0]: row[table.column_names[0]].isoformat()} for row in table.to_pylist()]
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, table.column_names)
            writer.writeheader()
            writer.writerows(rows)


def read_back(folder, kind, found):
    times = pa.array([T0, T0 + SECOND], pa.timestamp("us", "UTC"))
    table = pa.table([times, *([at, at + 100] for at in range(len(found) - 1))], names=found)
    write(table, folder / FORMATS[kind], kind)
    schema = Schema((Column(found[0], "timestamp"), *(Column(name, "bigint") for name in found[1:])))
    driver = Driver(folder).set(schema=schema, time=found[0])
    frames = driver.frames(read.files(FORMATS[kind]))
    assert [frame.rows for frame in frames] == [1, 1]
    got = pa.concat_tables([driver.rows(frame.references) for frame in frames])
    assert got.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("kind", FORMATS)
def test_the_nastiest_stand_beside_each_other(kind, tmp_path):
    read_back(tmp_path, kind, list(NASTY))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_may_have_any_names(kind, tmp_path_factory):
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(names(), min_size=2, max_size=6, unique_by=folded))
    def prove(found):
        read_back(tmp_path_factory.mktemp("in"), kind, found)

    prove()


@settings(max_examples=60, deadline=None)
@given(st.lists(names(), min_size=1, max_size=6, unique_by=folded))
def test_a_record_may_have_any_names(found):
    """Of three senders, signs escaped or not."""
    schema = Schema(tuple(Column(name, "bigint") for name in found))
    rows = [{name: 10 * row + at for at, name in enumerate(found)} for row in range(3)]
    records = [Record(json.dumps(row, ensure_ascii=at % 2 == 0).encode(), where=str(at)) for at, row in enumerate(rows)]
    tables, bad = parse_records(records, Terms(schema, "s"), 0, first_only=False)
    assert bad == []
    assert [row for table in tables for row in table.to_pylist()] == rows
