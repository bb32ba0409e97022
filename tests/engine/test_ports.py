"""A port that is new finds what its stream keeps, and says so; one that would leave out frames is refused."""

from __future__ import annotations

import pytest

from holdfast.engine.flow.ports import first_wanted, stand_ports
from holdfast.engine.flow.queues import Permit, Sealed, StreamQueue, UnitInputState
from holdfast.engine.flow.scheduler import Board, UnitState
from holdfast.errors import StateRefused
from holdfast.frames.clock import FrameClock


def board(*ports: UnitInputState, kept: range = range(0), sealed: int = 9, at: int = 5) -> Board:
    """Unit b at frame `at`, below stream a."""
    made = Board(closing_frames=1)
    made.clock = FrameClock(0, 1_000_000)
    made.streams = {
        "rows": StreamQueue("rows", 1000, True, sealed=9),
        "a": StreamQueue("a", 1000, False, sealed=sealed),
    }
    made.streams["b"] = StreamQueue("b", 1000, False, sealed=at)
    made.streams["rows"].frames = {n: Sealed(n, n, 1, 8, f"r{n}", 1) for n in range(1, 10)}
    made.streams["a"].frames = {n: Sealed(n, n, 1, 8, f"a{n}", 1) for n in kept}
    made.units["b"] = UnitState("b", (UnitInputState("rows"), *ports), ("b",), permitted=at, processed=at)
    return made


def stood(made: Board, old: dict | None, *, at: int = 5, once=(), has_hosts: bool = False):
    return stand_ports(made, {"b": at + 1}, old, once=once, has_hosts=has_hosts)


OLD = {"start": {"b": 0}, "ports": {"b": {"rows@0": 1}}}


def test_a_feedback_edge_that_is_new_is_empty_where_nothing_is_kept_and_so_it_stays():
    made = board(UnitInputState("a", 4), kept=range(4, 10))

    ports, told = stood(made, OLD)

    assert ports == {"b": {"rows@0": 1, "a@4": 4}}
    assert told == ["b reads a over a new feedback edge: it is empty up to frame 3"]
    permit = made.next_permit(made.units["b"])
    assert isinstance(permit, Permit)
    assert [each and each.n for _, each in permit.inputs] == [6, None]  # frame 2 of a
    # The next run goes back a frame, say, and takes the same for empty.
    again = board(UnitInputState("a", 4), kept=range(4, 10), at=5)
    assert stood(again, OLD | {"ports": ports}) == (ports, [])
    assert [each and each.n for _, each in again.next_permit(again.units["b"]).inputs] == [6, None]


def test_a_new_operator_that_reads_itself_begins_with_nothing():
    made = board(UnitInputState("b", 1))
    ports, told = stood(made, {"start": {"a": 0}, "ports": {"a": {}}})
    assert ports["b"]["b@1"] == 6 and len(told) == 1
    assert [each and each.n for _, each in made.next_permit(made.units["b"]).inputs] == [6, None]


@pytest.mark.parametrize("old", [OLD, {"start": {}, "ports": {}}, {"start": {"b": 0}, "inputs": {"b": ["rows"]}}])
def test_who_would_leave_out_frames_is_refused(old):
    with pytest.raises(StateRefused) as refused:
        stood(board(UnitInputState("a"), kept=range(8, 10)), old)
    assert refused.value.code == "HF-R018" and "undo that change" in refused.value.do
    assert stood(board(UnitInputState("a"), kept=range(6, 10)), old)[1] == []


def test_frames_that_are_gone_from_a_queue_are_told_before_anything_starts():
    known = {"start": {"b": 0}, "ports": {"b": {"rows@0": 1, "a@0": 1}}}
    with pytest.raises(StateRefused) as refused:
        stood(board(UnitInputState("a"), kept=range(8, 10)), known)
    assert refused.value.code == "HF-R018" and "restore the state folder" in refused.value.do
    stood(board(UnitInputState("a"), kept=range(8, 10)), known, has_hosts=True)  # they are made again


def test_a_source_is_read_from_where_its_latest_feedback_port_wants_it():
    made = board(UnitInputState("rows", 3))
    old = OLD | {"ports": {"b": {"rows@0": 1, "rows@3": 1}}}
    assert stood(made, old, once={"rows"}) == ({"b": {"rows@0": 1, "rows@3": 1}}, [])
    assert first_wanted(made, {"b": 6}, "rows") == 3
    assert first_wanted(made, {"b": 2}, "rows") == 1
    assert first_wanted(made, {"b": 6}, "other") == 1


def test_a_new_feedback_port_reads_a_file_again_and_of_a_live_source_what_comes():
    made = board(UnitInputState("rows", 3))
    assert stood(made, OLD)[0]["b"]["rows@3"] == 1
    assert first_wanted(made, {"b": 6}, "rows") == 3
    made = board(UnitInputState("rows", 3))
    assert stood(made, OLD, once={"rows"})[0]["b"]["rows@3"] == 6
    assert first_wanted(made, {"b": 6}, "rows") == 6
