"""What the oracle takes for the input of a frame: the source cut again, kept frames, without what was left out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.run.deployment import describe
from holdfast.engine.state_folder import StateFolder
from holdfast.faults.keeping import FrameFolder
from holdfast.faults.trial import kept_folders
from holdfast.frames.identity import END_US, FrameRecord, Kind
from holdfast.graph.model import Graph
from holdfast.graph.units import UnitInput, cut
from holdfast.oracle.inputs import Inputs

SECOND = 1_000_000
SCHEMA = "ts timestamp, v bigint"


def process(folder: Path) -> Graph:
    p = hf.StreamProcess("kiln", frame="1 second", time="ts")
    p.source("probes", hf.read.files(str(folder / "probes.parquet")), schema=SCHEMA)

    @p.operator(over="frame", inputs={"last": hf.feedback("hot", schema=SCHEMA)})
    def hot(probes, last):
        return probes

    p.sink("hot", hf.write.console())
    return p.graph()


def rows(*values: int) -> pa.Table:
    """v is the time in tenths of a second."""
    times = pa.array([value * SECOND // 10 for value in values], pa.timestamp("us", tz="UTC"))
    return pa.table({"ts": times, "v": pa.array(values, pa.int64())})


@pytest.fixture
def finished(tmp_path):
    """The folder of a run that has put so many frames into its sink."""

    def make(frames: int) -> Inputs:
        pq.write_table(rows(0, 5, 12, 13, 14, 31), tmp_path / "probes.parquet")
        graph = process(tmp_path)
        state = StateFolder(tmp_path / "state")
        state.root.mkdir()
        state.deploy({**describe(graph, list(cut(graph)), 0), "schemas": {"probes": SCHEMA, "hot": SCHEMA}})
        Exclusions(state.decisions("hot")).decide(
            2, {"probes": [[0, 1], [2, 3]]}, {}, {"operator": "hot", "on_error": "drop", "rows": 2}
        )
        sink = FrameFolder(tmp_path / "sinks" / "hot", True).open(None)
        sink.write(
            [
                (FrameRecord("hot", n, Kind.STABLE, 1, n * SECOND, 1, 0, str(n)), rows(100 * n))
                for n in range(1, frames + 1)
            ]
        )
        return Inputs(graph, state.root, kept_folders(graph, tmp_path), tmp_path / "work", 1)

    return make


def given(inputs: Inputs, stream: str, n: int, feedback: int = 0) -> list[int]:
    return inputs.port("hot", UnitInput(stream, feedback), n)["v"].to_pylist()


def test_a_source_is_cut_again_and_rows_that_were_left_out_stay_out(finished):
    inputs = finished(5)

    assert [given(inputs, "probes", n) for n in range(1, 6)] == [[0, 5], [13], [], [31], []]
    assert inputs.rows("probes", 2)["v"].to_pylist() == [12, 13, 14]


def test_a_feedback_port_has_the_kept_frame_before_and_none_before_the_first(finished):
    inputs = finished(5)

    assert [given(inputs, "hot", n, feedback=1) for n in (1, 2, 5)] == [[], [100], [400]]


def test_frames_end_with_the_clock_and_behind_the_input_for_good(finished):
    inputs = finished(5)
    times, behind = inputs.times(depth=0), inputs.times(depth=1)

    assert (inputs.last_data, inputs.goes_on) == (4, False)
    assert [times.boundary_us(n) for n in (1, 4, 5)] == [SECOND, 4 * SECOND, END_US]
    assert [behind.boundary_us(n) for n in (4, 5, 6)] == [4 * SECOND, 5 * SECOND, END_US]
    assert times.since_us(5) == 4 * SECOND


def test_a_run_that_stopped_before_its_input_did_is_known_as_one(finished):
    inputs = finished(2)

    assert (inputs.last_data, inputs.goes_on) == (None, True)
    assert inputs.times(depth=0).boundary_us(2) == 2 * SECOND
