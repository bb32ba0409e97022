"""A keyed function folded by the oracle: state goes from frame to frame, what modules remember does not."""

from __future__ import annotations

import os
import signal

import pandas as pd
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.frames.clock import FrameClock
from holdfast.graph.schemas import Schema
from holdfast.oracle.folding import Fold, Folded
from holdfast.oracle.inputs import FrameTimes

ROWS = Schema.of("zone int, v bigint")
REMEMBERED: list[int] = []


class Here:
    """Runs the task of a plan in this process, as a worker would."""

    def range(self, *_):
        return self

    def mapInArrow(self, task, _):
        self._task = task
        return self

    def collect(self):
        return list(self._task(iter(())))


@pytest.fixture
def folded(tmp_path):
    def run(function, frames: list[list[tuple[int, int]]]) -> Folded:
        """Frames of (zone, v)."""
        p = hf.StreamProcess("kiln", frame="1 second", time="ts")
        p.param("more", 10, per="zone")
        p.source("a", hf.read.files("a.parquet"), schema=f"ts timestamp, {ROWS}")
        p.keyed("zone", state="total bigint, wake timestamp", emits="zone int, total bigint, at timestamp")(function)
        fold = Fold(p.graph(), p.graph().operator(function.__name__), [ROWS], tmp_path)
        times = FrameTimes(FrameClock(0, 1_000_000), 1, None)
        for n, rows in enumerate(frames, 1):
            table = pa.table({"zone": [zone for zone, _ in rows], "v": [v for _, v in rows]}, schema=ROWS.arrow)
            fold.give(n, [table], times, {"more": {"value": 10, "per": {"7": 20}}})
        return fold.run(Here(), list(range(1, len(frames) + 1)))

    return run


def rows(found: Folded, stream: str) -> dict[int, list[tuple]]:
    return {
        n: sorted((row["zone"], row["total"], row["at"].second) for row in table.to_pylist())
        for n, table in found.frames[stream].items()
    }


def test_state_goes_on_a_key_that_is_due_is_called_and_one_not_returned_is_forgotten(folded):
    def total(state, a, *, more, boundary):
        REMEMBERED.append(1)  # gone with the call
        added = a.assign(v=a.v + more.of(a.zone)).groupby("zone").v.sum().rename("new").reset_index()
        both = state[["zone", "total"]].merge(added, on="zone", how="outer").fillna(0)
        both = both.assign(total=(both.total + both.new).astype("int64"), wake=boundary + pd.Timedelta("2s"))
        out = both[["zone", "total"]].assign(at=boundary)
        assert len(REMEMBERED) == 1
        return both[both.total < 40][["zone", "total", "wake"]], out

    found = folded(total, [[(1, 1), (7, 2)], [(1, 3)], [], [(7, 0)], []])

    assert (found.raised_at, found.error) == (None, None)
    assert rows(found, "total") == {
        1: [(1, 11, 1), (7, 22, 1)],  # 1 + 10 and 2 + 20
        2: [(1, 24, 2)],
        3: [(7, 22, 3)],  # nothing came: it was due
        4: [(1, 24, 4), (7, 42, 4)],
        5: [],  # 7 was not returned, 1 is not due before 6
    }
    assert REMEMBERED == []


def test_a_call_that_raises_ends_the_fold_at_its_frame(folded):
    def falls(state, a):
        if (a.v == 3).any():
            raise ValueError("three")
        return state, None

    found = folded(falls, [[(1, 1)], [(1, 2)], [(1, 3)], [(1, 4)]])

    assert found.raised_at == 3 and "ValueError: three" in str(found.error)
    assert sorted(found.frames["falls"]) == [1, 2]


def test_a_call_that_is_killed_is_told(folded):
    def dies(state, a):
        os.kill(os.getpid(), signal.SIGKILL)

    found = folded(dies, [[(1, 1)]])

    assert found.raised_at == 1 and "signal 9" in str(found.error)
