"""The board: who may take which frame, and who holds whom."""

from __future__ import annotations

import pytest

from holdfast.engine.flow.queues import Permit, Sealed, StreamQueue, UnitInputState
from holdfast.engine.flow.scheduler import Board, Hold, UnitState
from holdfast.errors import Broken, StateRefused
from holdfast.frames.clock import FrameClock
from holdfast.frames.identity import END_US


def a_board(*sources: str, closing: int = 1) -> Board:
    board = Board(closing_frames=closing)
    board.clock = FrameClock(0, 1_000_000)
    for source in sources:
        board.streams[source] = StreamQueue(source, 1000, True)
    return board


def a_unit(board: Board, name: str, *inputs: str, feedback: dict[str, int] | None = None, **fields) -> UnitState:
    ports = tuple(UnitInputState(stream) for stream in inputs)
    ports += tuple(UnitInputState(stream, k) for stream, k in (feedback or {}).items())
    unit = board.units[name] = UnitState(name, ports, (f"{name}.out",), **fields)
    board.streams[f"{name}.out"] = StreamQueue(f"{name}.out", 1000, False)
    for stream in inputs:
        board.streams[stream].acked[name] = 0
    return unit


def sealed(n: int, size: int = 10) -> Sealed:
    return Sealed(n, n * 1_000_000, 1, size, f"sum-{n}", 1)


def test_a_frame_waits_for_every_input_and_says_for_which():
    """Aligned inputs are what makes a join need no log of interleavings."""
    board = a_board("ecg", "acc")
    unit = a_unit(board, "alarms", "ecg", "acc")
    board.seal("ecg", sealed(1))

    assert board.next_permit(unit) == Hold("waits for frame 1 of source acc")

    board.seal("acc", sealed(1))
    assert isinstance(board.next_permit(unit), Permit)


def test_a_feedback_port_is_empty_in_the_first_frames_and_then_lags():
    board = a_board("probes")
    unit = a_unit(board, "damped", "probes")
    unit.inputs += (UnitInputState("damped.out", 2),)
    for n in range(1, 5):
        board.seal("probes", sealed(n))

    first = board.next_permit(unit)
    assert first.inputs[1][1] is None
    unit.permitted = 2
    unit.processed = 2
    assert board.next_permit(unit) == Hold("waits for frame 1 of stream damped.out")
    board.seal("damped.out", sealed(1))
    assert board.next_permit(unit).inputs[1][1].n == 1


def test_a_full_queue_holds_its_producer_and_names_the_slow_consumer():
    """Without a bound one dead sink fills the disk and takes everything with it."""
    board = a_board("rows")
    unit = a_unit(board, "big", "rows")
    board.streams["big.out"].acked["sink slow"] = 0
    for n in (1, 2, 3):
        board.seal("rows", sealed(n))
    board.seal("big.out", sealed(1, size=600))
    board.seal("big.out", sealed(2, size=600))
    unit.permitted = unit.processed = 2

    verdict = board.next_permit(unit)
    assert isinstance(verdict, Hold)
    assert "sink slow" in verdict.why

    board.acknowledge("big.out", "sink slow", 2)
    assert isinstance(board.next_permit(unit), Permit)


def test_a_frame_is_forgotten_only_when_all_consumers_acknowledged_it():
    board = a_board("rows")
    board.streams["rows"].acked = {"fast": 0, "slow": 0}
    gone = []
    board.on_forget(lambda stream, frame: gone.append(frame.n))
    for n in (1, 2, 3):
        board.seal("rows", sealed(n))

    board.acknowledge("rows", "fast", 3)
    assert gone == []
    board.acknowledge("rows", "slow", 2)
    assert gone == [1, 2]
    board.acknowledge("rows", "slow", 1)  # an old one may come late
    assert board.streams["rows"].acked["slow"] == 2


def test_a_trimmed_frame_that_is_needed_again_is_a_defect_not_an_empty_frame():
    board = a_board("rows")
    unit = a_unit(board, "big", "rows")
    board.streams["rows"].sealed = 5

    with pytest.raises(Broken, match="trimmed"):
        board.next_permit(unit)


def test_a_frame_nobody_keeps_any_more_is_said_to_be_gone_where_hosts_can_be_lost():
    """Not a defect: its reader had stored what it made of it, and lost that."""
    board = a_board("rows")
    board.on_acknowledged(lambda stream, consumer, n: None)
    unit = a_unit(board, "big", "rows")
    board.streams["rows"].sealed = 5

    with pytest.raises(StateRefused) as caught:
        board.next_permit(unit)
    assert caught.value.code == "HF-R016"


def test_a_shorter_source_is_empty_to_the_end_and_the_end_comes_after_the_longest():
    board = a_board("long", "short", closing=2)
    unit = a_unit(board, "both", "long", "short", ahead=100)
    for n in (1, 2, 3):
        board.seal("long", sealed(n))
    board.seal("short", sealed(1))
    board.end("short", 1)
    unit.permitted = unit.processed = 1

    second = board.next_permit(unit)
    assert second.inputs[1][1].rows == 0
    unit.permitted = unit.processed = 3
    assert isinstance(board.next_permit(unit), Hold)  # the long one may still speak

    board.end("long", 3)
    fourth = board.next_permit(unit)
    assert (fourth.n, fourth.boundary_us, fourth.since_us) == (4, END_US, 3_000_000)
    unit.permitted = unit.processed = 5
    assert board.next_permit(unit) == Hold("done")


def test_the_end_reaches_a_unit_behind_a_late_stage_a_frame_later():
    """Spark's windows answer one frame late; a window behind them must not close before."""
    board = a_board("rows", closing=3)
    unit = a_unit(board, "second", "rows", depth=1, ahead=100)
    board.seal("rows", sealed(1))
    board.end("rows", 1)
    unit.permitted = unit.processed = 1

    assert board.next_permit(unit).boundary_us == 2_000_000
    unit.permitted = unit.processed = 2
    assert board.next_permit(unit).boundary_us == END_US


def test_a_closing_frame_in_a_queue_is_taken_as_one_before_the_sources_are_read_again():
    """Killed while closing: the unit above had made it, this one had not. Taken as any frame, it closed no window."""
    board = a_board("ecg", "acc")
    a_unit(board, "pulse", "ecg", "acc")
    unit = a_unit(board, "alarms", "pulse.out", permitted=8, processed=8)
    board.streams["pulse.out"].sealed = 8
    board.seal("pulse.out", Sealed(9, END_US, 0, 0, "end", 1))
    assert board.next_permit(unit).boundary_us == 9_000_000  # no run before went beyond the end

    board.streams["ecg"].closed_at = 5
    assert board.next_permit(unit).boundary_us == 9_000_000  # the other one may go on
    board.streams["acc"].closed_at = 8
    assert board.next_permit(unit).boundary_us == END_US
    unit.depth = 1
    assert board.next_permit(unit).boundary_us == 9_000_000
    assert board.last_frame is None  # what the sources have now is looked at all the same


def test_who_keeps_frames_beside_the_consumers_holds_nobody_back():
    """A protection that is only tried must not make the run wait, nor find its frames gone."""
    board = a_board("ecg")
    a_unit(board, "alarms", "ecg")
    gone = []
    board.on_forget(lambda stream, frame: gone.append(frame.n))
    board.hold("ecg", "beside rare", 0)
    for n in (1, 2, 3):
        board.seal("ecg", sealed(n, size=400))
    board.acknowledge("ecg", "alarms", 3)

    queue = board.streams["ecg"]
    assert gone == [] and sorted(queue.frames) == [1, 2, 3]
    assert queue.unacked_bytes() == queue.waiting_bytes() == 0

    board.hold("ecg", "beside rare", 2)
    assert gone == [1, 2]


def test_all_who_asked_hear_of_an_acknowledgement():
    board, heard = a_board("ecg"), []
    a_unit(board, "alarms", "ecg")
    for name in "ab":
        board.on_acknowledged(lambda *told, name=name: heard.append((name, *told)))
    board.acknowledge("ecg", "alarms", 3)

    assert heard == [("a", "ecg", "alarms", 3), ("b", "ecg", "alarms", 3)]
