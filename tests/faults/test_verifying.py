"""What is kept of a run, what is refused before one starts, and how the answer looks."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli.main import app
from holdfast.errors import UnitError, UsageError
from holdfast.faults.inputs import log_input
from holdfast.faults.keeping import FrameFolder, output_of
from holdfast.faults.plans import Fault
from holdfast.faults.trial import began_us, kept_folders, redirected, sink_folder, with_all_kept
from holdfast.frames.identity import FrameRecord, Kind
from holdfast.graph.promises import in_order, lossless, within
from holdfast.graph.units import cut
from holdfast.journals.journal import Journal
from holdfast.journals.seals import SealJournal
from holdfast.levels.arrivals import Arrival, Output
from holdfast.levels.judging import judge, judge_recomputed
from holdfast.levels.measuring import measure
from holdfast.levels.recomputed import Differing, Recomputed
from holdfast.oracle.asking import Asked, asked_for, not_asked
from holdfast.sources.reference import Reference
from holdfast.verify.report import page
from holdfast.verify.verifying import Bench, Ran, Verified, _forget_last_commit


def frame(n: int, *values: int, checksum: str = "") -> tuple[FrameRecord, pa.Table]:
    table = pa.table({"zone": list(values), "tags": [["a", "b"]] * len(values)})
    record = FrameRecord("damped", n, Kind.STABLE, 1, n * 1_000_000, len(values), 0, checksum or f"{n}:{values}")
    return record, table


def test_a_sink_that_knows_its_frames_notes_one_that_comes_again(tmp_path):
    sink = FrameFolder(tmp_path / "damped", idempotent=True).open(None)

    assert sink.write([frame(1, 7, 7), frame(2)]) == [True, True]
    assert sink.write([frame(2), frame(3, 8)]) == [False, True]
    assert sink.last() == 3
    found = output_of("damped", tmp_path / "damped", {1: 5, 2: 6, 3: 7})
    assert [(each.n, each.rows, each.due_us) for each in found.arrivals] == [(1, 2, 5), (2, 0, 6), (3, 1, 7)]
    assert found.again == (2,)


def test_a_sink_that_cannot_tell_has_the_frame_twice(tmp_path):
    """It stands for a callback: what that was handed twice counts as twice."""
    sink = FrameFolder(tmp_path / "damped", idempotent=False).open(None)
    sink.write([frame(1, 7)])
    assert sink.last() == 0
    sink.write([frame(1, 7)])
    ideal = Output("damped", (Arrival(1, 1, "1:(7,)", lambda: [(7, "['a', 'b']")]),))

    assert measure([ideal], [output_of("damped", tmp_path / "damped")])[0].duplicates == {1: 1}


def test_a_write_that_was_cut_off_left_no_frame(tmp_path):
    sink = FrameFolder(tmp_path, idempotent=True).open(None)
    (tmp_path / "00000001.0.tmp").write_bytes(b"half")

    assert sink.last() == 0
    assert sink.write([frame(1, 7)]) == [True]


def test_rows_are_compared_by_value_where_checksums_differ(tmp_path):
    one, other = (FrameFolder(tmp_path / name, True).open(None) for name in ("one", "other"))
    one.write([frame(1, 7, 8, 9)])
    other.write([frame(1, 7, 9, 10)])
    found = measure([output_of("o", tmp_path / "one")], [output_of("o", tmp_path / "other")])[0]

    assert (found.lost, found.wrong) == ({1: 1}, {1: 1})


def test_the_moment_frame_1_began_stays_when_the_run_is_started_again(tmp_path):
    assert began_us(tmp_path) == began_us(tmp_path)


def test_a_frame_is_due_by_the_pace_and_closing_frames_with_the_last_of_the_input(tmp_path):
    bench = Bench(process(tmp_path, promise=[within("5 seconds")]).graph(), "kiln.py", tmp_path, rate="2x")
    FrameFolder(sink_folder(tmp_path, "probes"), True).open(None).write([frame(n, 7) for n in range(1, 6)])
    source = tmp_path / "state" / "sources" / "probes"
    source.mkdir(parents=True)
    (source / "end.json").write_text(json.dumps({"last": 3, "extent": 3}))
    began = began_us(tmp_path)
    found = bench._output(tmp_path, "probes")

    assert [each.due_us - began for each in found.arrivals] == [500_000, 1_000_000, 1_500_000, 1_500_000, 1_500_000]


def test_the_last_commit_entry_is_forgotten_and_no_other(tmp_path):
    journal = Journal(tmp_path, "commits")
    for n in (1, 2, 3):
        journal.append({"n": n})
    journal.close()
    _forget_last_commit(tmp_path)

    assert [entry["n"] for entry in Journal(tmp_path, "commits").entries()] == [1, 2]


# ---- before a run starts ----


def process(tmp_path, **sink) -> hf.StreamProcess:
    made = hf.StreamProcess("kiln", frame="1 second", time="ts")
    made.source("probes", hf.read.files(str(tmp_path / "*.parquet")), schema="ts timestamp, zone int")
    made.sink("probes", hf.write.sqlite("kiln.db", "probes"), **sink)
    return made


def test_outputs_go_to_a_folder_of_the_run_and_nobody_is_told(tmp_path):
    made = redirected(process(tmp_path, promise=[lossless]).graph(), tmp_path)

    assert made.sinks[0].writer == FrameFolder(sink_folder(tmp_path, "probes"), idempotent=True)
    assert made.sinks[0].promises == (lossless,)
    assert made.on_degraded is None and made.state is None


@pytest.mark.parametrize(("promises", "pace"), [([lossless], "fast"), ([lossless, within("5 seconds")], "as recorded")])
def test_the_pace_is_the_recorded_one_where_a_delay_is_promised(tmp_path, promises, pace):
    assert Bench(process(tmp_path, promise=promises).graph(), "kiln.py", tmp_path).rate == pace


def test_a_live_source_cannot_be_verified(tmp_path):
    made = hf.StreamProcess("kiln", frame="1 second", time="ts")
    made.source("probes", hf.read.lines("tcp://127.0.0.1:9999"), schema="ts timestamp, zone int")
    made.sink("probes", hf.write.sqlite("kiln.db", "probes"))
    with pytest.raises(UsageError, match="HF-E053"):
        Bench(made.graph(), "kiln.py", tmp_path)


FILE = """
import holdfast as hf
kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")
kiln.source("probes", hf.read.files("probes/*.parquet"), schema="ts timestamp, zone int")
@kiln.operator(over="frame")
def hot(probes):
    return probes
kiln.sink("hot", hf.write.sqlite("kiln.db", "hot"), promise=hf.lossless)
"""


@pytest.mark.parametrize(
    ("words", "plan", "says"),
    [
        ((), "[[fault]]\ndo = 'kill unit'\nunit = 'hat'", "did you mean 'hot'?"),
        ((), "[[fault]]\ndo = 'kill the unit'", "did you mean 'kill unit'?"),
        (("--rate", "500"), "[[fault]]\ndo = 'kill unit'", "HF-C030"),
        (("--keep", "."), "[[fault]]\ndo = 'kill unit'", "HF-E054"),
        (("--faults", "nowhere.toml"), "", "HF-E050"),
        (("--oracle", "some"), "[[fault]]\ndo = 'kill unit'", "HF-E055"),
        (("--oracle", "0"), "[[fault]]\ndo = 'kill unit'", "HF-E055"),
    ],
)
def test_a_call_that_makes_no_sense_starts_nothing(tmp_path, monkeypatch, words, plan, says):
    monkeypatch.chdir(tmp_path)
    Path("kiln.py").write_text(FILE)
    Path("plan.toml").write_text(plan)
    answer = CliRunner().invoke(app, ["verify", "kiln.py", "--faults", "plan.toml", *words])

    assert answer.exit_code == 2
    assert says in answer.output
    assert sorted(os.listdir()) == ["kiln.py", "plan.toml"]


# ---- the answer ----


def ran(folder: Path, at_s: dict[int, float], **settings) -> Ran:
    arrivals = [Arrival(n, 1, str(n), lambda: ["x"], round(at * 1e6), n * 1_000_000) for n, at in at_s.items()]
    return Ran(folder, (Output("alarms", tuple(arrivals)),), 9.0, 1, 0, settings.get("hit", ()), 1, "", 1)


@pytest.fixture
def verified(tmp_path) -> Verified:
    plan = (Fault("kill unit", "pulse", 2, "renamed"), Fault("stall source", "<ecg>", 9, "stall", 500))
    ideal = ran(tmp_path, {n: n + 0.2 for n in (1, 2, 3)})
    faulty = ran(tmp_path, {1: 1.2, 2: 9, 3: 9.1}, hit=(True, False))
    measured = measure(ideal.outputs, faulty.outputs)
    verdicts = judge([lossless, within("5 seconds"), in_order], measured[0])
    return Verified(plan, ideal, faulty, tuple(measured), tuple(verdicts), "at recorded pace")


def test_the_answer_for_a_machine_has_every_verdict_and_what_was_not_hit(verified):
    said = json.loads(json.dumps(verified.to_json()))

    assert not said["kept"]
    assert [fault["hit"] for fault in said["faults"]] == [True, False]
    delay = next(each for each in said["verdicts"] if each["what"] == "delay")
    assert (delay["level"], delay["state"], delay["frames"]) == ("LIDE", "BROKEN", [2, 3])
    assert "not the loss of the state folder" in said["survives"]


def test_the_report_needs_nothing_else_and_shows_both_runs(verified):
    text = page("ward_4", verified, "holdfast verify ward.py")

    assert text.count("<svg") == 2  # when, and how late
    assert "BROKEN, frames 2-3" in text and "not hit" in text
    assert "src=" not in text and "<script" not in text and "http" not in text
    assert "<ecg>" not in text


def found(
    folder: Path, promises=(), *, lost: bool = False, rate: bool = True, oracle: Recomputed | None = None
) -> Verified:
    ideal = ran(folder, {1: 1.2, 2: 2.2})
    faulty = ran(folder, {1: 1.2} if lost else {1: 1.2, 2: 2.2})
    measured = measure(ideal.outputs, faulty.outputs)
    if not rate:
        measured = [replace(each, delay_ms={}) for each in measured]
    verdicts = judge(promises, measured[0])
    lines = () if oracle is None else (oracle,)
    return Verified(
        (), ideal, faulty, tuple(measured), (*verdicts, *map(judge_recomputed, lines)), "as fast as it goes", lines
    )


RIGHT = Recomputed("alarms", "alarms", "pulse", "alarms", "each frame alone", (1, 2), 2, 2)
WRONG = replace(RIGHT, differs=(Differing(2, 1, 1, ("1, a",), ("7, b",)),))


@pytest.mark.parametrize(
    ("settings", "answer", "is_fine", "kept"),
    [
        ({"promises": [lossless]}, "all promises are kept", True, True),
        ({"promises": [lossless], "lost": True}, "a promise is broken", False, False),
        (
            {"promises": [lossless, within("1 second")], "rate": False},
            "no promise is broken; not measured: delay",
            True,
            True,
        ),
        (
            {},
            "nothing was promised, so nothing was asked of it; the faulty run gave the same as the ideal one",
            True,
            None,
        ),
        (
            {"lost": True},
            "nothing was promised, so nothing was asked of it; the faulty run differs from the ideal one",
            False,
            None,
        ),
        ({"promises": [lossless], "oracle": RIGHT}, "all promises are kept", True, True),
        (
            {"promises": [lossless], "oracle": WRONG},
            "the oracle computes other frames than the run made; all promises are kept",
            False,
            True,
        ),
        (
            {"oracle": WRONG},
            "the oracle computes other frames than the run made; nothing was promised, so nothing was asked of it; the faulty run gave the same as the ideal one",
            False,
            None,
        ),
    ],
)
def test_the_answer_says_no_more_than_was_shown(tmp_path, settings, answer, is_fine, kept):
    """A process that promises nothing was said to keep all its promises, whatever became of its rows."""
    verified = found(tmp_path, **settings)

    assert (verified.answer, verified.is_fine, verified.to_json()["kept"]) == (answer, is_fine, kept)
    assert answer in page("ward_4", verified, "again").replace("&#x27;", "'")


def test_a_frame_that_the_oracle_computes_otherwise_is_told_with_its_place_and_rows(tmp_path):
    verified = found(tmp_path, [lossless], oracle=WRONG)
    said = verified.to_json()
    text = page("ward_4", verified, "again")

    [error] = said["errors"]
    assert error.startswith("HF-U061 OracleDiffers: frame 2 of output 'alarms' is not what its inputs give.")
    assert "unit 'pulse', operator 'alarms'" in error and "lacking: 1, a" in error and "too many: 7, b" in error
    assert said["oracle"][0]["differs"][0]["n"] == 2
    assert "BROKEN, frame 2" in text and "each frame alone" in text
    assert "7, b" not in text  # no rows in a page that is mailed


def test_a_stream_between_units_is_kept_for_the_oracle_and_the_cut_stays(tmp_path):
    made = hf.StreamProcess("kiln", frame="1 second", time="ts")
    made.source("probes", hf.read.files(str(tmp_path / "*.parquet")), schema="ts timestamp, zone int")
    made.aggregate("seen", of="probes", by="zone", emits={"n": "count(*)"})

    @made.operator(over="frame", inputs={"last": hf.feedback("many", schema="zone int, n bigint")})
    def many(seen, last):
        return seen

    made.sink("many", hf.write.sqlite("kiln.db", "many"))
    graph = made.graph()
    kept = with_all_kept(redirected(graph, tmp_path), tmp_path)

    assert [(unit.name, unit.operators, unit.outputs) for unit in cut(kept)] == [
        (unit.name, unit.operators, unit.outputs) for unit in cut(graph)
    ]
    assert [sink.stream for sink in kept.sinks] == ["many", "seen"]
    folders = kept_folders(graph, tmp_path)
    assert {stream: [*sinks] for stream, sinks in folders.items()} == {"seen": [""], "many": ["many"]}
    assert {sink.writer.folder for sink in kept.sinks} == {
        folder for sinks in folders.values() for folder in sinks.values()
    }


def test_an_oracle_that_cannot_work_is_told_and_can_be_left_out(tmp_path):
    """HF-U062: nothing is said to be right that nobody looked at."""
    graph = process(tmp_path, promise=[lossless]).graph()
    bench = Bench(graph, str(tmp_path / "gone.py"), tmp_path)
    with pytest.raises(UnitError, match="HF-U062") as failed:
        bench.recompute(ran(tmp_path, {1: 1.0}), Asked(), seed=0)

    assert "there is no file" in failed.value.why and "--oracle none" in failed.value.do
    assert asked_for("none") is None
    assert [judge_recomputed(line).words for line in not_asked(graph)] == ["not recomputed: --oracle none"]


@pytest.mark.parametrize(("words", "count"), [("all", None), ("8", 8), (" 20 ", 20), ("ALL", None)])
def test_how_many_frames_the_oracle_takes_is_said(words, count):
    """HF-E055 names these."""
    assert asked_for(words) == Asked(count)


# ---- input out of the source log ----


def live() -> hf.StreamProcess:
    made = hf.StreamProcess("kiln", frame="1 second", time="ts")
    made.source("probes", hf.read.lines("tcp://127.0.0.1:9999"), schema="ts timestamp, zone int", keep="1 day")

    @made.operator(over="frame")
    def hot(probes):
        return probes

    made.sink("hot", hf.write.sqlite("kiln.db", "hot"), promise=lossless)
    return made


def circling() -> hf.StreamProcess:
    made = hf.StreamProcess("kiln", frame="1 second", time="ts")
    made.source("probes", hf.read.lines("tcp://127.0.0.1:9999"), schema="ts timestamp, zone int", keep="1 day")

    @made.operator(over="frame", inputs={"last": hf.feedback("hot", schema="ts timestamp, zone int")})
    def hot(probes, last):
        return probes

    made.sink("hot", hf.write.sqlite("kiln.db", "hot"), promise=lossless)
    return made


@pytest.fixture
def kept_log(tmp_path):
    """A state folder whose log has sealed ten frames; the files of those up to `gone` were trimmed."""

    def make(gone: int = 0) -> Path:
        root = tmp_path / "state"
        directory = root / "sources" / "probes"
        directory.mkdir(parents=True)
        (root / "deployment.json").write_text(json.dumps({"process": "kiln", "t0_us": 0, "schemas": {"probes": ""}}))
        seals = SealJournal(directory)
        for n in range(1, 11):
            path = directory / f"{n}.arrow"
            if n > gone:
                path.write_bytes(b"rows")
            lies = Reference(str(path), "arrow", ((0, 1),), 4, 0, "digest")
            seals.note(n, epoch=1, boundary_us=n, rows=1, size=4, checksum="x", late=0, references=[lies], at=0.0)
        seals.close()
        return root

    return make


@pytest.mark.parametrize(
    ("words", "gone", "first"),
    [("log", 0, 1), ("log", 3, 4), ("log:last-4s", 0, 7), ("log:last-4s", 8, 9), ("log:last-1m", 0, 1)],
)
def test_the_log_gives_the_frames_that_are_kept(kept_log, words, gone, first):
    found = log_input(words, live().graph(), kept_log(gone))

    assert (found.first, found.last) == (first, 10)
    assert sorted(found.frames["probes"]) == list(range(first, 11))


def test_what_was_put_aside_stays_when_the_original_forgets_it(kept_log, tmp_path):
    root = kept_log()
    log_input("log:last-2s", live().graph(), root).take(tmp_path / "input")
    for path in root.rglob("*.arrow"):
        path.unlink()

    assert sorted(path.name for path in (tmp_path / "input" / "probes").iterdir()) == ["10.arrow", "9.arrow"]


@pytest.mark.parametrize(
    ("words", "made", "says"),
    [
        ("log:last", live, "log:last-5m"),
        ("log:last-soon", live, "log:last-5m"),
        ("yesterday", live, "log:last-5m"),
        ("log", circling, "reads frames before frame 4"),
    ],
)
def test_an_input_that_cannot_be_had_is_refused(kept_log, words, made, says):
    with pytest.raises(UsageError, match="HF-E052") as refused:
        log_input(words, made().graph(), kept_log(3))
    assert says in str(refused.value)
