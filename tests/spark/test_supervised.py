"""Units that die, raise or hang in a real run: they come back or are given up, and the others go on.

The first column of the table in docs/howto/when-things-fail.md names these tests. What is
compared is the undisturbed run, frame by frame.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.engine.run.run import start_graph
from holdfast.errors import OperatorError, UnitError
from holdfast.journals.incidents import incidents_of
from holdfast.testing.runs import KeepingWriter
from tests.spark.processes import SCHEMA, readings
from tests.spark.test_scenarios import Seen

# Frames of `readings(1)` and the closing one.
FRAMES = 15


@dataclass(frozen=True)
class Trouble:
    """What the worker of an operator does at a row of this count, until the file says enough. Pickled to it."""

    file: str
    count: int
    do: str  # "kill" | "hang" | "refuse" | "raise"

    def __call__(self, counts):
        if (counts == self.count).any() and not Path(self.file).exists():
            if self.do == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.do == "hang":
                Path(self.file).touch()  # once
                signal.pause()
            if self.do == "refuse":
                raise ConnectionRefusedError(111, "Connection refused")
            raise ValueError(f"count {self.count}")
        return counts


def plant(
    folder: Path, trouble: Trouble | None, *, on_error: str = "stop", **settings
) -> tuple[hf.StreamProcess, dict[str, KeepingWriter]]:
    """`frail` and `below` it, `steady` beside them."""
    if not (folder / "a.parquet").exists():
        pq.write_table(readings(1), folder / "a.parquet")
    p = hf.StreamProcess("plant", frame="1 second", time="ts", restart=hf.restarts(**{"first": "50 ms", **settings}))
    p.source("a", hf.read.files(str(folder / "a.parquet")), schema=SCHEMA)

    @p.keyed(
        "zone", state="n bigint", emits="zone int, ts timestamp, count bigint, n bigint", apart=True, on_error=on_error
    )
    def frail(state, a):
        if trouble is not None:
            trouble(a["count"])
        a = a.merge(state, on="zone", how="left")
        a["n"] = a.n.fillna(0).astype("int64") + a.groupby("zone").cumcount() + 1
        after = a.groupby("zone", as_index=False).n.max()
        return after, a[["zone", "ts", "count", "n"]]

    @p.operator(over="frame", apart=True)
    def below(frail, a):
        return frail.join(a.select("ts", "celsius"), "ts")

    @p.operator(over="frame", apart=True)
    def steady(a):
        return a.groupBy("zone").agg(F.count("*").alias("n"))

    writers = {stream: KeepingWriter() for stream in ("frail", "below", "steady")}
    for stream, writer in writers.items():
        p.sink(stream, writer, promise=hf.lossless)
    return p, writers


def sums(writer: KeepingWriter) -> dict[int, str]:
    return {n: record.checksum for n, (record, _) in writer.kept.items()}


def units_of(status) -> dict:
    return {unit.name: unit for unit in status.units}


@pytest.fixture(scope="module")
def undisturbed(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    p, writers = plant(folder, None)
    with start_graph(p.graph(), state=folder / "state", spark=spark) as run:
        run.wait()
    found = {stream: sums(writer) for stream, writer in writers.items()}
    assert all(len(frames) == FRAMES for frames in found.values())
    return found


def count_in_frame(n: int) -> int:
    """A count that is in frame n and in no other."""
    table = readings(1)
    second = pc.divide(pc.subtract(table["ts"].cast(pa.int64()), 1_700_000_000_000_000), 1_000_000).to_numpy()
    counts = table["count"].to_numpy()
    return next(int(c) for c in counts[second == n - 1] if (counts == c).sum() == 1)


def test_a_worker_killed_again_and_again_comes_back_and_its_siblings_do_not_wait(spark, tmp_path, undisturbed):
    enough = tmp_path / "enough"
    # Longer than between two looks at the run: whether it restarts is then seen, and not by luck.
    p, writers = plant(
        tmp_path, Trouble(str(enough), count_in_frame(3), "kill"), tries=1000, first="2 seconds", longest="2 seconds"
    )
    seen, told = Seen(), []
    p._on_degraded = told.append
    with start_graph(p.graph(), state=tmp_path / "state", spark=spark, on_progress=seen) as run:
        status = seen.wait_for(
            lambda status: (
                (units := units_of(status))
                and units["frail"].state == "RESTARTING"
                and units["steady"].state == "DONE"
                and units["below"].why == "held back by frail (restarting)"
            )
        )
        enough.touch()
        run.wait()
    assert "Python worker of unit 'frail' died" in units_of(status)["frail"].why
    assert status.degraded.startswith("unit frail restarting")
    assert {each.state for each in status.promises} == {"kept"}
    assert run.status().state == "finished"
    assert units_of(run.status())["frail"].restarts >= 1
    assert {stream: sums(writer) for stream, writer in writers.items()} == undisturbed
    assert [each["degraded"] for each in told][:2] == [True, False]
    assert "HF-U033" in {incident.code for incident in incidents_of(tmp_path / "state")}


def test_after_its_tries_a_unit_is_given_up_and_the_next_run_takes_it_up(spark, tmp_path, undisturbed):
    enough = tmp_path / "enough"
    p, writers = plant(tmp_path, Trouble(str(enough), count_in_frame(3), "kill"), tries=1)
    run = start_graph(p.graph(), state=tmp_path / "state", spark=spark)
    with pytest.raises(UnitError) as caught:
        run.wait()
    assert (caught.value.code, caught.value.exit_code) == ("HF-U033", 5)
    units = units_of(run.status())
    assert units["frail"].state == "GIVEN_UP"
    assert units["below"].why == "held back by frail (given up)"
    assert sums(writers["steady"]) == undisturbed["steady"]
    assert sorted(writers["below"].kept) == [1, 2]
    enough.touch()
    with start_graph(p.graph(), state=tmp_path / "state", spark=spark) as run:
        run.wait()
    assert {stream: sums(writer) for stream, writer in writers.items()} == undisturbed


def test_a_unit_that_hangs_is_abandoned_and_started_anew(spark, tmp_path, undisturbed):
    p, writers = plant(tmp_path, Trouble(str(tmp_path / "hung"), count_in_frame(3), "hang"), stalled_after="12 seconds")
    with start_graph(p.graph(), state=tmp_path / "state", spark=spark) as run:
        run.wait()
    assert "HF-U032" in {incident.code for incident in incidents_of(tmp_path / "state")}
    assert {stream: sums(writer) for stream, writer in writers.items()} == undisturbed


def test_a_row_that_raises_stops_its_unit_and_no_other(spark, tmp_path, undisturbed):
    p, writers = plant(tmp_path, Trouble(str(tmp_path / "mended"), count_in_frame(8), "raise"))
    run = start_graph(p.graph(), state=tmp_path / "state", spark=spark)
    with pytest.raises(OperatorError) as caught:
        run.wait()
    assert (caught.value.code, caught.value.exit_code) == ("HF-O001", 5)
    assert f"count {count_in_frame(8)}" in str(caught.value)
    assert sums(writers["steady"]) == undisturbed["steady"]
    assert sorted(writers["frail"].kept) == list(range(1, 8))
    (tmp_path / "mended").touch()
    with start_graph(p.graph(), state=tmp_path / "state", spark=spark) as run:
        run.wait()
    assert {stream: sums(writer) for stream, writer in writers.items()} == undisturbed


@pytest.mark.parametrize("on_error", ["quarantine", "drop"])
def test_a_row_that_raises_is_found_and_left_out(spark, tmp_path, on_error):
    bad = count_in_frame(8)
    table = readings(1)
    (tmp_path / "without").mkdir()
    pq.write_table(table.filter(pc.not_equal(table["count"], bad)), tmp_path / "without" / "a.parquet")
    # The boundary of a source frame's checksum is its own; what the operators make of it is compared.
    p, expected = plant(tmp_path / "without", None)
    with start_graph(p.graph(), state=tmp_path / "without" / "state", spark=spark) as run:
        run.wait()
    p, writers = plant(tmp_path, Trouble(str(tmp_path / "never"), bad, "raise"), on_error=on_error)
    with start_graph(p.graph(), state=tmp_path / "state", spark=spark) as run:
        run.wait()
    status = run.status()
    assert status.state == "finished"
    assert sums(writers["frail"]) == sums(expected["frail"])
    verdict = {each.sink: (each.state, each.why) for each in status.promises}
    kept = tmp_path / "state" / "units" / "frail" / "quarantine" / "00000008-a.parquet"
    if on_error == "quarantine":
        assert pq.read_table(kept)["count"].to_pylist() == [bad]
        assert verdict["below"] == ("kept", "1 rows in quarantine")
    else:
        assert not kept.exists()
        assert verdict["below"] == ("BROKEN", "1 rows dropped by frail")
    assert verdict["steady"] == ("kept", "")


def test_rows_for_which_a_service_was_away_are_neither_blamed_nor_left_out(spark, tmp_path, undisturbed):
    """Before, "Connection refused" counted as the death of Spark's Java process, and any error as the rows' the second time."""
    back = tmp_path / "back"
    trouble = Trouble(str(back), count_in_frame(3), "refuse")
    p, writers = plant(tmp_path, trouble, on_error="quarantine", tries=1000, longest="50 ms")
    seen = Seen()
    with start_graph(p.graph(), state=tmp_path / "state", spark=spark, on_progress=seen) as run:
        seen.wait_for(lambda status: (units := units_of(status)) and units["frail"].restarts >= 3)
        back.touch()
        run.wait()
    assert {stream: sums(writer) for stream, writer in writers.items()} == undisturbed
    assert {(each.state, each.why) for each in run.status().promises} == {("kept", "")}
    assert {incident.code for incident in incidents_of(tmp_path / "state") if incident.unit == "frail"} == {"HF-O001"}


def test_an_error_that_comes_back_in_the_same_way_is_met_three_times_and_no_more(spark, tmp_path, undisturbed):
    """HF-U074. `check` cannot see it, since it calls the function without rows. The remedy: correct it, run again."""
    corrected = tmp_path / "corrected"
    pq.write_table(readings(1), tmp_path / "a.parquet")
    p = hf.StreamProcess("plant", frame="1 second", time="ts", restart=hf.restarts(first="50 ms"))
    p.source("a", hf.read.files(str(tmp_path / "a.parquet")), schema=SCHEMA)

    def counted(batches):
        for batch in batches:
            kind = pa.int64() if corrected.exists() else pa.string()
            yield pa.RecordBatch.from_pydict({"n": pa.array([batch.num_rows]).cast(kind)})

    @p.operator(over="frame", apart=True)
    def odd(a):
        return a.mapInArrow(counted, "n bigint")

    @p.operator(over="frame", apart=True)
    def steady(a):
        return a.groupBy("zone").agg(F.count("*").alias("n"))

    writers = {stream: KeepingWriter() for stream in ("odd", "steady")}
    for stream, writer in writers.items():
        p.sink(stream, writer, promise=hf.lossless)
    run = start_graph(p.graph(), state=tmp_path / "state", spark=spark)
    with pytest.raises(UnitError) as caught:
        run.wait()
    error = caught.value
    assert (error.code, error.exit_code) == ("HF-U074", 5)
    assert "3 times at frame 1" in error.what and str(error).count("UNSUPPORTED_CALL") == 1
    assert "run again: the unit goes on with this frame" in error.do
    met = [(each.what, each.code) for each in incidents_of(tmp_path / "state") if each.unit == "odd"]
    assert met[:3] == [("died", "HF-U031"), ("died", "HF-U031"), ("given up", "HF-U074")]
    assert "died" not in dict(met[3:])
    assert units_of(run.status())["odd"].restarts == 2
    assert sums(writers["steady"]) == undisturbed["steady"]
    corrected.touch()
    with start_graph(p.graph(), state=tmp_path / "state", spark=spark) as run:
        run.wait()
    assert sorted(writers["odd"].kept) == list(range(1, FRAMES + 1))
