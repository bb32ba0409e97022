"""Backups in two phases beside plain ones: hosts are lost, and the sinks hold what they would have."""

from __future__ import annotations

from collections import defaultdict

import holdfast as hf
from tests.spark import hosted


def test_two_phases_beside_plain_backups(spark, tmp_path):
    """Both kinds of neighbour on one edge: warm waits for a plain consumer, joined is asked by a plain producer."""
    folder = hosted.fresh(tmp_path / "ideal")
    hosted.run(folder, spark, hosted.plant(folder, hf.none, hosts=None))
    ideal = hosted.content(folder)

    folder = hosted.fresh(tmp_path / "mixed")
    process = hosted.plant(folder, hf.ecoc(hf.frames(5), two_phase=True))
    process.protect(hf.uncoordinated(hf.frames(4)), "counted")
    stored = defaultdict(set)

    def watch(run) -> None:
        for edge in run.consistency():
            stored[edge.stream, edge.consumer].add(edge.stored)
        for unit in run.status().units:
            seen[unit.name].add(unit.stored)

    seen = defaultdict(set)
    faults = [("state committed", 17, "counted", "h1"), ("sealed, not renamed", 31, "rises", "h2")]
    hosted.run(folder, spark, process, faults, watch=watch)
    assert hosted.content(folder) == ideal
    assert all(False not in said for said in stored.values()), stored
    # Neighbours have the same frame: what warm began, rises and joined stored too.
    assert len((seen["warm"] & seen["rises"] & seen["joined"]) - {0, None}) >= 1, seen
