"""Hosts are lost while a process runs: units come back from their backups, and the sinks hold what they would have."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.records.incidents import incidents_of
from tests.spark import hosted

EVERY = hf.frames(5)
PROTECTIONS = {
    "uncoordinated": hf.uncoordinated(EVERY),
    "ecoc": hf.ecoc(EVERY),
    "extended": hf.ecoc(EVERY, extended=True),
}


@pytest.fixture(scope="session")
def ideal(spark, tmp_path_factory):
    made = {}

    def of(spark_state: bool = False):
        if spark_state not in made:
            folder = hosted.fresh(tmp_path_factory.mktemp("ideal"))
            hosted.run(folder, spark, hosted.plant(folder, hf.none, hosts=None, spark_state=spark_state))
            made[spark_state] = hosted.content(folder)
        return made[spark_state]

    return of


@pytest.mark.parametrize("kind", PROTECTIONS)
def test_a_host_is_lost_and_nothing_else(kind, spark, ideal, tmp_path):
    folder = hosted.fresh(tmp_path / "one")
    faults = [("state committed", 17, "counted", "h1"), ("sealed, not renamed", 31, "rises", "h2")]
    edges = []
    hosted.run(folder, spark, hosted.plant(folder, PROTECTIONS[kind]), faults, watch=lambda run: edges.extend(run.consistency()))
    assert hosted.content(folder) == ideal()
    assert {(edge.stream, edge.consumer) for edge in edges} >= {("warm", "rises"), ("counted", "sink counted")}
    assert [edge for edge in edges if not edge.relaxed] == []
    # A copy that went with its host is brought again: at the end every edge would survive both its hosts.
    assert [edge for edge in edges[-6:] if edge.stored is False] == []


@pytest.mark.parametrize("kind", ["none", "checkpoint"])
def test_a_lossy_unit_goes_on_and_says_what_is_lost(kind, spark, ideal, tmp_path):
    """Lossless above and below; frames it never made again are LOST, all others are as they were."""
    folder = hosted.fresh(tmp_path / "one")
    process = hosted.plant(folder, hf.uncoordinated(EVERY))
    process.protect(hf.none if kind == "none" else hf.checkpoint(EVERY), "counted")
    hosted.run(folder, spark, process, [("state committed", 17, "counted", "h3")])
    kinds = hosted.kinds(folder, "counted.db")
    assert list(kinds) == list(range(1, hosted.FRAMES + 2))
    lost = {n for n, kind in kinds.items() if kind == "lost"}
    assert lost <= set(range(1, 18))
    found, expected = (
        {n: [row for row in rows["counted"] if row[3] == n] for n in kinds} for rows in (hosted.content(folder), ideal())
    )
    assert all(not found[n] for n in lost)
    # No element that was not lost is missing or twice; only what the state forgot differs.
    for n in kinds.keys() - lost:
        assert [row[:2] for row in found[n]] == [row[:2] for row in expected[n]]
    assert found != expected
    assert "HF-U034" in {incident.code for incident in incidents_of(folder / "state")}


def test_a_protection_is_taken_up_and_laid_down_again(spark, ideal, tmp_path):
    """The state moves to the hosts and back: no element is lost or doubled by it."""
    folder = hosted.fresh(tmp_path / "one")
    state = folder / "state"
    hosted.plant(folder, hf.none, hosts=None).run(state=state, spark=spark, until_frame=12)
    hosted.plant(folder, hf.ecoc(EVERY)).run(state=state, spark=spark, until_frame=25)
    assert any((state / "hosts").glob("*/backups/*/manifest.json"))
    hosted.plant(folder, hf.none, hosts=None).run(state=state, spark=spark)
    assert hosted.content(folder) == ideal()
