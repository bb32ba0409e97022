"""Backups in two phases beside plain ones: hosts are lost, and the sinks hold what they would have."""

from __future__ import annotations

import holdfast as hf
from holdfast.faults.plans import Fault
from tests.spark import hosted


def test_two_phases_beside_plain_backups(spark, tmp_path):
    """Both kinds of neighbour on one edge: warm waits for a plain consumer, joined is asked by a plain producer."""
    folder = hosted.fresh(tmp_path / "ideal")
    hosted.run(folder, spark, hosted.plant(folder, hf.none, hosts=None))
    ideal = hosted.content(folder)

    folder = hosted.fresh(tmp_path / "mixed")
    process = hosted.plant(folder, hf.ecoc(hf.frames(5), two_phase=True))
    process.protect(hf.uncoordinated(hf.frames(4)), "counted")
    edges = []
    faults = [
        Fault("lose host", "counted", 8, "state committed", at="h1"),
        Fault("lose host", "rises", 16, "sealed, not renamed", at="h2"),
    ]
    hosted.run(folder, spark, process, *faults, watch=lambda run: edges.extend(run.consistency()))
    assert hosted.content(folder) == ideal
    assert [edge for edge in edges if not edge.relaxed] == []
    # A copy that went with its host was brought again, and newer ones came: no loss of two hosts would show.
    assert [edge for edge in edges[-6:] if edge.stored is False] == []
