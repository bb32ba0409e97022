"""Hosts are lost while a process runs: units come back from their backups, and the sinks hold what they would have."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

import holdfast as hf
from holdfast.errors import StateRefused
from holdfast.faults.plans import Fault
from holdfast.journals.incidents import incidents_of
from holdfast.records.kept import Kept
from holdfast.records.trace import trace_frame
from tests.spark import hosted

EVERY = hf.frames(4)
TWO = hf.backup(copies=2)


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


# warm and joined live on h1, rises on h2, counted on h3. Later faults strike where joined is: whoever is above it has
# come back by then, and nobody is ahead of the fault. h1 keeps its copies, however quickly the others get theirs again.


def test_hosts_are_lost_with_a_damaged_copy_and_during_another_recovery(spark, ideal, tmp_path, monkeypatch):
    """h3 holds a copy of what is being restored from it, and is where another unit lives. Copies carry a key."""
    monkeypatch.setenv("HOLDFAST_TEST_KEY", "a key that nobody can guess")
    folder = hosted.fresh(tmp_path / "one")
    faults = [
        Fault("damage copy", "rises", 1, "stored", at="h3"),
        Fault("lose host", "rises", 1, "stored", at="h2"),
        Fault("lose host", "joined", 17, "state committed", at="h2"),
        Fault("lose host", "rises", 14, "restoring", at="h3"),
    ]
    moments = []
    process = hosted.plant(
        folder, hf.uncoordinated(EVERY), backup=hf.backup(copies=2, key=hf.secret("HOLDFAST_TEST_KEY"))
    )
    hosted.run(folder, spark, process, *faults, watch=lambda run: moments.append(run.consistency()))
    assert hosted.content(folder) == ideal()
    manifests = [path.read_text() for path in folder.rglob("manifest.json")]
    assert manifests and all('"mac"' in each for each in manifests)
    said = " / ".join(hosted.said(folder))
    assert "rises: a copy of unit rises was passed over: h3" in said and "unit rises was put back to frame" in said
    assert_consistent(moments)


def test_two_hosts_are_lost_at_once_and_one_again_while_its_unit_is_put_back(spark, ideal, tmp_path):
    """What was put back goes with the folder: the restart that is under way must not start from what is left.

    joined keeps windows in Spark's own state, and goes with them.
    """
    folder = hosted.fresh(tmp_path / "one")
    faults = [
        *[Fault("lose host", "joined", 8, "renamed", at=host) for host in ("h2", "h3")],
        Fault("lose host", "joined", 13, "sealed, not renamed", at="h2"),
        Fault("lose host", "rises", 11, "restored", at="h2"),
    ]
    moments = []
    process = hosted.plant(folder, hf.ecoc(EVERY), backup=TWO, spark_state=True)
    process.place("h2", "rises", "joined")
    hosted.run(folder, spark, process, *faults, watch=lambda run: moments.append(run.consistency()))
    assert hosted.content(folder) == ideal(spark_state=True)
    assert_consistent(moments)
    lost = [incident.unit for incident in incidents_of(folder / "state") if incident.code == "HF-U034"]
    assert {*lost} == {"rises", "counted", "joined"}
    assert lost.count("rises") <= 3, "a loss is one death"


def test_state_is_damaged_and_units_die_while_checkpoints_are_under_way(spark, ideal, tmp_path):
    """What a dead attempt sent to a slow store arrives while the next one claims its epoch; what it committed it told nobody.

    A byte is turned round in every state file of counted, those of rises are deleted, and no worker has them in memory.
    Three deaths of a worker are those of its unit; the fourth is met by the next attempt.
    """
    folder = hosted.fresh(tmp_path / "one")
    faults = [
        Fault("slow store", "rises", 1, "shipping", 2_000, at="h3"),
        Fault("kill unit", "rises", 1, "shipping"),
        *[Fault(do, "counted", 9, "state committed") for do in ("damage state", "kill python worker", "kill unit")],
        *[Fault(do, "rises", 12, "state committed") for do in ("delete state", "kill python worker", "kill unit")],
        Fault("fail store", "joined", 1, "shipping", 1_000, at="h2"),
        Fault("kill unit", "warm", 6, "state committed"),
        *[Fault("kill python worker", "joined", 15, "at work")] * 4,
    ]
    moments = []
    process = hosted.plant(folder, hf.ecoc(EVERY, extended=True))
    hosted.run(folder, spark, process, *faults, watch=lambda run: moments.append(run.consistency()))
    assert hosted.content(folder) == ideal()
    assert_consistent(moments)
    met = {(incident.unit, incident.code) for incident in incidents_of(folder / "state")}
    assert met >= {("counted", "HF-U035"), ("rises", "HF-U035"), ("joined", "HF-U033")}


def test_sealed_frames_are_deleted_while_they_are_needed(spark, ideal, tmp_path):
    """By units that read them and by a sink: whoever made them makes them again.

    Then between two runs, in the second of which rises needs frames of warm again, as its host is gone too.
    """
    folder = hosted.fresh(tmp_path / "one")
    process = hosted.plant(folder, hf.ecoc(EVERY), backup=TWO)
    faults = [
        Fault("delete frames", "warm", 5, "renamed"),
        Fault("delete frames", "counted", 8, "renamed"),
        Fault("delete frames", "rises", 12, "committed"),
    ]
    moments = []
    hosted.run(folder, spark, process, *faults, watch=lambda run: moments.append(run.consistency()), until_frame=14)
    for path in (folder / "state" / "hosts").glob("*/streams/*/*.arrow"):
        path.unlink()
    shutil.rmtree(folder / "state" / "hosts" / "h2")
    hosted.run(folder, spark, process)
    assert hosted.content(folder) == ideal()
    assert_consistent(moments)
    assert "HF-U036" in {incident.code for incident in incidents_of(folder / "state")}
    assert [said for said in hosted.said(folder) if said.startswith("warm: put back")]


def test_bits_flip_between_two_runs_in_sealed_frames(spark, ideal, tmp_path):
    """Whoever made a damaged frame makes it again, and the sinks have the right rows."""
    folder = hosted.fresh(tmp_path / "one")
    process = hosted.plant(folder, hf.ecoc(EVERY), backup=TWO)
    hosted.run(folder, spark, process, until_frame=14)
    frames = sorted((folder / "state" / "hosts").glob("*/streams/*/*.arrow"))
    assert len(frames) > 3
    for path in frames:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    hosted.run(folder, spark, process)
    assert hosted.content(folder) == ideal()


def test_frames_that_cannot_be_made_again_are_asked_for_and_nothing_is_thrown_away(spark, ideal, tmp_path, caplog):
    """warm lost its frames, and h2 with the only copy of it is gone too; what h1 has of warm is all there is.

    At last every host is lost: no copy is left, the source has everything, and the sinks know what they have.
    """
    folder = hosted.fresh(tmp_path / "one")
    hosts = folder / "state" / "hosts"
    process = hosted.plant(folder, hf.ecoc(EVERY))
    hosted.run(folder, spark, process, until_frame=14)
    shutil.move(hosts / "h1" / "streams" / "warm", tmp_path / "warm")
    shutil.rmtree(hosts / "h2")
    with pytest.raises(StateRefused) as caught:
        process.run(state=folder / "state", spark=spark)
    assert caught.value.code == "HF-R017"
    shutil.rmtree(hosts / "h1" / "streams" / "warm")
    shutil.move(tmp_path / "warm", hosts / "h1" / "streams" / "warm")
    hosted.run(folder, spark, process, until_frame=17)
    shutil.rmtree(hosts)
    hosted.run(folder, spark, process)
    assert hosted.content(folder) == ideal()
    assert "unit rises begins again with its first frame" in caplog.text


def assert_consistent(moments) -> None:
    """At every moment; and what went with a host is brought again, so that in the end every edge would survive both its ends."""
    assert {(edge.stream, edge.consumer) for edge in moments[-1]} >= {("warm", "rises"), ("counted", "sink counted")}
    assert [edge for edges in moments for edge in edges if not edge.relaxed] == []
    assert [edge for edge in moments[-1] if edge.stored is False] == []


@pytest.mark.parametrize("kind", ["none", "checkpoint"])
def test_a_lossy_unit_goes_on_and_says_what_is_lost(kind, spark, ideal, tmp_path):
    """Lossless above and below; frames it never made again are LOST, all others are as they were."""
    folder = hosted.fresh(tmp_path / "one")
    process = hosted.plant(folder, hf.uncoordinated(EVERY))
    process.protect(hf.none if kind == "none" else hf.checkpoint(hf.frames(8)), "counted")
    hosted.run(folder, spark, process, Fault("lose host", "counted", 15, "state committed", at="h3"))
    kinds = hosted.kinds(folder, "counted.db")
    assert list(kinds) == list(range(1, hosted.FRAMES + 2))
    lost = {n for n, kind in kinds.items() if kind == "lost"}
    assert lost <= set(range(1, 16))
    found, expected = (
        {n: [row for row in rows["counted"] if row[3] == n] for n in kinds}
        for rows in (hosted.content(folder), ideal())
    )
    assert all(not found[n] for n in lost)
    # No element that was not lost is missing or twice; only what the state forgot differs.
    for n in kinds.keys() - lost:
        assert [row[:2] for row in found[n]] == [row[:2] for row in expected[n]]
    assert found != expected
    assert "HF-U034" in {incident.code for incident in incidents_of(folder / "state")}
    # The state of a keyed function never refills unless it is declared: all after the gap is marked, and what is made of it.
    marked, below = ({n for n, mark in hosted.marks(folder, file).items() if mark} for file in ("counted.db", "out.db"))
    assert {n for n in kinds.keys() - lost if found[n] != expected[n]} <= marked
    assert marked == set(range(min(marked), hosted.FRAMES + 2)) and marked <= below


def test_a_window_over_a_gap_is_marked_until_it_has_refilled(spark, tmp_path):
    """Rows before a gap came out after it as a right answer. The mark goes down the graph, to the ledgers and a function,
    is the same after a restart, and ends: the same for the ideal run's rows, which are right again from there on."""
    heard = {}

    def plant(folder, protection):
        made = hf.StreamProcess("plant", frame="1 second", time="ts", hosts=hosted.HOSTS)
        made.protect(hf.uncoordinated(hf.frames(4)))
        made.source("readings", hf.read.files(str(folder / "readings" / "*.parquet")),
                    schema="ts timestamp, zone int, celsius double")  # fmt: skip
        made.filter("warm", of="readings", where="celsius > 50", apart=True)
        made.aggregate("per_window", of="warm", by="zone", window="3 seconds", protect=protection,
                       emits={"ts": "window_end", "n": "count(*)"})  # fmt: skip
        made.map("named", of="per_window", select=["ts", "zone", "n"], apart=True)
        made.place("h3", "per_window")
        made.place("h1", "warm", "named")
        made.sink(
            "named", hf.write.sqlite(str(folder / "out.db"), "named"), promise=hf.loses(at_most=0.5, wrong_at_most=0.9)
        )
        made.sink("per_window", hf.write.parquet(str(folder / "windows")), promise=hf.loses(at_most=0.5))
        made.sink(
            "named", hf.write.callback(lambda table, n: heard.update({n: table.schema.metadata[b"mark"]})), name="heard"
        )
        return made

    folder, ideal = hosted.fresh(tmp_path / "one"), hosted.fresh(tmp_path / "ideal")
    hosted.run(ideal, spark, plant(ideal, hf.uncoordinated(hf.frames(4))))
    assert not any(hosted.marks(ideal, "out.db").values())
    process = plant(folder, hf.checkpoint(hf.frames(20)))
    hosted.run(folder, spark, process, Fault("lose host", "per_window", 7, "state committed", at="h3"), until_frame=8)
    before = hosted.marks(folder, "out.db")
    done = hosted.run(folder, spark, process)
    marks, kinds = hosted.marks(folder, "out.db"), hosted.kinds(folder, "out.db")
    assert before.items() <= marks.items()
    marked = {n for n, mark in marks.items() if mark == "tainted"}
    assert marked and max(marked) < 15 and {*kinds.values()} == {"stable"}, (marked, kinds)
    with sqlite3.connect(folder / "out.db") as one, sqlite3.connect(ideal / "out.db") as other:
        found, expected = (
            {
                n: each.execute("select ts, zone, n from named where _frame = ? order by 1, 2", (n,)).fetchall()
                for n in marks
            }
            for each in (one, other)
        )
    differs = {n for n in marks if found[n] != expected[n]}
    assert differs and differs <= marked
    assert {n for n, mark in heard.items() if mark == b"tainted"} == marked
    lines = [
        json.loads(line) for line in (folder / "windows" / "_holdfast" / "ledger.jsonl").read_text().splitlines()[1:]
    ]
    lost = {line[0] for line in lines if line[1] == "lost"}
    # Which frames are LOST, and for whom, depends on how far each consumer was; what is made over the gap does not.
    assert {*()} < {line[0] for line in lines if line[5] == "tainted"} <= marked
    sinks = {sink.name: sink for sink in done.status().sinks}
    assert sinks["named"].tainted == len(marked) and len(lost) <= sinks["per_window"].lost
    promises = {each.sink: each.state for each in done.status().promises}
    assert promises == {"named": "kept", "per_window": "BROKEN"}, (
        "wrong_at_most=0.9 allows it, wrong_at_most=0 does not"
    )
    found = trace_frame(Kept(folder / "state"), "named", min(marked))
    assert (found.mark, "LOST" in found.why or "lacks frame" in found.why) == ("tainted", True)


def test_a_protection_is_taken_up_and_laid_down_again(spark, ideal, tmp_path, caplog):
    """The state moves to the hosts and back, and between two runs a host is lost: no element is lost or doubled by it."""
    folder = hosted.fresh(tmp_path / "one")
    state = folder / "state"
    hosted.plant(folder, hf.none, hosts=None).run(state=state, spark=spark, until_frame=5)
    hosted.plant(folder, hf.ecoc(EVERY)).run(state=state, spark=spark, until_frame=11)
    assert any((state / "hosts").glob("*/backups/*/manifest.json"))
    shutil.rmtree(state / "hosts" / "h2")
    hosted.plant(folder, hf.ecoc(EVERY)).run(state=state, spark=spark, until_frame=15)
    assert "unit rises was put back to frame" in caplog.text
    hosted.plant(folder, hf.none, hosts=None).run(state=state, spark=spark)
    assert hosted.content(folder) == ideal()
