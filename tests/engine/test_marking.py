"""Marks from permits and commit records: over a gap, over restarts, over a second loss; and what is kept for a remake."""

from __future__ import annotations

import math

import pytest

import holdfast as hf
from holdfast.engine.flow.marking import Marker
from holdfast.engine.flow.promises import PromiseWatch
from holdfast.engine.flow.queues import Permit, Sealed, StreamQueue, UnitInputState
from holdfast.engine.flow.scheduler import Board, UnitState
from holdfast.engine.recover.skip_lost import Neighbours, go_on_after
from holdfast.engine.unit.state_files import RECORDS_KEPT, RECORDS_UNWRITTEN, StateFiles
from holdfast.frames.files import frame_name, read_record
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.graph.units import cut
from holdfast.journals.journal import Journal
from holdfast.protocols.taint import Mark
from holdfast.protocols.wiring import InputEdge, OutputEdge, Wiring

SECOND = 1_000_000
SCHEMA = Schema.of("zone int, n bigint")


@pytest.fixture
def process(tmp_path):
    p = hf.StreamProcess("ward", frame="1 second", time="ts")
    p.source("rows", hf.read.files(str(tmp_path / "*.parquet")), schema="ts timestamp, zone int")
    p.aggregate("w", of="rows", by="zone", window="10 seconds", emits={"n": "count(*)"})
    p.sink("w", hf.write.console(), promise=hf.loses(at_most=0.5, wrong_at_most=0.5))
    return p


def permit(n, **of_input):
    sealed = Sealed(n, n * SECOND, 3, 30, f"c{n}", 1, **of_input)
    return Permit(n, n * SECOND, (n - 1) * SECOND, ((UnitInputState("rows"), sealed),))


def made(n, rows=2):
    return {"w": Sealed(n, n * SECOND, rows, 20, f"w{n}", 1)}


def marker_of(process):
    graph = process.graph()
    return Marker(graph, cut(graph)[0])


def commit(marker, n, journal=None, **of_input):
    marker.look([permit(n, **of_input)])
    marks = marker.at(n)
    record = {"n": n, "state": {"w": {}}, **marker.committed(n, made(n), {"w.late_rows": n % 2})}
    if journal is not None:
        journal.append(record)
    return marks, record


def lose(folder, process, tallies, *, restored, reached, epoch=2):
    """The host is lost: state of `restored`, a consumer at `reached`, no input before `reached + 1`."""
    wiring = Wiring(
        "w", (InputEdge("rows>w", "rows", outside=True),), (OutputEdge("w>sink", 0, "sink w", outside=True),)
    )
    (folder / "w").mkdir(parents=True, exist_ok=True)
    return go_on_after(
        folder / "unit", wiring, restored, Neighbours({"w>sink": reached[0]}, {"rows>w": reached[1] + 1}),
        [(folder / "w", "w", SCHEMA)], staging=folder / "w", epoch=epoch, boundary_us=reached[1] * SECOND, tallies=tallies,
    )  # fmt: skip


def test_a_unit_that_lost_frames_marks_what_it_makes_until_its_windows_have_closed(process, tmp_path):
    journal, before = Journal(tmp_path / "unit", "commits"), marker_of(process)
    for n in range(1, 9):
        assert commit(before, n, journal)[0] == {}
    journal.close()
    placed = lose(tmp_path, process, before.tallies, restored=8, reached=(20, 25))
    assert (placed.frame, placed.lost) == (25, (21, 25))
    lost = read_record(tmp_path / "w" / frame_name(21, Kind.LOST))
    assert lost.reason and lost.kind is Kind.LOST
    after = marker_of(process)
    after.recover(Journal(tmp_path / "unit", "commits").last(), begun=0)
    why = "the state of w lacks frames 9 to 25"
    first, record = commit(after, 26)
    assert first == {"w": Mark(25 * SECOND, why)} and record["marks"] == {"w": why}
    again = marker_of(process)
    again.recover(record, begun=0)
    marked = {26} | {n for n in range(27, 45) if commit(again, n)[0]}
    assert marked == set(range(26, 36))
    tally = again.tallies["w"]
    assert (tally.frames, tally.lost, tally.tainted, tally.tainted_rows, tally.since) == (27, 5, 10, 20, 0)
    assert tally.words() == "5 frames LOST; 10 frames tainted (20 rows), none now"


def test_a_second_loss_before_the_next_frame_forgets_no_gap(process, tmp_path):
    marker = marker_of(process)
    lose(tmp_path, process, marker.tallies, restored=0, reached=(3, 5))
    lose(tmp_path, process, marker.tallies, restored=5, reached=(5, 5), epoch=3)
    lose(tmp_path, process, marker.tallies, restored=5, reached=(6, 7), epoch=4)
    record = Journal(tmp_path / "unit", "commits").last()
    for begun in (0, 7):  # begun 7: it has no state at all and begins there, with the same gap
        after = marker_of(process)
        after.recover(record, begun=begun)
        assert commit(after, 8)[0]["w"].why == "the state of w lacks frames 1 to 7"
    assert after.tallies["w"].lost == 3


def test_state_that_begins_anew_as_the_user_said_has_no_gap(process):
    """--fresh: what was before is not its own, and nothing is missing in what follows."""
    marker = marker_of(process)
    _, record = commit(marker, 4, kind="lost")
    assert record["gaps"]
    fresh = marker_of(process)
    fresh.recover(record, begun=4)
    assert commit(fresh, 5)[0] == {}


def test_what_was_counted_decides_the_promise(process):
    watch, marker = PromiseWatch(process.graph()), marker_of(process)
    commit(marker, 2)
    [kept] = watch.statuses({}, {}, 0.0, {"w": marker})
    assert kept.state == "kept"
    commit(marker, 3, mark=Mark(3 * SECOND, "frame 3 of x is LOST"))
    commit(marker, 4)
    commit(marker, 5)
    [broken] = watch.statuses({}, {}, 0.0, {"w": marker})
    assert broken.state == "BROKEN" and "3 frames tainted (6 rows), since frame 3: frame 3 of x is LOST" in broken.why
    assert "2 rows came too late for w" in broken.why


def test_a_lossless_output_is_broken_by_one_row_that_came_too_late(tmp_path):
    p = hf.StreamProcess("ward", frame="1 second", time="ts")
    p.source("rows", hf.read.files(str(tmp_path / "*.parquet")), schema="ts timestamp, zone int")
    p.aggregate("w", of="rows", by="zone", window="10 seconds", emits={"n": "count(*)"})
    p.sink("w", hf.write.console(), promise=hf.lossless)
    watch, marker = PromiseWatch(p.graph()), marker_of(p)
    commit(marker, 2)
    assert [each.state for each in watch.statuses({}, {}, 0.0, {"w": marker})] == ["kept"]
    commit(marker, 3)
    [found] = watch.statuses({}, {}, 0.0, {"w": marker})
    assert (found.state, found.why) == ("BROKEN", "1 rows came too late for w")


# ---- what is kept so that a frame can be made again ----


@pytest.fixture
def board():
    """a reads the source, b reads a and itself a frame late, a sink has what b made."""
    made = Board(closing_frames=1)
    for name in ("source", "a", "b"):
        made.streams[name] = StreamQueue(name, 1000, name == "source")
    made.units["a"] = UnitState("a", (UnitInputState("source"),), ("a",))
    made.units["b"] = UnitState("b", (UnitInputState("a"), UnitInputState("b", 1)), ("b",))
    made.sinks["out"] = ("b", 0)
    made.streams["source"].acked = {"a": 0}
    made.streams["a"].acked = {"b": 0}
    made.streams["b"].acked = {"sink out": 0, "b": 0}
    made.keep_for_remaking()
    for n in range(1, 9):
        for name in ("source", "a", "b"):
            made.seal(name, Sealed(n, n, 1, 100, f"{name}{n}", 1, file=f"{name}/{n}"))
    return made


def test_inputs_stay_until_the_sinks_below_have_what_was_made_of_them(board):
    gone = []
    board.on_forget(lambda stream, sealed: gone.append((stream, sealed.n)))
    board.acknowledge("source", "a", 6)
    board.acknowledge("a", "b", 6)
    board.acknowledge("b", "b", 5)
    assert gone == []
    board.write("out", 3)
    board.acknowledge("b", "sink out", 3)
    assert sorted(board.streams["source"].frames) == sorted(board.streams["a"].frames) == [4, 5, 6, 7, 8]
    assert sorted(board.streams["b"].frames) == [3, 4, 5, 6, 7, 8], "over feedback frame 4 was made of frame 3"
    assert ("a", 3) in gone and ("b", 2) in gone and ("b", 3) not in gone
    assert (board.unwritten_after("a"), board.unwritten_after("b")) == (3, 3)


def test_before_the_sinks_are_known_everything_stays(board):
    """A unit reads its records before the sinks are asked: it must not throw away what a frame is made again from."""
    young = Board(closing_frames=1)
    assert young.unwritten_after("a") == 0
    young.units = board.units
    young.keep_for_remaking()
    assert young.unwritten_after("a") == math.inf, "no sink"


def test_no_more_stays_than_a_queue_holds(board):
    board.streams["a"].bytes_bound = 250
    board.acknowledge("a", "b", 6)
    board.write("out", 1)
    assert sorted(board.streams["a"].frames) == [7, 8]


def test_units_on_hosts_keep_nothing_for_it(board):
    board.on_acknowledged(lambda stream, consumer, n: None)
    assert board.keep_for_remaking() == [] and board.unwritten_after("a") == math.inf


def test_state_files_stay_while_a_sink_has_not_written_their_frames(tmp_path):
    files = StateFiles(tmp_path, ["w"], spark_epoch=None)
    written = 4
    files.unwritten_after = lambda: written

    def there():
        return sorted(int(path.name) for path in files.runs("w").iterdir())

    def work(first, last):
        for n in range(first, last + 1):
            (files.runs("w") / str(n)).touch()
            files.remember({"n": n, "state": {"w": {"0": [[str(n), 1, 1]]}}})

    work(1, 10)
    assert there() == list(range(4, 11))
    written = 10
    work(11, 11)
    assert there() == [9, 10, 11]
    work(12, 200)
    assert len(there()) == RECORDS_KEPT + RECORDS_UNWRITTEN
