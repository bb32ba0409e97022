"""A verified run takes the end of a source log, with the original's numbers and parameters, and empty state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import holdfast as hf
from holdfast.engine.run.run import start_graph
from holdfast.engine.run.starting import start
from holdfast.faults.inputs import from_log, log_input
from holdfast.faults.keeping import output_of
from holdfast.faults.trial import redirected, sink_folder
from holdfast.journals.journal import Journal
from holdfast.oracle.recomputing import recompute

SIX = datetime(2026, 1, 5, 6, tzinfo=UTC)
ROWS = [{"ts": SIX + timedelta(milliseconds=500 * i), "zone": i % 3, "celsius": 60.0 + 3 * i} for i in range(20)]


def test_the_end_of_the_log_is_run_again_beside_the_original(tmp_path, monkeypatch, spark):
    monkeypatch.chdir(tmp_path)
    kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")
    kiln._base = str(tmp_path)
    kiln.param("limit", 70.0)
    kiln.source(
        "probes", hf.read.iterator(lambda: iter(ROWS)), schema="ts timestamp, zone int, celsius double", keep="1 hour"
    )

    @kiln.operator(over="frame")
    def hot(probes, *, limit):
        return probes.where(probes.celsius > limit)

    kiln.aggregate("seen", of="hot", by="zone", emits={"n": "count(*)"})
    kiln.sink("hot", hf.write.sqlite("kiln.db", "hot"))
    kiln.sink("seen", hf.write.sqlite("kiln.db", "seen"))
    with start(kiln, spark=spark) as run:
        run.wait(frame=2)
        run.set(limit=85.0)
        run.wait()
    log = log_input("log:last-4s", kiln.graph(), run.folder.root)
    log.take(tmp_path / "input")
    wanted = commits(run, "hot")

    outputs = []
    for name in ("ideal", "again"):
        folder = tmp_path / name
        graph, first = from_log(redirected(kiln.graph(), folder), tmp_path / "input", folder / "state")
        with start_graph(graph, state=folder / "state", until_frame=log.last, rate="fast", spark=spark) as twin:
            twin.wait()
        outputs.append({sink: output_of(sink, sink_folder(folder, sink)) for sink in ("hot", "seen")})

    hot, seen = recompute(graph, tmp_path / "again", spark, count=None, seed=0, first=first, until=log.last)

    assert (first, log.last) == (log.last - 3, 10)
    assert (hot.frames, seen.frames) == (
        tuple(range(first, log.last + 1)),
    ) * 2  # with the parameters of then, from empty state
    assert (hot.differs, seen.differs) == ((), ()) and hot.rows
    one, again = outputs
    assert {each.n: each.checksum for each in one["hot"].arrivals} == {n: wanted[n] for n in range(first, log.last + 1)}
    for sink in one:
        assert [(each.n, each.checksum) for each in one[sink].arrivals] == [
            (each.n, each.checksum) for each in again[sink].arrivals
        ]
    counted = sum(row[1] for each in one["seen"].arrivals[-1:] for row in each.read())
    assert 0 < counted <= sum(each.rows for each in one["hot"].arrivals)  # not what came before


def commits(run, stream: str) -> dict[int, str]:
    found = {}
    for unit in run.units():
        for record in Journal(run.folder.unit(unit.name), "commits").entries():
            if stream in record["outputs"]:
                found[record["n"]] = record["outputs"][stream]["checksum"]
    return found
