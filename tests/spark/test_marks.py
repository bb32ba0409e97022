"""Rows that come too late for their window, and a frame that is made again: told, set aside or refused, and the way on."""

from __future__ import annotations

import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.errors import HoldfastError
from holdfast.journals.incidents import incidents_of
from holdfast.records.kept import Kept
from holdfast.records.remaking import remake_frame
from holdfast.records.trace import trace_frame

SECOND = 1_000_000


def readings(folder, seconds):
    folder.mkdir(parents=True)
    times = [1_700_000_000 * SECOND + round(second * SECOND) for second in seconds]
    table = pa.table(
        {"ts": pa.array(times, pa.timestamp("us", "UTC")), "zone": pa.array([1] * len(times), pa.int32()),
         "celsius": pa.array(list(seconds), pa.float64())}
    )  # fmt: skip
    pq.write_table(table, folder / "0.parquet")


def windows(folder, **declared):
    made = hf.StreamProcess("late", frame="1 second", time="ts", restart=hf.restarts(first="1 ms", longest="1 ms"))
    made.source("probes", hf.read.files(str(folder / "in" / "*.parquet")), schema="ts timestamp, zone int, celsius double",
                late="admit")  # fmt: skip
    made.aggregate(
        "per_window",
        of="probes",
        by="zone",
        window="2 seconds",
        emits={"ts": "window_end", "n": "count(*)"},
        **declared,
    )
    made.sink("per_window", hf.write.sqlite(str(folder / "out.db"), "per_window"), promise=hf.lossless)
    return made


def counts(folder):
    with sqlite3.connect(folder / "out.db") as connection:
        return [n for (n,) in connection.execute("select n from per_window order by _frame, ts")]


def test_rows_too_late_for_their_window_are_told_and_break_lossless(spark, tmp_path):
    """They were counted in the commit records, and nobody read them: lossless stayed kept."""
    readings(tmp_path / "in", [0.1, 0.2, 2.5, 4.5, 0.3, 0.4, 5.5, 6.5])  # two rows of second 0 come with second 4
    done = windows(tmp_path).run(state=tmp_path / "state", spark=spark)
    status = done.status()
    assert (counts(tmp_path), [unit.too_late for unit in status.units]) == ([2, 1, 2, 1], [2])
    [promise] = status.promises
    assert (promise.state, promise.why) == ("BROKEN", "2 rows came too late for per_window")
    kept = Kept(tmp_path / "state")
    late = {n: trace_frame(kept, "per_window", n).counts.get("per_window.late_rows", 0) for n in range(1, 8)}
    assert sum(late.values()) == 2
    # It is not forgotten with the run that counted it.
    [again] = windows(tmp_path).run(state=tmp_path / "state", spark=spark).status().promises
    assert (again.state, again.why) == (promise.state, promise.why)


def test_rows_too_late_for_their_window_fail_and_then_go_to_quarantine(spark, tmp_path):
    """too_late="fail" stops at the frame; the remedy its error names lets it go on, and the rows are set aside."""
    readings(tmp_path / "in", [0.1, 0.2, 2.5, 4.5, 0.3, 0.4, 5.5, 6.5])
    with pytest.raises(HoldfastError) as caught:
        windows(tmp_path, too_late="fail").run(state=tmp_path / "state", spark=spark)
    assert "HF-U090" in str(caught.value) and "too_late='quarantine'" in str(caught.value)
    done = windows(tmp_path, too_late="quarantine").run(state=tmp_path / "state", spark=spark, keep=["per_window"])
    assert counts(tmp_path) == [2, 1, 2, 1]
    assert [(each.state, each.why) for each in done.status().promises] == [("kept", "2 rows in quarantine")]
    [file] = (tmp_path / "state" / "units" / "per_window" / "quarantine").glob("*.parquet")
    assert pq.read_table(file)["celsius"].to_pylist() == [0.3, 0.4]


def test_a_frame_that_a_sink_refuses_is_made_again_after_the_operator_was_fixed(spark, tmp_path):
    """HF-K008 says "filter or fill before the sink": the frame was sealed, and no run ever made it again.

    The filter is two units above the sink, with state between them: both go back, and every other row is as it was.
    """
    folder = tmp_path / "in"
    folder.mkdir()
    seconds = [n + at / 10 for n in range(12) for at in (1, 2, 3)]
    table = pa.table(
        {"ts": pa.array([1_700_000_000 * SECOND + round(second * SECOND) for second in seconds], pa.timestamp("us", "UTC")),
         "zone": pa.array([None if second == 4.2 else at % 2 for at, second in enumerate(seconds)], pa.int32())}
    )  # fmt: skip
    pq.write_table(table, folder / "0.parquet")

    def process(where):
        made = hf.StreamProcess("fixed", frame="1 second", time="ts")
        made.source("probes", hf.read.files(str(folder / "*.parquet")), schema="ts timestamp, zone int")
        made.filter("clean", of="probes", where=where, apart=True)
        made.aggregate("counted", of="clean", by="zone", emits={"ts": "max(ts)", "n": "count(*)"})
        made.sink("counted", hf.write.sqlite(str(tmp_path / "out.db"), "counted", keys=["zone"]), promise=hf.lossless)
        return made

    def refused(where):
        with pytest.raises(HoldfastError) as caught:
            process(where).run(state=tmp_path / "state", spark=spark)
        return caught.value.code

    assert refused("true") == "HF-K008"
    assert refused("zone is not null") == "HF-K008", "the frame is sealed: the new code alone does not help"
    old = trace_frame(Kept(tmp_path / "state"), "clean", 5).checksum
    found = remake_frame(tmp_path / "state", "clean", 5, who="ann")
    assert (found.units, found.checksum) == (("clean", "counted"), old)
    done = process("zone is not null").run(state=tmp_path / "state", spark=spark)
    assert [promise.state for promise in done.status().promises] == ["kept"]
    with sqlite3.connect(tmp_path / "out.db") as connection:
        assert dict(connection.execute("select zone, n from counted")) == {0: 18, 1: 17}
    said = [
        each.what
        for each in incidents_of(tmp_path / "state")
        if (each.frame == 5 and "remake" in each.what) or "made again" in each.what
    ]
    assert len(said) == 2 and f"its checksum was {old} and is " in said[1] and "is the same" not in said[1]
    with pytest.raises(HoldfastError) as caught:
        remake_frame(tmp_path / "state", "clean", 5, who="ann")
    assert caught.value.code == "HF-R071"
