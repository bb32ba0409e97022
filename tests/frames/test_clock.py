"""Frame numbers, boundaries and records."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Broken
from holdfast.frames.clock import FrameClock
from holdfast.frames.identity import END_US, FrameRecord, Kind

TIMES = st.integers(-(10**16), END_US)
FRAMES = st.integers(1, 10**12)


@given(TIMES, FRAMES, st.lists(TIMES))
def test_every_time_lies_inside_its_frame(first, frame_us, times):
    clock = FrameClock.starting(first, frame_us)
    for time, n in zip(times, clock.frame_of(np.array(times, dtype=np.int64)), strict=True):
        assert clock.start_us(int(n)) <= time < clock.boundary_us(int(n))
        assert clock.frame_at(time) == n


@given(TIMES, FRAMES)
def test_the_first_element_is_in_frame_one(first, frame_us):
    clock = FrameClock.starting(first, frame_us)
    assert clock.frame_at(first) == 1
    assert clock.t0_us % frame_us == 0
    assert FrameClock.from_json(json.loads(json.dumps(clock.to_json()))) == clock


def test_a_frame_without_duration_is_refused():
    with pytest.raises(Broken):
        FrameClock(0, 0)


@given(st.sampled_from(Kind), st.integers(1, 10**9), st.text())
def test_a_record_survives_json(kind, n, reason):
    record = FrameRecord("ecg", n, kind, 2, 10, 0, 0, "ab", "", reason)
    found = {**json.loads(json.dumps(record.to_json())), "added_later": 1}
    assert FrameRecord.from_json(found) == record


def test_a_lost_frame_has_no_rows():
    """LOST with rows would be delivered by one consumer and skipped by another."""
    with pytest.raises(Broken):
        FrameRecord("ecg", 1, Kind.LOST, 1, 10, 5, 40, "ab")
