"""Where a state folder and a table meet: whole runs, looked at as their user would."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.engine.run.adopt_table import adopt_table
from holdfast.errors import SinkError
from holdfast.records.kept import Kept
from holdfast.records.quarantine import set_aside

START = datetime(2026, 1, 1, tzinfo=UTC)


def write_rows(folder, seconds, zones=3):
    folder.mkdir(exist_ok=True)
    rows = [(START + timedelta(seconds=s), z, 70.0 + s) for s in seconds for z in range(zones)]
    table = pa.table(dict(zip(("ts", "zone", "celsius"), map(list, zip(*rows, strict=True)), strict=True)))
    table = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))
    pq.write_table(table.set_column(1, "zone", table["zone"].cast(pa.int32())), folder / "0.parquet")


def process(folder, **options):
    kiln = hf.StreamProcess("kiln", frame="1 second", time="ts", state=str(folder / "state"))
    kiln.source(
        "probes", hf.read.files(str(folder / "in" / "*.parquet")), schema="ts timestamp, zone int, celsius double"
    )
    kiln.filter("warm", of="probes", where="celsius > 60")
    kiln.sink("warm", hf.write.sqlite(str(folder / "warm.db"), "warm", **options))
    return kiln


def asked(folder, sql):
    with closing(sqlite3.connect(folder / "warm.db", isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


def test_a_state_folder_made_anew_is_refused_until_the_table_is_adopted(spark, tmp_path):
    """Start 1 said HF-K003; start 2 said finished, exit 0, and wrote none of its rows."""
    write_rows(tmp_path / "in", range(4))
    process(tmp_path).run(spark=spark)
    assert asked(tmp_path, "select count(*) from warm") == [(12,)]
    # As after 20,000 frames: those before are older than the ledger reaches.
    asked(tmp_path, "update _holdfast_epoch set frame = 20000")
    asked(tmp_path, "update _holdfast_ledger set frame = frame + 19900")
    asked(tmp_path, "update warm set _frame = _frame + 19900")
    shutil.rmtree(tmp_path / "state")
    write_rows(tmp_path / "in", range(100, 105))
    for _ in range(2):
        with pytest.raises(SinkError) as caught:
            process(tmp_path).run(spark=spark)
        assert caught.value.code == "HF-K030"
        assert asked(tmp_path, "select count(*) from warm") == [(12,)]

    taken = adopt_table(process(tmp_path), "warm")

    assert (taken.last, taken.written) == (20_000, 0)
    for _ in range(2):  # and a second time, when all of it is there
        process(tmp_path).run(spark=spark)
    assert asked(
        tmp_path, "select count(*), min(celsius), max(celsius), min(_frame) from warm where _frame > 20000"
    ) == [(15, 170.0, 174.0, 20_001)]
    assert asked(tmp_path, "select count(*) from warm") == [(27,)]


def test_rows_deleted_by_hand_are_told_and_can_be_accepted(spark, tmp_path):
    write_rows(tmp_path / "in", range(6))
    process(tmp_path).run(spark=spark, until_frame=4)
    asked(tmp_path, "delete from warm where _frame <= 2")
    for _ in range(2):
        with pytest.raises(SinkError) as caught:
            process(tmp_path).run(spark=spark)
        assert caught.value.code == "HF-K034" and "6 rows fewer" in caught.value.what
    assert adopt_table(process(tmp_path), "warm").accepted == (
        "frame 1 has 0 rows, 3 were written",
        "frame 2 has 0 rows, 3 were written",
    )
    process(tmp_path).run(spark=spark)
    assert asked(tmp_path, "select _frame, count(*) from warm group by 1") == [(n, 3) for n in (3, 4, 5, 6)]


def test_a_sink_that_refuses_rows_sets_them_aside_and_goes_on(spark, tmp_path):
    """A null key in a sealed frame stopped the process for ever; filtering it in the operator did not help."""
    write_rows(tmp_path / "in", range(5))
    table = pq.read_table(tmp_path / "in" / "0.parquet")
    zones = [None if row in (4, 7) else row % 3 for row in range(15)]
    pq.write_table(table.set_column(1, "zone", pa.array(zones, pa.int32())), tmp_path / "in" / "0.parquet")

    def keyed(on_error):
        kiln = hf.StreamProcess("kiln", frame="1 second", time="ts", state=str(tmp_path / "state"))
        kiln.source(
            "probes", hf.read.files(str(tmp_path / "in" / "*.parquet")), schema="ts timestamp, zone int, celsius double"
        )
        kiln.filter("warm", of="probes", where="celsius > 60")
        kiln.sink(
            "warm",
            hf.write.sqlite(str(tmp_path / "warm.db"), "warm", ["zone", "ts"]),
            promise=hf.lossless,
            on_error=on_error,
        )
        return kiln

    with pytest.raises(SinkError) as caught:
        keyed("fail").run(spark=spark)
    assert caught.value.code == "HF-K008" and "on_error='quarantine'" in caught.value.do
    with keyed("quarantine").start(spark=spark) as run:
        run.wait()
        [promise] = run.status().promises
    assert (promise.state, promise.why) == ("kept", "2 rows in quarantine")
    assert asked(tmp_path, "select count(*) from warm") == [(13,)]
    assert asked(tmp_path, "select sum(rows), sum(left_out) from _holdfast_ledger") == [(15, 2)]
    items = [each for each in set_aside(Kept(tmp_path / "state")) if each.kind == "refused"]
    assert [(each.of, each.rows) for each in items] == [("warm", 1), ("warm", 1)]
    assert "key 'zone' is null" in items[0].why
    with pytest.raises(hf.HoldfastError) as caught:
        keyed("drop").run(spark=spark)
    assert caught.value.code == "HF-K035"
