"""Cutting by element time: what an element's frame depends on."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Broken, SourceError
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import NULL_US, Cutter, times_of
from holdfast.frames.identity import END_US

CLOCK = FrameClock(t0_us=100, frame_us=10)
TIMES = st.lists(
    st.integers(80, 200) | st.sampled_from([NULL_US, NULL_US + 1, END_US, END_US - 1, 2**63 - 1]),
    max_size=30,
)
GRACES = st.integers(0, 35)


def one_by_one(times: list[int], grace: int, floor: int = 0) -> tuple[list[int], list[bool]]:
    """The rule as said in words: look at the newest element before each element."""
    newest, frames, late = None, [], []
    for time in times:
        closed = floor
        if newest == END_US - 1:  # too many frames to count one by one
            closed = (newest - grace - 100) // 10
        while newest is not None and CLOCK.boundary_us(closed + 1) + grace <= newest:
            closed += 1
        usable = -(10**17) < time < END_US
        own = (time - 100) // 10 + 1 if usable else 0
        frames.append(max(own, closed + 1))
        late.append(own <= closed)
        if usable:
            newest = time if newest is None else max(newest, time)
    return frames, late


def in_feeds(cutter: Cutter, times: list[int], cuts: list[int]) -> tuple[list, list, list]:
    frames, late, closed = [], [], []
    edges = [0, *sorted(cuts), len(times)]
    for start, stop in zip(edges, edges[1:], strict=False):
        found = cutter.feed(np.array(times[start:stop], dtype=np.int64))
        frames += found.frames.tolist()
        late += found.late.tolist()
        closed.append(found.closed)
    return frames, late, closed


@given(TIMES, GRACES, st.integers(1, 5))
def test_an_element_s_frame_depends_only_on_the_elements_before_it(times, grace, first_open):
    cutter = Cutter(CLOCK, grace, "admit", first_open)
    found = cutter.feed(np.array(times, dtype=np.int64))
    expected = one_by_one(times, grace, first_open - 1)
    assert (found.frames.tolist(), found.late.tolist()) == expected


@given(TIMES, GRACES, st.data())
def test_frames_do_not_depend_on_how_the_input_is_handed_over(times, grace, data):
    """A file index and a live reader feed in other sizes; a replay must agree with both."""
    cuts = data.draw(st.lists(st.integers(0, len(times)), max_size=5))
    whole, parts = Cutter(CLOCK, grace), Cutter(CLOCK, grace)
    assert in_feeds(whole, times, [])[:2] == in_feeds(parts, times, cuts)[:2]
    assert whole.state() == parts.state()
    assert whole.finish() == parts.finish()


@given(TIMES, GRACES, st.data())
def test_a_restored_cutter_goes_on_as_if_nothing_had_happened(times, grace, data):
    at = data.draw(st.integers(0, len(times)))
    whole, before = Cutter(CLOCK, grace), Cutter(CLOCK, grace)
    expected = in_feeds(whole, times, [at])
    first = in_feeds(before, times[:at], [])
    after = Cutter.restored(json.loads(json.dumps(before.state())))
    second = in_feeds(after, times[at:], [])
    assert (first[0] + second[0], first[1] + second[1]) == expected[:2]
    assert after.state() == whole.state()


@given(TIMES, GRACES, st.data())
def test_nothing_falls_into_a_closed_frame(times, grace, data):
    """A closed frame is sealed; an element put into it would be lost."""
    cuts = data.draw(st.lists(st.integers(0, len(times)), max_size=5))
    cutter, closed = Cutter(CLOCK, grace), 0
    edges = [0, *sorted(cuts), len(times)]
    for start, stop in zip(edges, edges[1:], strict=False):
        found = cutter.feed(np.array(times[start:stop], dtype=np.int64))
        assert (found.frames > closed).all()
        assert found.closed >= closed
        closed = found.closed
        if data.draw(st.booleans()):
            closed = max(closed, data.draw(st.integers(0, 12)))
            cutter.close(closed)
            assert cutter.closed == closed
    assert cutter.finish() >= closed


@given(TIMES, GRACES)
def test_an_element_within_grace_is_not_late(times, grace):
    """Grace is a promise: whoever is at most that much behind keeps his own frame."""
    found = Cutter(CLOCK, grace).feed(np.array(times, dtype=np.int64))
    newest = 100
    for i, time in enumerate(times):
        if not -(10**17) < time < END_US:
            assert found.late[i]
            continue
        if time >= 100 and newest - time <= grace:
            assert not found.late[i]
            assert found.frames[i] == CLOCK.frame_at(time)
        newest = max(newest, time)


@given(TIMES, GRACES, st.sampled_from(["admit", "drop", "quarantine"]))
def test_runs_name_every_kept_element_once(times, grace, late):
    found = Cutter(CLOCK, grace, late).feed(np.array(times, dtype=np.int64))
    rebuilt = np.zeros(len(times), dtype=np.int64)
    for n, start, stop in found.runs():
        assert (rebuilt[start:stop] == 0).all()
        rebuilt[start:stop] = n
    assert rebuilt.tolist() == np.where(found.kept, found.frames, 0).tolist()
    aside = sum(stop - start for _, start, stop in found.runs(~found.kept))
    assert aside == (0 if late == "admit" else found.late.sum())


def test_frame_closes_at_boundary_plus_grace_and_not_before():
    cutter = Cutter(CLOCK, grace_us=5)
    assert cutter.feed(np.array([100, 114])).closed == 0
    assert cutter.feed(np.array([109])).late.tolist() == [False]
    assert cutter.feed(np.array([115])).closed == 1
    found = cutter.feed(np.array([109]))
    assert (found.frames.tolist(), found.late.tolist()) == ([2], [True])


def test_an_unknown_date_does_not_close_the_stream():
    """9999-12-31 taken at its word would make every later element late."""
    cutter = Cutter(CLOCK, 0)
    found = cutter.feed(np.array([101, 253_402_214_400_000_000, NULL_US, 102]))
    assert found.frames.tolist() == [1, 1, 1, 1]
    assert found.late.tolist() == [False, True, True, False]
    assert cutter.finish() == 1


def test_an_empty_input_has_no_frames():
    assert Cutter(CLOCK, 0).finish() == 0


def test_fail_names_the_element_and_takes_nothing():
    """The feed that raises must leave no half-counted elements behind."""
    cutter = Cutter(CLOCK, 0, "fail")
    cutter.feed(np.array([100, 125]))
    before = cutter.state()
    with pytest.raises(SourceError, match="HF-F004 ElementLate: element 3") as raised:
        cutter.feed(np.array([126, 109]))
    assert "1970-01-01T00:00:00.000109Z" in raised.value.what
    assert cutter.state() == before


def test_nothing_comes_after_the_end():
    cutter = Cutter(CLOCK, 0)
    cutter.finish()
    with pytest.raises(Broken):
        cutter.feed(np.array([100]))


def test_times_of_reads_any_unit_and_marks_nulls():
    column = pa.chunked_array([pa.array([1, None, -1], pa.timestamp("ms", tz="UTC"))])
    assert times_of(column).tolist() == [1000, NULL_US, -1000]
    nanos = pa.array([1500, None], pa.timestamp("ns"))
    assert times_of(nanos).tolist() == [1, NULL_US]


def test_datetime64_and_integers_are_cut_alike():
    times = np.array([101, 125, NULL_US])
    expected = Cutter(CLOCK, 0).feed(times).frames
    assert Cutter(CLOCK, 0).feed(times.view("datetime64[us]")).frames.tolist() == expected.tolist()
