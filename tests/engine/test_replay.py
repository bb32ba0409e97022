"""What a replay will run, decided without running it; the run itself is in tests/spark/test_replay.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.flow.parameters import Config
from holdfast.engine.run.replay import KeptReader, planned
from holdfast.errors import StateRefused, UsageError
from holdfast.graph.model import Param
from holdfast.journals.journal import Journal
from holdfast.records.kept import Kept
from holdfast.sources.reader import SourceContext
from tests.records.conftest import SCHEMA, Folder

DDL = "ts timestamp, zone int, celsius double"


@pytest.fixture
def original(tmp_path):
    folder = Folder(tmp_path / ".holdfast" / "kiln", tmp_path)
    folder.run_unit(folder.seal_source())
    (folder.root / "config").mkdir()
    (folder.root / "config" / "changes.000000000001.jsonl").write_text(
        '{"n": 1, "frame": 1, "name": "limit", "value": 90.0}\n'
    )
    return folder


def kiln(*, reader=None, stateful=False, feedback=False, sinks=None):
    process = hf.StreamProcess("kiln", frame="1 second", time="ts")
    process.source("probes", reader or hf.read.files("probes.parquet"), schema=DDL)
    if feedback:
        process.operator(inputs={"last": hf.feedback("hot", schema=DDL)})(hot)
    else:
        process.filter("hot", of="probes", where="celsius > 80")
    if stateful:
        process.aggregate("seen", of="hot", by="zone", emits={"n": "count(*)"})
        process.sink("seen", hf.write.sqlite("kiln.db", "seen"))
    for writer in sinks or [hf.write.sqlite("kiln.db", "hot")]:
        process.sink("hot", writer, name=f"hot_{type(writer).__name__.lower()}" if sinks else None)
    return process.graph()


def hot(probes, last):
    return probes


def live():
    return hf.read.iterator(list, bounded=False)


def test_frames_keep_their_numbers_and_begin_where_asked(original):
    replay = planned(kiln(), Kept(original.root), into="again", first=2, until="2026-01-05T06:00:02.5Z")

    deployment = json.loads((replay.folder / "deployment.json").read_text())
    assert (replay.first, replay.until) == (2, 3)
    assert deployment["t0_us"] == original.clock.t0_us
    assert set(deployment["start"].values()) == {1}
    assert replay.folder == original.root.with_name("kiln.replay-again")
    assert (replay.folder / "config" / "changes.000000000001.jsonl").exists()


def test_nothing_of_the_original_is_touched(original):
    before = {path: path.stat().st_mtime_ns for path in original.root.rglob("*")}

    planned(kiln(reader=live()), Kept(original.root), into="again", first=1, until=None)

    assert {path: path.stat().st_mtime_ns for path in original.root.rglob("*")} == before


@pytest.mark.parametrize(("word", "shape"), [("state", {"stateful": True}), ("feedback", {"feedback": True})])
def test_what_needs_the_past_begins_with_it(original, word, shape):
    graph = kiln(**shape)

    with pytest.raises(StateRefused, match="HF-R009") as caught:
        planned(graph, Kept(original.root), into="again", first=2, until=None)
    assert word in str(caught.value)
    assert caught.value.do == "replay from the beginning: --from-frame 1"
    assert planned(graph, Kept(original.root), into="again", first=1, until=None).first == 1


def test_tables_change_their_name_and_callbacks_are_left_out(original):
    sinks = [hf.write.sqlite("kiln.db", "hot", keys=["zone"]), hf.write.callback(lambda table, frame: None)]
    replay = planned(kiln(sinks=sinks), Kept(original.root), into="again", first=1, until=None)

    [sink] = replay.graph.sinks
    assert (sink.writer.table, sink.writer.keys, sink.writer.path) == ("again", ("zone",), Path("kiln.db"))
    assert replay.left_out == ("hot_callbackwriter",)
    assert replay.graph.name != "kiln"  # the ledger of the original is under its own name


def test_several_tables_get_several_names_and_a_folder_takes_all(original, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    replay = planned(kiln(stateful=True), Kept(original.root), into="again", first=1, until=None)
    assert sorted(sink.writer.table for sink in replay.graph.sinks) == ["again_hot", "again_seen"]

    replay = planned(kiln(stateful=True), Kept(original.root), into="out/", first=1, until=None)
    assert sorted(sink.writer.folder for sink in replay.graph.sinks) == [tmp_path / "out/hot", tmp_path / "out/seen"]


def test_without_a_table_there_is_no_table_to_write(original):
    graph = kiln(sinks=[hf.write.callback(lambda table, frame: None)])

    with pytest.raises(StateRefused, match="HF-R008"):
        planned(graph, Kept(original.root), into="again", first=1, until=None)


def test_a_source_that_cannot_be_read_again_is_replayed_from_what_is_kept(original):
    """By link: a running original trims its log while the replay reads."""
    replay = planned(kiln(reader=live()), Kept(original.root), into="again", first=2, until=None)

    [source] = replay.graph.sources
    assert isinstance(source.reader, KeptReader)
    assert replay.until == 3
    (original.base / "probes.parquet").unlink()
    import threading

    context = SourceContext(
        "probes", SCHEMA, "ts", 0, "admit", replay.folder, original.base, 1_000_000, 2, original.clock, 1, lambda: 0.0
    )
    frames = list(source.reader.open(context).frames(threading.Event()))
    assert [frame.n for frame in frames] == [2, 3]
    assert [frame.checksum for frame in frames] == [
        original_seal["checksum"] for n, original_seal in Kept(original.root).seals("probes").items() if n > 1
    ]
    from holdfast.sources.reference import load

    rows = [
        row
        for frame in frames
        for reference in frame.references
        for batch in load(reference, SCHEMA)
        for row in batch.to_pylist()
    ]
    assert [row["celsius"] for row in rows] == [74.0 + i for i in range(8)]


def test_rows_an_operator_raised_on_are_left_out_as_they_were(original):
    """Mended since, it would take them in their old frame, and again in the one they were put back into."""
    decided = Exclusions(original.root / "units" / "hot")
    said = {"operator": "hot", "on_error": "quarantine", "rows": 1, "error": "ValueError", "at": 1.0}
    decided.decide(2, {"probes": [[0, 1]]}, {}, said)
    decided.decide(3, {"made@1": [[0, 1]]}, {}, said)  # by place in a stream that other code may make otherwise

    replay = planned(kiln(), Kept(original.root), into="again", first=1, until=None)

    again = Exclusions(replay.folder / "units" / "hot")
    assert (again.at(2), again.at(3)) == ({"probes": [[0, 1]]}, {})


def test_frames_that_are_gone_are_refused(original):
    (original.base / "probes.parquet").unlink()

    with pytest.raises(StateRefused, match="HF-R010"):
        planned(kiln(reader=live()), Kept(original.root), into="again", first=1, until=None)
    with pytest.raises(StateRefused, match="HF-R010"):
        planned(kiln(reader=live()), Kept(original.root), into="again", first=9, until=None)


def test_the_same_replay_goes_on_and_another_is_refused(original):
    kept = Kept(original.root)
    planned(kiln(), kept, into="again", first=1, until=2)
    planned(kiln(), kept, into="again", first=1, until=2)

    with pytest.raises(StateRefused, match="HF-R011"):
        planned(kiln(), kept, into="again", first=1, until=3)


@pytest.mark.parametrize(
    ("first", "until", "code"),
    [("soon", None, "HF-E026"), (3, 2, "HF-R008"), (0, None, "HF-R008"), ("2025-01-01", None, "HF-R008")],
)
def test_frames_and_times_that_make_no_sense(original, first, until, code):
    with pytest.raises((StateRefused, UsageError), match=code):
        planned(kiln(), Kept(original.root), into="again", first=first, until=until)
    assert not original.root.with_name("kiln.replay-again").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--from-frame", "3"],
        ["--until", "3"],
        ["--into", "x", "--from-frame", "1", "--from-time", "2026-01-05"],
        ["--into", "x", "--keep", "hot"],
    ],
)
def test_the_shell_says_what_a_replay_is(original, monkeypatch, words):
    from typer.testing import CliRunner

    from holdfast.cli.main import app

    monkeypatch.chdir(original.base)
    (original.base / "kiln.py").write_text(
        'import holdfast as hf\nkiln = hf.StreamProcess("kiln", frame="1 second", time="ts")\n'
    )
    result = CliRunner().invoke(app, ["run", "kiln.py", *words])

    assert result.exit_code == 2
    assert "HF-E027" in result.stderr


def test_a_parameter_that_was_changed_meanwhile_holds_when_a_replay_goes_on(original):
    """Its frames had the values of when it was begun, though the original had others."""
    kept, config = Kept(original.root), original.root / "config"
    (config / "changes.000000000001.jsonl").unlink()
    limit = (Param("limit", 90.0),)
    Config(config, limit).set("limit", 80.0, frame=2, key=None, note="", who="", at="")
    replay = planned(kiln(), kept, into="again", first=1, until=9)
    permits = Journal(state := replay.folder / "units" / "hot", "permits")
    permits.append({"n": 5})
    permits.close()

    Config(config, limit).set("limit", 70.0, frame=6, key=None, note="", who="", at="")
    planned(kiln(), kept, into="again", first=1, until=9)

    found = Config(replay.folder / "config", limit)
    assert [found.at(n)["limit"]["value"] for n in (1, 2, 5, 6)] == [90.0, 80.0, 80.0, 70.0]
    # The replay of a file may be ahead of the original.
    permits = Journal(state, "permits")
    permits.append({"n": 8})
    permits.close()
    Config(config, limit).set("limit", 60.0, frame=8, key=None, note="", who="", at="")
    with pytest.raises(StateRefused, match="HF-R011") as refused:
        planned(kiln(), kept, into="again", first=1, until=9)
    assert "another target" in refused.value.do
    planned(kiln(), kept, into="anew", first=1, until=9)


def test_a_replay_of_an_input_without_end_goes_on_though_more_was_sealed_since(original):
    """Asked for with the same words, it ends where it was to end."""
    journal = original.root / "sources" / "probes"
    [seals] = journal.glob("sealed.*.jsonl")
    whole = seals.read_text()
    (original.root / "config" / "changes.000000000001.jsonl").unlink()
    seals.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    first = planned(kiln(reader=live()), Kept(original.root), into="again", first=1, until=None)
    seals.write_text(whole)
    again = planned(kiln(reader=live()), Kept(original.root), into="again", first=1, until=None)
    assert first.until == again.until == 2
    assert planned(kiln(reader=live()), Kept(original.root), into="anew", first=1, until=None).until == 3
