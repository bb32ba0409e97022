"""An iterator's elements are logged before use: a crash loses none and doubles none."""

import threading
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import SourceError
from holdfast.frames.clock import FrameClock
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from holdfast.sources.live.elements import table_of
from holdfast.sources.parse.bad import Terms

from .conftest import SCHEMA, SECOND, Driver

T0 = datetime(2024, 1, 1, tzinfo=UTC)


def element(seconds, zone=1):
    return {"ts": T0 + timedelta(seconds=float(seconds)), "zone": zone, "celsius": 20.0}


def zones(driver, frames):
    return [driver.rows(frame.references).column("zone").to_pylist() for frame in frames]


def test_elements_come_out_in_the_frames_of_their_times(driver):
    def probes():
        for at in range(7):
            yield element(at * 0.4, zone=at)

    assert zones(driver, driver.frames(read.iterator(probes))) == [[0, 1, 2], [3, 4], [5, 6]]


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.floats(-1.5, 2.5), min_size=1, max_size=30),
    stops=st.lists(st.integers(1, 40), max_size=3),
    counts=st.booleans(),
)
def test_restarts_give_the_frames_of_a_straight_run(tmp_path_factory, steps, stops, counts):
    """What was logged but not sealed must come back once, cut as it would have been."""
    times = 10 + np.cumsum(steps)
    elements = [element(round(t, 3), zone=at) for at, t in enumerate(times)]
    going_on, from_start = (lambda logged: iter(elements[logged:])), (lambda: elements)
    reader = read.iterator(going_on if counts else from_start)
    straight = Driver(tmp_path_factory.mktemp("straight"))
    expected = zones(straight, straight.frames(reader))

    broken = Driver(tmp_path_factory.mktemp("broken"))
    actual = []
    for stop in [*sorted(stops), None]:
        if stop is not None and stop <= len(actual):
            continue
        frames = broken.frames(reader, from_n=len(actual) + 1, stop_after=stop)
        actual += zones(broken, frames)

    assert actual == expected


def test_sealed_frames_come_again_with_the_same_checksums(driver):
    reader = read.iterator(lambda: [element(at / 2, zone=at) for at in range(10)])
    first = driver.frames(reader)
    assert driver.frames(reader) == first
    assert driver.frames(reader, from_n=3) == first[2:]


def test_a_function_may_return_one_table(driver):
    table = pd.DataFrame([element(at / 2, zone=at) for at in range(4)])
    assert zones(driver, driver.frames(read.iterator(lambda: table))) == [[0, 1], [2, 3]]


def test_a_parameter_with_a_default_is_the_users_own(driver):
    reader = read.iterator(lambda rows=3: [element(0, zone=at) for at in range(rows)])
    assert zones(driver, driver.frames(reader)) == [[0, 1, 2]]


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def test_a_silent_live_source_closes_its_frames_by_the_clock(driver):
    """One silent sensor would otherwise stop every operator that waits for it."""
    clock, more = Clock(), threading.Event()

    def sensor():
        yield element(0.5)
        more.wait()
        yield element(0.7, zone=2)

    source = driver.set(monotonic=clock).open(read.iterator(sensor, bounded=False))
    frames = source.frames(threading.Event())
    taken = []
    taker = threading.Thread(target=lambda: taken.extend(next(frames) for _ in range(3)))
    taker.start()
    while taker.is_alive():
        clock.now_s += 1.0
        taker.join(0.01)
    assert [frame.rows for frame in taken] == [1, 0, 0]
    more.set()
    late = next(frame for frame in frames if frame.rows)  # admitted into the lowest open frame
    assert (late.rows, late.late_rows) == (1, 1)
    source.close()


def test_by_arrival_an_element_is_in_the_frame_in_which_it_came(driver):
    clock, go = Clock(), threading.Semaphore(0)

    def sensor():
        for at in range(3):
            go.acquire()
            yield {"zone": at, "ts": None, "celsius": None}

    source = driver.set(monotonic=clock, time=None).open(read.iterator(sensor, bounded=False))
    frames = source.frames(threading.Event())
    found = []
    for _ in range(3):
        before = source.logged
        go.release()
        closing = threading.Thread(target=lambda: found.append(next(frames)))
        closing.start()
        while source.logged == before and closing.is_alive():
            closing.join(0.01)
        clock.now_s += 1.0
        closing.join(30)
    assert zones(driver, found) == [[0], [1], [2]]
    assert driver.frames(read.iterator(list, bounded=True))[:3] == found
    source.close()


def test_what_the_function_raises_comes_after_what_it_yielded(driver):
    def broken():
        yield element(0)
        yield element(1.5)
        raise KeyError("sensor")

    source = driver.set(frame_us=SECOND).open(read.iterator(lambda: [element(0)]))
    source.close()
    with pytest.raises(SourceError, match=r"HF-S012 IteratorRaised(.|\n)*KeyError: 'sensor'"):
        driver.frames(read.iterator(broken))
    assert [frame.rows for frame in driver.frames(read.iterator(lambda n: iter(())))] == [1, 1]


# -- elements ----------------------------------------------------------------


def test_all_kinds_of_elements_keep_their_order():
    schema = Schema.of("a int, b string")
    items = [
        {"a": 1, "b": "x", "c": "not declared"},
        (2, None),
        pd.DataFrame({"b": ["y", "z"], "a": [3, 4]}),
        pa.table({"a": [5], "b": ["u"]}),
        pa.record_batch({"a": [6], "b": ["v"]}),
        (7, "w"),
    ]
    table, bad = table_of(items, Terms(schema, "s"), 0, first_only=True)
    assert bad == [] and table.schema.equals(schema.arrow)
    assert table.column("a").to_pylist() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"a": "one", "b": "x"}, ["HF-S011", "element 12", "a = 'one'"]),
        ({"a": 2**40, "b": "x"}, ["HF-S011", "element 12"]),
        ({"A": 1, "b": "x"}, ["HF-S002", "element 12", "'a'"]),
        ((1,), ["HF-S011", "element 12", "1 values for 2 columns"]),
        ("text", ["HF-S011", "element 12", "it is a str"]),
        (pa.table({"a": ["1"], "b": ["x"]}), ["HF-S003", "from element 12"]),
    ],
)
def test_a_bad_element_is_named_and_those_before_it_are_kept(bad, told):
    schema = Schema.of("a int, b string")
    items = [(0, "x"), (1, "y"), bad, (3, "z")]
    table, [found] = table_of(items, Terms(schema, "s"), 10, first_only=True)
    assert table.column("a").to_pylist() == [0, 1]
    assert all(word in str(found.error) for word in told), str(found.error)


def test_of_a_table_only_the_rows_that_do_not_fit_are_bad():
    schema = Schema.of("a int, b string")
    items = [(1, "x"), pa.table({"a": [2, 2**40, 3], "b": ["y", "z", "u"]})]
    table, [found] = table_of(items, Terms(schema, "s"), 0, first_only=False)
    assert table.column("a").to_pylist() == [1, 2, 3]
    assert (found.at, str(2**40) in found.raw) == (1, True)
    with pytest.raises(SourceError, match="HF-S003"):  # other columns: no row of it is to blame
        table_of([pa.table({"a": ["1"], "b": ["x"]})], Terms(schema, "s"), 0, first_only=False)


def test_a_bad_element_stops_the_source_after_those_before_it(driver):
    reader = read.iterator(lambda: [element(0), element(1), ("no", "time"), element(2)])
    with pytest.raises(SourceError, match="HF-S011 BadElement"):
        driver.frames(reader)
    assert [frame.rows for frame in driver.frames(read.iterator(lambda n: iter(())))] == [1, 1]


def test_the_schema_of_the_log_is_the_declared_one(driver):
    frames = driver.frames(read.iterator(lambda: [element(0)]))
    assert driver.rows(frames[0].references).schema.equals(SCHEMA.arrow)


def _dicts(row):
    for at in range(5):
        row.update(element(at, zone=at))
        yield row


def _tables(zone):
    for at in range(5):
        zone[:] = at
        yield pa.table({"ts": [T0 + timedelta(seconds=at)], "zone": zone, "celsius": [1.0]})


def _pandas(frame):
    for at in range(5):
        frame.loc[0, ["ts", "zone"]] = pd.Timestamp(T0) + pd.Timedelta(seconds=at), at
        yield frame


@pytest.mark.parametrize(
    "probes",
    [
        lambda: _dicts({}),
        lambda: _tables(np.zeros(1, "int32")),
        lambda: _pandas(pd.DataFrame({"ts": [pd.Timestamp(T0)], "zone": pd.array([0], "int32"), "celsius": [1.0]})),
    ],
    ids=["dict", "numpy", "pandas"],
)
def test_one_object_yielded_again_and_again_is_taken_as_it_was(driver, probes):
    """Elements wait in a queue: what was yielded first had the values of the last."""
    assert zones(driver, driver.frames(read.iterator(probes))) == [[at] for at in range(5)]


def test_lists_inside_of_a_row_are_taken_as_they_were(driver):
    def probes():
        some, inner = [0], {"a": [0]}
        for at in range(5):
            some[0] = inner["a"][0] = at
            yield (T0 + timedelta(seconds=at), some, inner)

    driver.set(schema=Schema.of("ts timestamp, l array<int>, s struct<a: array<int>>"))
    frames = driver.frames(read.iterator(probes))
    rows = [row for frame in frames for row in driver.rows(frame.references).to_pylist()]
    assert [(row["l"], row["s"]) for row in rows] == [([at], {"a": [at]}) for at in range(5)]


def days_ago(days):
    return FrameClock.starting(int((time.time() - days * 86_400) * 1e6), SECOND)


@pytest.mark.parametrize("speaks", [False, True])
def test_by_arrival_a_clock_that_jumped_between_two_runs_is_told_before_anything_is_taken(driver, speaks):
    """Silent, it closed fifty years of frames in one list, until memory was gone; one that spoke was acknowledged, then refused for ever."""
    driver.clock = days_ago(20_000)
    asked = threading.Event()

    def sensor():
        asked.set()
        yield from [{"zone": 1, "ts": None, "celsius": None}] * speaks

    with pytest.raises(SourceError, match=r"HF-S008(.|\n)*the clock of this machine(.|\n)*set the clock"):
        driver.set(time=None, monotonic=time.monotonic).frames(read.iterator(sensor, bounded=False))
    assert not asked.is_set()
    driver.clock = days_ago(0)  # it was set
    found = driver.frames(read.iterator(sensor, bounded=True))
    assert sum(frame.rows for frame in found) == speaks


def test_by_arrival_a_long_silence_is_closed_in_parts(driver, monkeypatch):
    monkeypatch.setattr("holdfast.sources.live.logged_source.CLOSED_AT_ONCE_MAX", 100)
    driver.clock = days_ago(350 / 86_400)
    sizes = []
    source = driver.set(time=None, monotonic=time.monotonic).open(
        read.iterator(lambda: threading.Event().wait(5) and [], bounded=False)
    )
    seal = source._seal

    def counted(*given):
        frames = seal(*given)
        sizes.append(len(frames))
        return frames

    source._seal = counted
    frames = source.frames(threading.Event())
    assert [next(frames).n for _ in range(340)] == list(range(1, 341))
    assert max(sizes) == 100
    source.close()


def test_by_arrival_what_was_taken_before_the_clock_jumped_is_in_a_frame(driver, monkeypatch):
    over = threading.Event()

    def sensor():
        yield {"zone": 7, "ts": None, "celsius": None}
        over.wait(20)

    source, stop = (
        driver.set(time=None, monotonic=Clock()).open(read.iterator(sensor, bounded=False)),
        threading.Event(),
    )
    taking = threading.Thread(target=lambda: list(source.frames(stop)))
    taking.start()
    while not source.logged:
        taking.join(0.01)
    stop.set()
    taking.join(30)
    source.close()
    over.set()
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + 20_000 * 86_400 * 10**9)
    source, found = driver.open(read.iterator(sensor, bounded=False)), []
    with pytest.raises(SourceError, match="HF-S008"):
        for frame in source.frames(threading.Event()):
            found.append(frame)
    source.close()
    assert zones(driver, [frame for frame in found if frame.rows]) == [[7]]
