"""The pipeline of the ward on Spark finds the beats that the algorithm finds on the bare samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.apps.telemonitoring import records, scoring
from tests.apps.whole import beats_us

RECORD = Path(__file__).resolve().parents[2] / "examples" / "records" / "100"


@pytest.mark.parametrize("frame, frames", [("10s", 12), ("1s", 120)])
def test_beats_do_not_depend_on_the_frame(tmp_path, spark, frame, frames):
    result = scoring.score_qrs(RECORD, tmp_path / "work", lead="V5", frame=frame, minutes=2, spark=spark)

    assert scoring.found_us(tmp_path / "work").tolist() == beats_us(records.read(RECORD, "V5"), minutes=2)
    assert (result["sensitivity"], result["precision"]) == (1.0, pytest.approx(1.0, abs=0.01))
    assert result["frames"] >= frames
    assert (result["frame_seconds"], result["restarts"]) == (float(frame[:-1]), 0)
