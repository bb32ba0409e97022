"""Guards at work on real frames, packers and stores: what is pinned, stored, acknowledged and forgotten. No Spark."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.engine.flow.queues import Sealed, StreamQueue, UnitInputState
from holdfast.engine.flow.scheduler import Board, UnitState
from holdfast.engine.observe.consistency import consistency
from holdfast.engine.protect.checkpointer import Done, Guards, Stores
from holdfast.engine.protect.shadow import Beside, BesideGuards
from holdfast.engine.protect.wiring import wirings
from holdfast.engine.unit.state_files import StateFiles
from holdfast.errors import HoldfastError
from holdfast.frames.content import checksum
from holdfast.frames.files import write_frame
from holdfast.frames.identity import Kind
from holdfast.graph.edge_ids import Consumer, EdgeId
from holdfast.graph.units import cut
from holdfast.hosts.stores import OpenStore
from holdfast.operators.runs import RunRef
from holdfast.protocols.dialogue import CheckpointStored, StoreCheckpoint
from holdfast.protocols.messages import ClaimSent, Stage

SOON_S = 30  # how long a test waits for what must come; only a failing one does
ECOC = hf.ecoc(every=hf.frames(2))


class Query:
    """A unit's query, as far as its guard knows it: real state files and commit records."""

    made_after = 0  # its frames after this one are made by the code of now

    def __init__(self, unit, folder) -> None:
        self.unit, self.folder, self.committed = unit, folder, 0
        self.files = StateFiles(folder, ["sum"], spark_epoch=None, two_phase=True)
        self.gave_in: list = []

    def commit(self, n: int, **state) -> None:
        self.files.remember({"n": n, "state": state})
        self.committed = n

    def give_in(self, error) -> None:
        self.gave_in.append(error)


class Plant:
    """rows -> first -> second -> sink; frames are sealed as files that can be read again."""

    def __init__(self, root, first=ECOC, second=ECOC, beside=None) -> None:
        self.root, self.errors, self.arrived = root, [], threading.Condition()
        p = hf.StreamProcess("p", frame="1 second", time="ts")
        p.source("rows", hf.read.files(str(root / "*.csv")), schema="ts timestamp, x int")
        p.operator(over="frame", protect=ECOC)(named("first", lambda rows: rows))
        p.operator(over="frame", protect=hf.none)(named("second", lambda first: first))  # else both were one unit
        p.sink("second", hf.write.console())
        self.graph = p.graph()
        declared = {"first": first, "second": second}
        made = [replace(unit, protect=declared[unit.name]) for unit in cut(self.graph)]
        self.units = {unit.name: unit for unit in made}
        self.board = Board(closing_frames=1)
        self.board.streams["rows"] = StreamQueue("rows", 1_000_000, True, acked={Consumer.unit("first"): 0})
        for name, source, reader in (
            ("first", "rows", Consumer.unit("second")),
            ("second", "first", Consumer.sink("second")),
        ):
            self.board.streams[name] = StreamQueue(name, 1_000_000, False, keeps_unacked=True, acked={reader: 0})
            self.board.units[name] = UnitState(name, (UnitInputState(source),), (name,))
        self.board.sinks["second"] = ("second", 0)
        self.forgotten: list[tuple[str, int]] = []
        self.board.on_forget(lambda stream, sealed: self.forgotten.append((stream, sealed.n)))
        self.guards = Guards(self.graph, made, self.board, fail=self.errors.append, chance=random.Random(1))
        self.stores = {name: OpenStore(name, str(root / "stores" / name)) for name in self.units}
        self.queries = {name: Query(unit, root / name) for name, unit in self.units.items()}
        self.beside = None
        if beside is not None:
            self.beside = BesideGuards(self.graph, made, self.board, beside, self.errors.append)
            self.guards.followers = (self.beside,)
        self._stored = {}
        self._watch()

    def _watch(self) -> None:
        heard = self.guards._heard

        def note(name, event, said):
            heard(name, event, said)
            if isinstance(event, CheckpointStored):
                with self.arrived:
                    self._stored[name] = self.guards._newest[name].frame
                    self.arrived.notify_all()

        self.guards._heard = note

    def start(self, epoch=1, at=0) -> Plant:
        for name, query in self.queries.items():
            if not self.guards.keeps_nothing(name):
                self.stores[name].ask(ClaimSent(name, epoch, f"run {epoch}"))
                self.guards.settle(name, Stores((self.stores[name],)), 0, None)
            self.guards.join(query, at, epoch)
        return self

    def make(self, name, n) -> None:
        """A unit makes frame n: sealed, committed, and its guard hears of it."""
        table, about = pa.table({"x": [1, 2, 3]}), {"n": n, "boundary_us": n, "kind": Kind.STABLE}
        path = write_frame(self.root, table, stream=name, epoch=1, checksum=checksum(table, **about), **about)
        size = path.stat().st_size
        self.board.seal(name, Sealed(n, n, 3, size, f"{name}{n}", 1, file=str(path)))
        self.queries[name].commit(n)
        self.board.process(name, n, 1.0)
        self.guards.processed(name, Done(n=n, rows=3, state_bytes=10, input_bytes=(size,)))

    def read(self, n) -> None:
        self.board.seal("rows", Sealed(n, n, 3, 10, f"rows{n}", 1))

    def write(self, n) -> None:
        self.board.write("second", n)
        self.board.acknowledge("second", Consumer.sink("second"), n)

    def frame(self, n) -> None:
        self.read(n)
        self.make("first", n)
        self.make("second", n)
        self.write(n)

    def await_stored(self, name, frame) -> None:
        with self.arrived:
            done = self.arrived.wait_for(lambda: self._stored.get(name, 0) >= frame or self.errors, SOON_S)
        with self.guards._lock:  # all that follows from it is done
            assert done and not self.errors, (self.errors, self.guards.troubles)


def named(name, function):
    function.__name__ = function.__qualname__ = name
    return function


@pytest.fixture
def plant(tmp_path):
    made = []

    def build(**declared):
        made.append(Plant(tmp_path, **declared))
        return made[-1]

    yield build
    for each in made:
        each.guards.close()


def test_a_checkpoint_is_stored_and_only_then_are_its_inputs_forgotten(plant):
    """Upstream may forget a frame only once a stored checkpoint covers it."""
    run = plant().start()
    run.frame(1)
    assert run.forgotten == [("second", 1)]  # the sink has it; nobody stored a checkpoint yet
    for n in (2, 3):
        run.frame(n)
    run.await_stored("second", 2)
    run.await_stored("first", 2)
    assert {each for each in run.forgotten if each[1] <= 2} >= {("rows", 1), ("rows", 2), ("first", 1), ("first", 2)}
    assert ("first", 3) not in run.forgotten and ("rows", 3) not in run.forgotten
    assert run.guards.safe("second", 3) == 2
    ages = run.guards.ages()
    assert (ages["first"][0], ages["second"][0]) == (3, 3) and ages["second"][1] >= 2


def test_a_sink_that_lags_keeps_a_checkpoint_pending(plant):
    """Permanent before the sink has its frames, it would start behind them and never send them again."""
    run = plant().start()
    for n in (1, 2):
        run.read(n)
        run.make("first", n)
        run.make("second", n)
    assert run.guards.stored("second") == 0
    assert run.guards._guards["second"].driver.machine.pending == (2,)
    run.write(2)
    run.await_stored("second", 2)


def test_an_uncoordinated_checkpoint_holds_the_frames_that_nobody_has(plant):
    """Its consumer may need them, and the producer forgets its own inputs."""
    each = hf.uncoordinated(every=hf.frames(2))
    run = plant(first=each, second=each).start()
    for n in (1, 2, 3, 4):
        run.read(n)
        run.make("first", n)
    run.await_stored("first", 1)
    edge = EdgeId("first", Consumer.unit("second"))
    assert run.guards.held_after("first", edge) == 0
    packed = run.guards._newest["first"]
    assert packed.queues == ((edge, 0),)
    [status] = [s for s in consistency(run.board, run.guards) if s.stream == "first"]
    assert (status.consumer, status.stored) == ("second", True)


def test_two_phases_ship_at_once_and_count_when_all_below_have_stored(plant):
    each = hf.ecoc(every=hf.frames(2), two_phase=True)
    run = plant(first=each, second=each).start()
    for n in range(1, 7):
        run.frame(n)
    run.await_stored("first", 2)
    assert run.guards.stored("second") >= run.guards.stored("first")


def test_one_that_may_lose_acknowledges_what_it_processed_a_little_late(plant):
    run = plant(first=hf.snapshot(every=hf.elements(6)), second=hf.none).start()
    for n in range(1, 6):
        run.frame(n)
    run.await_stored("first", 2)
    assert run.board.streams["rows"].acked[Consumer.unit("first")] == 3
    assert run.guards.is_lossy("first") and run.guards.keeps_nothing("second")
    assert run.guards.safe("first", 5) == 3 and "second" not in run.guards.ages()


def test_a_queue_that_fills_up_asks_for_a_checkpoint_before_its_interval(plant):
    """A checkpoint that comes when the queue is full comes too late."""
    each = hf.uncoordinated(every=hf.frames(1000))
    run = plant(first=each, second=each).start()
    run.board.streams["first"].bytes_bound = 2_000
    for n in (1, 2, 3):
        run.read(n)
        run.make("first", n)
    run.await_stored("first", 1)


def test_a_new_attempt_goes_on_and_the_old_one_says_nothing_more(plant):
    """What an attempt that is over still ships must not count for the next one."""
    run = plant().start()
    for n in (1, 2):
        run.frame(n)
    run.await_stored("first", 2)
    old, stored = run.guards._guards["first"], run.guards._newest["first"]
    run.guards.leave("first")
    run.guards._shipped(old, replace(stored, frame=99), Stage.FINAL)
    assert run.guards.stored("first") == 2 and old.is_over
    run.guards.settle("first", Stores((run.stores["first"],)), 2, stored)
    run.stores["first"].ask(ClaimSent("first", 2, "run 2"))
    run.guards.join(run.queries["first"], 2, 2)
    for n in (3, 4):
        run.frame(n)
    run.await_stored("first", 4)
    run.guards.leave("nobody")


def test_one_whose_copies_are_gone_stores_at_once(plant):
    """It could not be put back, and its interval may be far away."""
    run = plant(first=hf.uncoordinated(every=hf.frames(1000)))
    for n in (1, 2):
        run.queries["first"].commit(n)
        run.queries["second"].commit(n)
    run.start(at=2)
    run.await_stored("first", 2)


def test_a_checkpoint_of_code_that_was_changed_since_is_replaced_at_once(plant):
    """Put back to it, the unit would make frames by code that is gone."""
    run = plant(first=hf.uncoordinated(every=hf.frames(1000)))
    for n in (1, 2, 3):
        run.queries["first"].commit(n)
        run.queries["second"].commit(n)
    run.queries["first"].made_after = 3
    run.start(at=3)
    run.await_stored("first", 3)


def test_a_state_file_that_is_missing_is_the_trouble_of_its_unit_alone(plant):
    run = plant().start()
    run.frame(1)
    run.read(2)
    query = run.queries["first"]
    query.commit(2, sum={"0": [RunRef("not-there", 0, 0, 1, 8).to_json()]})
    run.board.seal("first", Sealed(2, 2, 1, 10, "first2", 1, file=""))
    run.guards.processed("first", Done(n=2, rows=1, state_bytes=1, input_bytes=(1,)))
    assert [error.code for error in query.gave_in] == ["HF-O010"]
    assert run.guards._guards["first"].is_over and not run.errors
    run.make("second", 2)  # heard, though it was asked by one that is over
    assert not run.queries["second"].gave_in


def test_another_run_on_the_same_store_stops_this_one(plant):
    run = plant().start()
    run.stores["second"].ask(ClaimSent("second", 7, "another run"))
    for n in (1, 2):
        run.frame(n)
    with run.arrived:
        run.arrived.wait_for(lambda: run.errors, SOON_S)
    assert isinstance(run.errors[0], HoldfastError) and run.errors[0].code == "HF-R013"


def test_what_the_proof_excludes_stops_the_run_with_a_report(plant):
    run = plant().start()
    run.guards._todo.append(("first", CheckpointStored(99, 1)))
    run.guards._drain()
    assert [error.code for error in run.errors] == ["HF-X001"]


def test_a_store_that_lost_its_folder_is_sent_the_newest_checkpoint_again(plant):
    run = plant().start()
    for n in (1, 2):
        run.frame(n)
    run.await_stored("second", 2)
    shipped = []
    run.guards._guards["second"].shipper.again = shipped.append
    run.guards.store_lost("second")
    assert shipped == ["second"]


def test_a_protection_beside_the_declared_one_is_not_noticed_by_the_run(plant, tmp_path):
    """It keeps frames for its own checkpoints, acknowledges to nobody, and holds nobody back."""
    heard = []
    beside = Beside(
        "rare", hf.uncoordinated(every=hf.frames(2)), OpenStore("beside", str(tmp_path / "beside")), {"first": 1},
        heard=lambda name, event, said: heard.append((name, [type(each) for each in said])),
    )  # fmt: skip
    run = plant(beside=beside).start()
    for n in range(1, 4):
        run.frame(n)
    run.await_stored("first", 2)
    assert any(StoreCheckpoint in said for _, said in heard)
    assert set(run.board.streams["first"].held) == {"beside rare"} and run.board.streams["rows"].held == {}
    assert run.guards.troubles == {} and not run.errors
    run.guards.leave("first")
    assert "first" not in run.beside._guards


def test_wirings_know_cycles_delays_lags_and_sinks():
    unit = SimpleNamespace
    ports = [unit(stream="rows", feedback_frames=0), unit(stream="b", feedback_frames=1)]
    units = [
        unit(name="a", inputs=ports, outputs=("a",), protect=hf.none),
        unit(name="b", inputs=[unit(stream="a", feedback_frames=0)], outputs=("b",), protect=ECOC),
    ]
    graph = unit(sinks_of=lambda stream: [unit(name="out")] if stream == "b" else [])
    found = wirings(units, graph)
    assert [str(e.edge) for e in found["a"].inputs] == ["rows>a", "b>a@1"]
    assert [(e.outside, e.on_cycle, e.delay) for e in found["a"].inputs] == [(True, False, 0), (False, True, 1)]
    assert [(str(e.edge), e.outside, e.lag) for e in found["b"].outputs] == [
        ("b>a@1", False, 2),
        ("b>sink out", True, 0),
    ]
    assert found["a"].is_source and found["a"].outputs[0].lag == 0
