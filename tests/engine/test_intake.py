"""A source in operation, without Spark: what it keeps, and what it refuses."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.engine.flow.delays import DelayWatch
from holdfast.engine.flow.promises import PromiseWatch
from holdfast.engine.flow.queues import StreamQueue
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.flow.source_runner import Intake
from holdfast.errors import SourceError
from holdfast.frames.clock import FrameClock
from holdfast.sources.pace import Pace, PacedSince

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "ts timestamp, number bigint"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def taken_in(
    process,
    folder,
    *,
    committed: int = 0,
    rate: object = None,
    on_seal=lambda board, n: None,
    on_open=lambda board: None,
) -> Board:
    """Run the one source of a process to its end; its only consumer stands at `committed`."""
    graph = process.graph()
    board = Board(closing_frames=1)
    board.streams["pulses"] = StreamQueue("pulses", 10**9, True, sealed=committed, acked={"unit": committed})
    clock = FrameClock.starting(int(START.timestamp() * 1e6), graph.frame_ms * 1000)
    board.clock = clock
    intake = Intake(
        graph.sources[0], graph, board=board, directory=folder, from_n=committed + 1, clock=clock, epoch=1,
        rate=rate, decided=committed, delays=DelayWatch(graph), promises=PromiseWatch(graph),
    )  # fmt: skip
    on_open(board)
    intake.set_clock(clock)
    seal = board.seal

    def sealed(stream, frame):
        seal(stream, frame)
        on_seal(board, frame.n)

    board.seal = sealed
    intake.run()
    return board


@pytest.mark.parametrize(("keep", "least", "most"), [(None, 1, 140), ("150 seconds", 150, 290)])
def test_a_source_log_forgets_what_no_restart_needs(tmp_path, keep, least, most):
    """An unbounded source would fill the disk; `keep=` says how much longer elements stay."""
    process = hf.StreamProcess("feed", frame="1 second", time="ts")
    is_next = threading.Semaphore(1)

    @process.source("pulses", schema=SCHEMA, keep=keep)
    def pulses(logged):
        for number in range(400):
            is_next.acquire()  # one ingest batch each, so one file
            yield {"ts": at(number), "number": number}
            if number == 0:
                is_next.release()  # the first frame is sealed by the second element

    def on_seal(board: Board, n: int) -> None:
        board.acknowledge("pulses", "unit", n - 2)
        is_next.release()

    board = taken_in(process, tmp_path, on_seal=on_seal)

    assert board.error is None
    assert board.streams["pulses"].sealed == 400
    assert least <= len(list((tmp_path / "log").glob("*.arrow"))) <= most


def two_files(folder) -> hf.StreamProcess:
    """The source had ended with frame 2, in file a; then came b, with an element of that frame and one of the next."""
    (folder / "in").mkdir()
    for name, times in (("a", [0.1, 1.1]), ("b", [1.9, 2.5])):
        table = pa.table({"ts": pa.array(map(at, times), pa.timestamp("us", "UTC")), "number": [0, 0]})
        pq.write_table(table, folder / "in" / f"{name}.parquet")
    (folder / "end.json").write_text(json.dumps({"last": 2, "extent": 1}))
    process = hf.StreamProcess("feed", frame="1 second", time="ts")
    process.source("pulses", hf.read.files(str(folder / "in" / "*.parquet")), schema=SCHEMA)
    return process


@pytest.mark.parametrize("committed", [2, 3, 4])
def test_a_file_added_once_the_last_frame_is_done_is_refused(tmp_path, committed):
    """Its elements belong to frames that are done: they would be passed over, and the run would call itself finished."""
    board = taken_in(two_files(tmp_path), tmp_path, committed=committed)

    assert isinstance(board.error, SourceError)
    assert board.error.code == "HF-S020"


def test_a_file_added_before_is_read(tmp_path):
    board = taken_in(two_files(tmp_path), tmp_path, committed=1)

    assert board.error is None
    assert {n: frame.rows for n, frame in board.streams["pulses"].frames.items()} == {2: 2, 3: 1}
    assert board.last_data_frame == 3


def test_the_same_files_end_where_they_ended(tmp_path):
    process = two_files(tmp_path)
    (tmp_path / "in" / "b.parquet").unlink()

    board = taken_in(process, tmp_path, committed=3)

    assert board.error is None
    assert board.last_data_frame == 2


@pytest.mark.parametrize(("committed", "closed_at"), [(1, None), (2, None), (3, 2), (4, 2)])
def test_an_end_that_closing_frames_have_followed_is_known_from_the_start(tmp_path, committed, closed_at):
    """Not where the last frame is done and none after it: a file that was added is told before anything is closed."""
    process = two_files(tmp_path)
    (tmp_path / "in" / "b.parquet").unlink()
    known = []

    board = taken_in(
        process, tmp_path, committed=committed, on_open=lambda board: known.append(board.streams["pulses"].closed_at)
    )

    assert known == [closed_at]
    assert board.error is None


@pytest.mark.parametrize(
    ("rate", "counted"),
    [
        ("as recorded", [1, 2, 3]),
        (PacedSince("as recorded", lambda: 0.0), [4, 5, 6]),
        (PacedSince("as recorded", lambda: 0.0, 3), [2, 3, 4]),
    ],
)
def test_a_run_that_was_away_goes_on_where_it_stopped_or_has_to_catch_up(tmp_path, monkeypatch, rate, counted):
    """A recording waits for its run; a live source does not, and a delay is to count what it sent meanwhile."""
    table = pa.table(
        {
            "ts": pa.array([at(n + 0.5) for n in range(6)], pa.timestamp("us", "UTC")),
            "n": pa.array(range(6), pa.int64()),
        }
    )
    pq.write_table(table, tmp_path / "pulses.parquet")
    process = hf.StreamProcess("feed", frame="1 second", time="ts")
    process.source("pulses", hf.read.files(str(tmp_path / "pulses.parquet")), schema="ts timestamp, n bigint")
    asked = []
    monkeypatch.setattr(Pace, "due_s", lambda self, frames, frame_us, rows: asked.append(frames) or 0.0)
    (tmp_path / "source").mkdir()

    taken_in(process, tmp_path / "source", committed=3, rate=rate)

    assert asked == counted
