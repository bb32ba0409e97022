"""Windows of time, sessions and rows: any cut into frames gives what a batch gives."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ProcessRefused
from holdfast.graph.schemas import Schema
from holdfast.operators.aggregate import make_aggregate
from tests.operators.small_machine import (
    END,
    START,
    SmallMachine,
    frames_of,
    paned,
    raw,
    sessioned,
)

SCHEMA = Schema.of("ts timestamp, zone int, celsius double")
EMITS = {
    "begin": "window_start",
    "ts": "window_end",
    "n": "count(*)",
    "total": "sum(celsius)",
    "low": "min(celsius)",
    "newest": "last(celsius)",
    "kinds": "count_distinct(celsius)",
}
# Times in tenths of a second; eighths of a degree add up exactly.
reading = st.tuples(st.integers(0, 200), st.sampled_from([1, 2, 3]), st.integers(-80, 80).map(lambda i: i / 8))
readings = st.lists(reading, max_size=25)
frame_seconds = st.sampled_from([1, 3.7, 10, 60])


def at(tenths: int) -> pd.Timestamp:
    return START + pd.Timedelta(milliseconds=100 * tenths)


def table(rows) -> pa.Table:
    times, zones, degrees = zip(*rows, strict=True) if rows else ((), (), ())
    times = [None if t is None else at(t).to_pydatetime() for t in times]
    return pa.table([times, zones, degrees], schema=SCHEMA.arrow)


def aggregate(**options):
    base = {"by": ("zone",), "emits": EMITS, "time": "ts"}
    return make_aggregate(base | options, SCHEMA)


def run(keyed, prepare, rows: pa.Table, seconds: float, *, arrow=True):
    """All output rows with the number of the frame that emitted them."""
    machine = SmallMachine(keyed, arrow=arrow)
    found = []
    for n, own, boundary, since in frames_of(rows, seconds):
        out = machine.frame(prepare(keyed, own), n=n, boundary=boundary, since=since)
        found += [(boundary, tuple(row.values())) for row in out.to_pylist()]
    assert machine.state.num_rows == 0, "the end boundary must leave nothing open"
    assert machine.late_rows == 0
    return found


def summary(zone, begin, end, mine):
    """One output row of a group of (tenths, zone, celsius), in plain Python."""
    degrees = [celsius for _, _, celsius in mine]
    newest = max(mine)[2]
    return (zone, begin, end, len(mine), sum(degrees), min(degrees), newest, len(set(degrees)))


def windows_in_batch(rows, size: int, step: int):
    """Plain Python over all rows, tenths of a second."""
    found = []
    origin = START.value // 100_000_000  # windows count from 1970, in tenths
    for zone in {zone for _, zone, _ in rows}:
        groups: dict[int, list] = {}
        for row in (r for r in rows if r[1] == zone):
            start = (origin + row[0]) // step * step
            while start > origin + row[0] - size:
                groups.setdefault(start - origin, []).append(row)
                start -= step
        found += [summary(zone, at(s), at(s + size), mine) for s, mine in groups.items()]
    return Counter(found)


@settings(max_examples=25, deadline=None)
@given(
    readings,
    st.sampled_from([(10, 10), (100, 100), (100, 10), (100, 30), (70, 20), (10, 30)]),
    frame_seconds,
    st.booleans(),
)
def test_time_windows_equal_the_batch(rows, window, seconds, arrow):
    """Each window comes out once, whole, in the frame whose boundary passes its end."""
    size, step = window
    keyed = aggregate(window_ms=size * 100, every_ms=step * 100)
    found = run(keyed, paned, table(rows), seconds, arrow=arrow)
    assert Counter(row for _, row in found) == windows_in_batch(rows, size, step)
    for boundary, row in found:
        frame = pd.Timedelta(seconds=seconds)
        assert row[2] <= boundary
        assert boundary == END or row[2] > boundary - frame


@settings(max_examples=25, deadline=None)
@given(readings, st.sampled_from([1, 5, 20, 50]), frame_seconds, st.booleans())
def test_sessions_equal_the_batch(rows, gap, seconds, arrow):
    """A frame boundary inside a session, or at its very end, must not split it."""
    expected = Counter()
    for zone in {zone for _, zone, _ in rows}:
        own = sorted(r for r in rows if r[1] == zone)
        sessions = [[own[0]]]
        for before, row in zip(own, own[1:]):
            if row[0] - before[0] > gap:
                sessions.append([])
            sessions[-1].append(row)
        expected.update(summary(zone, at(s[0][0]), at(s[-1][0] + gap), s) for s in sessions)
    found = run(aggregate(session_ms=gap * 100), sessioned, table(rows), seconds, arrow=arrow)
    assert Counter(row for _, row in found) == expected
    for boundary, row in found:
        assert row[2] < boundary
        assert boundary == END or row[2] >= boundary - pd.Timedelta(seconds=seconds)


@settings(max_examples=25, deadline=None)
@given(
    readings,
    st.sampled_from([(1, 1), (3, 3), (5, 2), (6, 3), (4, 1), (2, 5)]),
    frame_seconds,
    st.booleans(),
)
def test_windows_of_rows_equal_the_batch(rows, window, seconds, arrow):
    """Rows are numbered through frames; the unfinished windows come at the end."""
    size, step = window
    expected = Counter()
    for zone in {zone for _, zone, _ in rows}:
        own = sorted(r for r in rows if r[1] == zone)
        for begin in range(0, len(own), step):
            mine = own[begin : begin + size]
            expected[summary(zone, at(mine[0][0]), at(mine[-1][0]), mine)] += 1
    keyed = aggregate(window_rows=size, every_rows=step)
    found = run_to_end(keyed, table(rows), seconds, arrow)
    assert Counter(row for _, row in found) == expected


def run_to_end(keyed, rows, seconds, arrow):
    machine = SmallMachine(keyed, arrow=arrow)
    found = []
    for n, own, boundary, since in frames_of(rows, seconds):
        out = machine.frame(raw(keyed, own), n=n, boundary=boundary, since=since)
        found += [(boundary, tuple(row.values())) for row in out.to_pylist()]
    # Only where rows between two windows fall through may a place remain.
    assert machine.state.num_rows == 0 or keyed.function.step > keyed.function.size
    return found


def test_a_window_closes_in_silence():
    """The key sends nothing more; its window must not wait for another row."""
    keyed = aggregate(window_ms=10_000)
    machine = SmallMachine(keyed)
    first = paned(keyed, table([(5, 1, 1.0)]))
    none = first.slice(0, 0)
    outs = [
        machine.frame(rows, n=n, boundary=at(40 * n), since=at(40 * (n - 1))).num_rows
        for n, rows in enumerate([first, none, none, none], start=1)
    ]
    assert outs == [0, 0, 1, 0]


def feed(keyed, prepare, frames, *, step):
    machine = SmallMachine(keyed)
    outs = []
    for n, rows in enumerate(frames, start=1):
        own = prepare(keyed, table(rows))
        out = machine.frame(own, n=n, boundary=at(step * n), since=at(step * (n - 1)))
        outs.append([tuple(row.values()) for row in out.to_pylist()])
    return machine, outs


def test_late_rows_count_within_the_lateness_and_are_reported_after():
    """A late row is in the window, or in the count of late rows; never nowhere."""
    emits = {"n": "count(*)"}
    frames = [[(5, 1, 1.0)], [(12, 1, 1.0), (6, 1, 1.0)], [(7, 1, 1.0)], []]
    machine, outs = feed(aggregate(window_ms=1000, emits=emits), paned, frames, step=10)
    assert (outs, machine.late_rows) == ([[(1, 1)], [(1, 1)], [], []], 2)
    keyed = aggregate(window_ms=1000, lateness_ms=1000, emits=emits)
    machine, outs = feed(keyed, paned, frames, step=10)
    assert (outs, machine.late_rows) == ([[], [(1, 2)], [(1, 1)], []], 1)


def test_a_late_row_still_counts_in_the_sliding_windows_that_are_open():
    keyed = aggregate(window_ms=2000, every_ms=1000, emits={"ts": "window_end", "n": "count(*)"})
    machine, outs = feed(keyed, paned, [[(5, 1, 1.0)], [(6, 1, 1.0)], []], step=10)
    assert outs == [[(1, at(10), 1)], [(1, at(20), 2)], []]
    assert machine.late_rows == 1


def test_late_rows_of_sessions():
    """Late rows alone are reported; late rows that reach an open session belong to it."""
    emits = {"begin": "window_start", "n": "count(*)"}
    frames = [[(5, 1, 1.0), (9, 1, 1.0)], [(13, 1, 1.0), (1, 1, 1.0)], [(0, 2, 1.0)], [], []]
    machine, outs = feed(aggregate(session_ms=500, emits=emits), sessioned, frames, step=10)
    assert outs == [[], [(1, at(1), 4)], [], [], []]
    assert machine.late_rows == 1


def test_a_late_row_joins_two_open_sessions():
    emits = {"begin": "window_start", "ts": "window_end", "n": "count(*)"}
    frames = [[(1, 1, 1.0), (9, 1, 1.0)], [(5, 1, 1.0)], [], []]
    keyed = aggregate(session_ms=500, lateness_ms=1000, emits=emits)
    machine, outs = feed(keyed, sessioned, frames, step=10)
    assert [row for out in outs for row in out] == [(1, at(1), at(14), 3)]
    assert machine.late_rows == 0


@pytest.mark.parametrize(("options", "prepare"), [({"window_ms": 1000}, paned), ({"session_ms": 500}, sessioned)])
def test_rows_without_a_time_are_reported(options, prepare):
    keyed = aggregate(**options)
    machine = SmallMachine(keyed)
    own = prepare(keyed, table([(None, 1, 1.0), (None, 2, 1.0), (3, 1, 1.0)]))
    machine.frame(own, n=1, boundary=at(100), since=at(0))
    assert machine.late_rows == 2


def test_the_kiln_gets_exactly_the_columns_of_its_feedback_schema():
    keyed = aggregate(window_ms=10_000, every_ms=1000, emits={"mean": ("avg", "celsius")})
    assert keyed.emits == Schema.of("zone int, mean double")


def test_windows_of_rows_need_a_time_for_their_bounds():
    with pytest.raises(ProcessRefused, match="HF-O021"):
        aggregate(window_rows=3, time=None)


@pytest.mark.parametrize("options", [{"window_ms": 10, "every_ms": -1}, {"window_rows": -1}])
def test_a_window_without_length_is_refused(options):
    with pytest.raises(ProcessRefused, match="HF-O024"):
        aggregate(**options)
