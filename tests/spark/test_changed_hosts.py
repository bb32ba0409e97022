"""A process on hosts is changed while one of them is lost: nobody gets a frame otherwise than it was, and no row is lost."""

from __future__ import annotations

import shutil
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import StateRefused
from tests.spark import hosted

SIX = datetime(2026, 1, 5, 6, tzinfo=UTC)


def plant(folder, hotter: float = 0.0, counts: str = "sum(1)", told=lambda table, frame: None) -> hf.StreamProcess:
    """A function is told what is warm; a table has how many readings each zone has had."""
    made = hf.StreamProcess("plant", frame="1 second", time="ts", hosts=("h1", "h2"))
    made.protect(hf.ecoc(hf.frames(5)))
    made.param("limit", 50.0)
    made.source(
        "readings",
        hf.read.files(str(folder / "readings" / "*.parquet")),
        schema="ts timestamp, zone int, celsius double",
    )

    @made.operator(over="frame", apart=True)
    def warm(readings, *, limit):
        return readings.where(F.col("celsius") > limit + hotter)

    made.aggregate("seen", of="readings", by="zone", emits={"n": counts})
    made.place("h1", "warm", "seen")
    made.sink("warm", hf.write.callback(told))
    made.sink("seen", hf.write.sqlite(str(folder / "seen.db"), "seen"))
    return made


def counted(folder, frame: int) -> dict[int, int]:
    with sqlite3.connect(folder / "seen.db") as connection:
        return dict(connection.execute("select zone, n from seen where _frame = ?", [frame]).fetchall())


def test_what_is_made_again_is_made_as_it_was_whatever_was_changed(spark, tmp_path):
    folder, told = hosted.fresh(tmp_path / "one"), {}
    state = folder / "state"

    def tell(table, frame):
        assert told.setdefault(frame, table.num_rows) == table.num_rows, f"frame {frame} came with other rows"

    plant(folder, told=tell).run(state=state, spark=spark, until=8)
    shutil.rmtree(state / "hosts" / "h1")
    with pytest.raises(StateRefused, match="frames 6 to 8 of unit 'warm' have to be made again") as refused:
        plant(folder, 15.0, told=tell).run(state=state, spark=spark, until=12)
    assert refused.value.code == "HF-R051" and "holdfast run FILE --until-frame 8" in refused.value.do

    # The remedy; and a parameter that is set meanwhile holds for nothing that was seen.
    with plant(folder, told=tell).start(state=state, spark=spark, until=8) as run:
        assert run.set(limit=60.0).frame == 9
        run.wait()
    plant(folder, 15.0, told=tell).run(state=state, spark=spark, until=12)
    assert sorted(told) == list(range(1, 13))

    # Begun anew with its host lost: after the last frame that anybody has, with empty state.
    shutil.rmtree(state / "hosts" / "h1")
    before = counted(folder, 12)
    plant(folder, 15.0, "sum(100)", told=tell).run(state=state, spark=spark, until=14, fresh=["seen"])
    assert counted(folder, 12) == before
    assert all(n % 100 == 0 and n < 100 * before[zone] for zone, n in counted(folder, 14).items())


def test_a_live_process_is_protected_later_and_outlives_its_backups(spark, tmp_path):
    rows = [{"ts": SIX + timedelta(milliseconds=500 * i), "zone": i % 3} for i in range(600)]

    def process(**hosts):
        made = hf.StreamProcess("live", frame="1 second", time="ts", **hosts)
        if hosts:
            made.protect(hf.ecoc(hf.frames(5)))
        made.source("probes", hf.read.iterator(lambda: iter(rows)), schema="ts timestamp, zone int")
        made.aggregate("seen", of="probes", by="zone", emits={"n": "count(*)"})
        made.sink("seen", hf.write.sqlite(str(tmp_path / "seen.db"), "seen"))
        return made

    hosts = {"hosts": ("h1",), "backup": hf.backup(str(tmp_path / "store"))}
    process().run(state=tmp_path / "state", spark=spark, until=270)
    process(**hosts).run(state=tmp_path / "state", spark=spark, until=275)
    shutil.rmtree(tmp_path / "store")
    process(**hosts).run(state=tmp_path / "state", spark=spark)
    assert {**counted(tmp_path, 299), **counted(tmp_path, 300)} == {0: 200, 1: 200, 2: 200}


@pytest.mark.parametrize("hosts", [None, ("h1", "h2")], ids=["", "on hosts"])
def test_a_live_source_is_added_and_no_row_of_it_is_lost(spark, tmp_path, hosts):
    """Its rows begin before the frame at which the process stands; they are late, and come."""
    rows = {
        name: [{"ts": SIX + timedelta(milliseconds=500 * i), "zone": zone} for i in range(40)]
        for name, zone in (("one", 1), ("two", 2))
    }

    def process(*names):
        made = hf.StreamProcess("live", frame="1 second", time="ts", hosts=hosts)
        if hosts:
            made.protect(hf.ecoc(hf.frames(5)))
        for name in names:
            made.source(name, hf.read.iterator(lambda name=name: iter(rows[name])), schema="ts timestamp, zone int")
        if len(names) == 1:

            @made.operator(over="frame")
            def both(one):
                return one.select("zone")
        else:

            @made.operator(over="frame")
            def both(one, two):
                return one.unionByName(two).select("zone")

        made.sink("both", hf.write.sqlite(str(tmp_path / "both.db"), "both"))
        return made

    process("one").run(state=tmp_path / "state", spark=spark, until=8)
    process("one", "two").run(state=tmp_path / "state", spark=spark)
    with sqlite3.connect(tmp_path / "both.db") as connection:
        found = connection.execute("select zone, count(*), min(_frame) from both group by 1 order by 1").fetchall()
    assert found == [(1, 40, 1), (2, 40, 9)]
