"""Live sources in operation, without Spark: where time begins, and what the status says of them."""

from __future__ import annotations

import json
import socket
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

import holdfast as hf
from holdfast.cli.render import status_lines
from holdfast.engine.flow.delays import DelayWatch
from holdfast.engine.flow.promises import PromiseWatch
from holdfast.engine.flow.queues import StreamQueue, UnitInputState
from holdfast.engine.flow.scheduler import Board, Hold, UnitState
from holdfast.engine.flow.source_runner import Intake, first_time_us
from holdfast.engine.observe.control import call
from holdfast.engine.observe.status import snapshot, why_degraded
from holdfast.engine.run.activation import waits
from holdfast.engine.run.parts import RunParts
from holdfast.engine.run.run import Run
from holdfast.errors import UsageError
from holdfast.frames.clock import FrameClock

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "ts timestamp, number bigint"


class Desk:
    """A process's sources, opened as a run opens them; closed at the end of the test."""

    def __init__(self, process, folder, clock=True):
        graph = process.graph()
        self.board = Board(closing_frames=1)
        self.clock = FrameClock.starting(int(START.timestamp() * 1e6), graph.frame_ms * 1000) if clock else None
        self.board.clock = self.clock
        self.intakes = []
        names = tuple(UnitInputState(source.name) for source in graph.sources)
        self.unit = self.board.units["unit"] = UnitState("unit", names, ())
        for source in graph.sources:
            self.board.streams[source.name] = StreamQueue(source.name, 10**9, True, acked={"unit": 0})
            intake = Intake(
                source, graph, board=self.board, directory=folder / source.name, from_n=1, clock=self.clock, epoch=1,
                rate=None, decided=0, delays=DelayWatch(graph), promises=PromiseWatch(graph),
            )  # fmt: skip
            if clock:
                intake.set_clock(self.clock)
            self.intakes.append(intake)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for intake in self.intakes:
            intake.halt()
            if intake.is_alive():
                intake.join(20)
            intake.stop()

    def status(self, source):
        with self.board.changed:
            return next(each for each in snapshot(self.board, {})["sources"] if each.name == source)


def element(seconds, number=0):
    return {"ts": START + timedelta(seconds=seconds), "number": number}


def until(is_so):
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


def ward(**silent):
    """One source that talks and one that has nothing to say."""
    process = hf.StreamProcess("ward", frame="1 second", time="ts")
    go = threading.Event()

    def talks():
        yield from (element(at / 2, at) for at in range(7))
        go.wait()

    def is_silent():
        go.wait()
        yield element(0)

    process.source("ecg", hf.read.iterator(talks, bounded=False), schema=SCHEMA, boundary="hold")
    process.source("acc", hf.read.iterator(is_silent, bounded=False), schema=SCHEMA, **silent)
    return process, go


def test_a_source_that_holds_a_frame_is_named_by_the_unit_that_waits(tmp_path):
    process, go = ward(boundary="hold")
    with Desk(process, tmp_path) as desk:
        for intake in desk.intakes:
            intake.start()
        until(lambda: desk.board.streams["ecg"].sealed == 3)
        until(lambda: "silent" in desk.status("acc").why)
        said = desk.status("acc").why
        assert desk.board.next_permit(desk.unit) == Hold(f"held: source acc is {said}")
        assert said.startswith("silent since 20")
        go.set()


def test_a_silent_source_is_sealed_empty_by_the_clock_unless_it_holds(tmp_path):
    process, go = ward()
    with Desk(process, tmp_path) as desk:
        for intake in desk.intakes:
            intake.start()
        until(lambda: desk.board.streams["acc"].sealed >= 2)
        assert desk.board.streams["acc"].rows == 0
        assert desk.status("acc").why == ""
        assert desk.board.next_permit(desk.unit).n == 1
        go.set()


def test_time_begins_with_whoever_speaks_first(tmp_path):
    """A sensor that is switched off must not keep the others from being heard."""
    process, go = ward()
    with Desk(process, tmp_path, clock=False) as desk:
        assert first_time_us(desk.intakes, pytest.fail) == int(START.timestamp() * 1e6)
        go.set()


def test_while_nobody_speaks_it_is_said_for_whom_everybody_waits(tmp_path):
    process = hf.StreamProcess("ward", frame="1 second", time="ts")
    go, notes = threading.Event(), []

    def later():
        go.wait()
        yield element(5)

    process.source("ecg", hf.read.iterator(later, bounded=False), schema=SCHEMA)

    def note(sentence):
        notes.append(sentence)
        go.set()

    with Desk(process, tmp_path, clock=False) as desk:
        assert first_time_us(desk.intakes, note) == int(element(5)["ts"].timestamp() * 1e6)
    assert notes == ["waits for the first element of ecg", ""]


def test_a_broker_that_is_away_makes_the_run_degraded(tmp_path):
    """Whoever watches must hear of it: no frame fails, and yet nothing comes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens: a connection is refused
        process = hf.StreamProcess("ward", frame="1 second", time="ts")
        process.source("ecg", hf.read.mqtt(f"mqtt://127.0.0.1:{taken.getsockname()[1]}/ecg"), schema=SCHEMA)
        with Desk(process, tmp_path) as desk:
            desk.intakes[0].start()
            until(lambda: "refused" in desk.status("ecg").why)
            said = why_degraded(desk.board, [], [])
            assert said.startswith("source ecg is cut off from mqtt://127.0.0.1:")


def test_bad_elements_are_counted_in_the_status(tmp_path):
    process = hf.StreamProcess("ward", frame="1 second", time="ts")

    @process.source("ecg", schema=SCHEMA, bad="quarantine")
    def ecg():
        yield from (element(0), element(1) | {"number": "no"}, element(2))

    with Desk(process, tmp_path) as desk:
        desk.intakes[0].run()
        assert desk.board.error is None
        assert (desk.status("ecg").bad, desk.status("ecg").rows) == (1, 2)
    [path] = (tmp_path / "ecg" / "quarantine").glob("bad-*.jsonl")
    assert "number = 'no'" in json.loads(path.read_text())["reason"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"boundary": "clocks"}, "did you mean 'clock'"),
        ({"boundary": "clock"}, "HF-C032"),
        ({"bad": "drop"}, "HF-C032"),
        ({"new_columns": "fail"}, "HF-C032"),
        ({"new_columns": "keep"}, "_more string"),
    ],
)
def test_options_that_mean_nothing_to_files_are_refused(options, told):
    process = hf.StreamProcess("ward", frame="1 second", time="ts")
    with pytest.raises(UsageError, match=told):
        process.source("ecg", hf.read.files("*.parquet"), schema=SCHEMA, **options)


def test_a_source_by_arrival_cannot_hold_its_frames():
    process = hf.StreamProcess("ward", frame="1 second", time=hf.ARRIVAL)
    with pytest.raises(UsageError, match="HF-C032"):
        process.source("ecg", hf.read.lines("tcp://127.0.0.1:9000"), schema=SCHEMA, boundary="hold")


def test_a_run_that_waits_for_its_first_element_answers_and_says_so(tmp_path):
    """A ward that is started before its sensors would look dead from another shell."""
    process, go = ward()
    run = Run(RunParts(process.graph(), tmp_path / "state"))
    run.folder.acquire("ward")
    try:
        waits(run.parts, "waits for the first element of ecg, acc")
        answer = call(run.folder.root, {"do": "status"})
        assert (answer["state"], answer["notes"][-1]) == ("activating", "waits for the first element of ecg, acc")
        assert "waits for the first element" in "\n".join(status_lines(answer))
        assert call(run.folder.root, {"do": "stop"})["code"] == "HF-U042"
        waits(run.parts, "")
        assert call(run.folder.root, {"do": "status"})["notes"] == []
    finally:
        go.set()
        run.parts.release()
