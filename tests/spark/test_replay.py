"""Frames that are run again come out as they came out, beside an original that is not touched."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.engine.run.replay import start_replay
from holdfast.engine.run.starting import start
from holdfast.journals.journal import Journal

SIX = datetime(2026, 1, 5, 6, tzinfo=UTC)
ROWS = [{"ts": SIX + timedelta(milliseconds=500 * i), "zone": i % 3, "celsius": 60.0 + 3 * i} for i in range(20)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("zone", pa.int32()), ("celsius", pa.float64())])
    pq.write_table(pa.Table.from_pylist(ROWS, schema), tmp_path / "probes.parquet")
    return tmp_path


def process(here, reader, *, stateful=False):
    kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")
    kiln._base = str(here)
    kiln.param("limit", 70.0)
    kiln.source("probes", reader, schema="ts timestamp, zone int, celsius double", keep="1 hour")

    @kiln.operator(over="frame")
    def hot(probes, *, limit):
        return probes.where(probes.celsius > limit)

    kiln.sink("hot", hf.write.sqlite("kiln.db", "hot"))
    if stateful:
        kiln.aggregate("seen", of="hot", by="zone", emits={"n": "count(*)"})
        kiln.sink("seen", hf.write.sqlite("kiln.db", "seen"))
    return kiln


def checksums(folder, stream, unit):
    return {
        entry["n"]: entry["outputs"][stream]["checksum"]
        for entry in Journal(folder / "units" / unit, "commits").entries()
    }


def rows(here, table):
    with sqlite3.connect(here / "kiln.db") as connection:
        return connection.execute(f"select * from {table} order by _frame, _i").fetchall()


def test_a_part_of_a_file_is_replayed_into_another_table(here, spark):
    kiln = process(here, hf.read.files("probes.parquet"))
    with start(kiln, spark=spark) as run:
        run.wait(frame=3)
        change = run.set(limit=80.0)
        run.wait()
    original = run.folder.root
    before = {path: path.read_bytes() for path in original.rglob("*") if path.is_file()}

    with start_replay(kiln, into="again", first=4, until=7, spark=spark) as replay:
        replay.wait()

    wanted = checksums(original, "hot", "hot")
    assert checksums(replay.folder.root, "hot", "hot") == {n: wanted[n] for n in range(4, 8)}
    assert rows(here, "again") == [row for row in rows(here, "hot") if 4 <= row[-2] <= 7]
    assert rows(here, "again"), f"limit changed at frame {change.frame}"
    assert {path: path.read_bytes() for path in original.rglob("*") if path.is_file()} == before


def test_logged_elements_are_replayed_with_state_from_the_first_frame(here, spark):
    kiln = process(here, hf.read.iterator(lambda: iter(ROWS)), stateful=True)
    with start(kiln, spark=spark) as run:
        run.wait()

    with start_replay(kiln, into="out/", spark=spark) as replay:
        replay.wait()

    [unit] = [unit.name for unit in replay.units()]
    wanted, found = (checksums(each.folder.root, "seen", unit) for each in (run, replay))
    # The original knew that its input had ended; of a replay nobody knows, so no closing frame follows.
    assert found == {n: wanted[n] for n in range(1, 11)}
    parts = [pq.read_table(path) for path in sorted((here / "out" / "seen").glob("*.parquet"))]
    assert sum(part.num_rows for part in parts) == len([row for row in rows(here, "seen") if row[-2] <= 10])
    assert json.loads((replay.folder.root / "replay.json").read_text())["first"] == 1
