"""A sink whose target does not answer: frames wait, the sink tries again, nothing comes twice."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace

import psycopg
import pyarrow as pa
import pytest

from holdfast.engine.flow.queues import Sealed, StreamQueue
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.flow.sink_runner import Outlet
from holdfast.engine.observe.status import snapshot
from holdfast.errors import SinkAway, SinkError
from holdfast.frames.files import frame_name, seal_frame
from holdfast.frames.identity import Kind
from holdfast.graph.model import Sink
from holdfast.graph.schemas import Schema
from holdfast.sinks import write

SCHEMA = Schema.of("zone int, mean double")
ROWS = 200


class Waits:
    """Stands in for the pause between two tries: the test sees it and says when it is over."""

    def __init__(self) -> None:
        self.begun: queue.Queue[float] = queue.Queue()
        self._answers: queue.Queue[bool] = queue.Queue()

    def __call__(self, seconds: float) -> bool:
        self.begun.put(seconds)
        return self._answers.get(timeout=60)

    def is_over(self, *, run_ends: bool = False) -> None:
        self._answers.put(run_ends)


class Plant:
    """A board with one stream and its sink; frames are real files."""

    def __init__(self, folder, writer):
        self.folder, self.waits = folder, Waits()
        self.board = Board(closing_frames=0)
        self.board.streams["average"] = StreamQueue("average", 1 << 30, False, acked={"sink average": 0})
        self.board.sinks["average"] = ("average", 0)
        self.board.on_forget(lambda stream, sealed: None)
        graph = SimpleNamespace(name="kiln", time=None, base=str(folder))
        self.outlet = Outlet(
            Sink("average", writer, "average"), graph, SCHEMA, board=self.board, epoch=1,
            clock=lambda: 1000.0, wait=self.waits, chance=lambda: 0.0,
        )  # fmt: skip

    def seal(self, n: int) -> None:
        table = pa.table({"zone": [n] * ROWS, "mean": [n + i / 8 for i in range(ROWS)]}, schema=SCHEMA.arrow)
        record = seal_frame(
            self.folder, table, SCHEMA, None, stream="average", n=n, kind=Kind.STABLE, epoch=1, boundary_us=n
        )
        path = self.folder / frame_name(n, Kind.STABLE)
        self.board.seal(
            "average",
            Sealed(n, n, record.rows, record.bytes, record.checksum, 1, file=str(path)),
        )

    def written(self, n: int) -> None:
        with self.board.changed:
            assert self.board.changed.wait_for(
                lambda: self.board.sinks["average"][1] >= n or self.board.error, timeout=60
            )
            assert self.board.error is None, self.board.error

    def end(self) -> None:
        self.outlet.halt()
        self.outlet.join(timeout=60)
        assert not self.outlet.is_alive()


def counts(postgres):
    with psycopg.connect(postgres.url) as connection:
        return connection.execute("select _frame, count(*) from average group by 1 order by 1").fetchall()


def test_a_server_killed_between_two_frames_is_waited_for_and_every_frame_is_there_once(postgres, tmp_path):
    plant = Plant(tmp_path, write.postgres(postgres.url, "average"))
    plant.outlet.start()
    for n in (1, 2, 3):
        plant.seal(n)
    plant.written(3)

    postgres.kill()
    plant.seal(4)
    pauses = [plant.waits.begun.get(timeout=60)]
    with plant.board.changed:
        [sink] = snapshot(plant.board, {})["sinks"]
    assert (sink.state, sink.written) == ("AWAY", 3)
    assert sink.why.startswith("since 00:16:40Z, try 1, next in ")
    assert postgres.password not in sink.why
    plant.seal(5)
    for _ in range(3):
        plant.waits.is_over()
        pauses.append(plant.waits.begun.get(timeout=60))
    assert pauses == [0.5, 1.0, 2.0, 4.0]

    postgres.start()
    plant.waits.is_over()
    plant.written(5)
    with plant.board.changed:
        [sink] = snapshot(plant.board, {"average": (plant.outlet.rows, plant.outlet.left_out)})["sinks"]
    assert (sink.state, sink.why, sink.rows) == ("OK", "", 5 * ROWS)
    plant.end()
    assert counts(postgres) == [(n, ROWS) for n in range(1, 6)]


@pytest.mark.parametrize("keys", [None, ["zone", "mean"]], ids=["append", "keyed"])
def test_a_server_killed_while_it_takes_a_frame_has_it_once(postgres, tmp_path, monkeypatch, keys):
    """Killed with the rows sent and the commit not yet asked for: none of it is there."""
    from holdfast.sinks.ledger import Ledger

    plant = Plant(tmp_path, write.postgres(postgres.url, "average", keys))
    real, strikes = Ledger.enter, []

    def enter(self, records, *args, **kwargs):
        result = real(self, records, *args, **kwargs)
        if records[0].n == 2 and not strikes:
            strikes.append(1)
            postgres.kill()
        return result

    monkeypatch.setattr(Ledger, "enter", enter)
    plant.outlet.start()
    plant.seal(1)
    plant.written(1)
    plant.seal(2)
    plant.waits.begun.get(timeout=60)
    postgres.start()
    assert counts(postgres) == [(1, ROWS)]
    plant.waits.is_over()
    plant.written(2)
    plant.end()
    assert strikes and counts(postgres) == [(1, ROWS), (2, ROWS)]


def test_a_commit_whose_answer_is_lost_is_settled_by_the_ledger(postgres, tmp_path, monkeypatch):
    """The server has it, the client was told nothing: sent again, the frame must not come twice."""
    from holdfast.sinks.postgres import PostgresSink

    plant = Plant(tmp_path, write.postgres(postgres.url, "average"))
    real, strikes = PostgresSink.run, []

    def run(self, sql, values=()):
        if sql == "commit" and not strikes and threading.current_thread() is plant.outlet:
            strikes.append(1)
            real(self, sql, values)
            postgres.kill()
            return real(self, "select 1")  # the answer that does not come
        return real(self, sql, values)

    monkeypatch.setattr(PostgresSink, "run", run)
    plant.outlet.start()
    plant.seal(1)
    plant.waits.begun.get(timeout=60)
    postgres.start()
    assert counts(postgres) == [(1, ROWS)]
    plant.waits.is_over()
    plant.written(1)
    plant.end()
    assert strikes and counts(postgres) == [(1, ROWS)] and plant.outlet.rows == ROWS


def test_a_run_that_ends_does_not_wait_for_a_sink_that_is_away(postgres, tmp_path):
    plant = Plant(tmp_path, write.postgres(postgres.url, "average"))
    plant.outlet.start()
    postgres.kill()
    try:
        plant.seal(1)
        plant.waits.begun.get(timeout=60)
        plant.waits.is_over(run_ends=True)
        plant.end()
        assert plant.board.error is None and plant.board.sinks["average"] == ("average", 0)
        assert 1 in plant.board.streams["average"].frames  # still queued, for the next run
    finally:
        postgres.start()


class Failing:
    """A target of ours that fails as told: what the outlet does must not depend on which database it is."""

    idempotent = True

    def __init__(self, errors):
        self.errors = errors

    def open(self, context):
        return self

    def last(self):
        return 0

    def write(self, batch):
        error = next(self.errors, None)
        if error is not None:
            raise error
        return [True] * len(batch)

    def close(self):
        pass


def away():
    return SinkAway("HF-K013", "SinkAway", "it does not answer.", why="refused")


def test_another_error_ends_the_run_also_after_tries(tmp_path):
    error = SinkError("HF-K005", "SinkFailed", "the disk is full.")
    plant = Plant(tmp_path, Failing(iter([away(), error])))
    plant.outlet.start()
    plant.seal(1)
    plant.waits.begun.get(timeout=60)
    plant.waits.is_over()
    plant.outlet.join(timeout=60)
    assert plant.board.error is error and plant.board.sinks["average"] == ("average", 0)
    assert plant.board.sinks_away == {}


def test_tries_go_on_for_days_without_growing_further_apart(tmp_path):
    """2 ** 1024 is no number: a server that is away over a weekend must not end the run."""
    plant = Plant(tmp_path, Failing(away() for _ in range(1100)))
    pauses = []
    plant.outlet._wait = lambda seconds: bool(pauses.append(seconds))
    plant.outlet.start()
    plant.seal(1)
    plant.written(1)
    plant.end()
    assert len(pauses) == 1100 and max(pauses) == pauses[-1] == 30.0
