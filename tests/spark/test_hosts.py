"""Hosts are lost while a process runs: units come back from their backups, and the sinks hold what they would have."""

from __future__ import annotations

import pytest

import holdfast as hf
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
    hosted.run(folder, spark, hosted.plant(folder, PROTECTIONS[kind]), faults)
    assert hosted.content(folder) == ideal()
