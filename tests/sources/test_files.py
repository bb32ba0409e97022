"""Frames of files depend on the files alone, and say so when they cannot be made."""

import gzip
import json
import threading

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import SourceError, UsageError
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from holdfast.sources.parse import text

from .conftest import SCHEMA, SECOND, Driver

T0 = 1_700_000_000 * SECOND


def readings(times_us):
    rows = len(times_us)
    return pa.table(
        {
            "ts": pa.array(np.asarray(times_us, dtype="int64"), pa.timestamp("us", "UTC")),
            "zone": pa.array((np.arange(rows) % 5).astype("int32")),
            "celsius": np.arange(rows) / 4,
        }
    )


def every(step_us, rows, start=T0):
    return readings(start + np.arange(rows) * step_us)


def as_jsonl(table, path, opener=open):
    with opener(path, "wt") as file:
        for row in table.to_pylist():
            row["ts"] = row["ts"].isoformat()
            file.write(json.dumps(row) + "\n")


def as_csv(table, path):
    arrow_csv.write_csv(table, path)


def told(frames):
    return [(frame.n, frame.rows, frame.checksum) for frame in frames]


# -- frames ------------------------------------------------------------------


def test_an_element_is_in_the_frame_its_time_says(driver, tmp_path):
    pq.write_table(every(100_000, 35), tmp_path / "a.parquet", row_group_size=7)
    frames = driver.frames(read.files("*.parquet"))
    assert [(frame.n, frame.rows) for frame in frames] == [(1, 10), (2, 10), (3, 10), (4, 5)]
    assert driver.rows(frames[1].references).equals(every(100_000, 35).slice(10, 10))


def test_a_frame_that_spans_files_refers_to_both(driver, tmp_path):
    whole = every(100_000, 30)
    pq.write_table(whole.slice(0, 15), tmp_path / "a.parquet")
    pq.write_table(whole.slice(15), tmp_path / "b.parquet")
    second = driver.frames(read.files("*.parquet"))[1]
    assert [reference.ranges for reference in second.references] == [((10, 15),), ((0, 5),)]


def test_a_whole_file_is_one_range_however_many_row_groups_it_has(driver, tmp_path):
    """Row by row or group by group the reference would cost more than the rows."""
    pq.write_table(every(1000, 900), tmp_path / "a.parquet", row_group_size=100)
    (frame,) = driver.frames(read.files("a.parquet"))
    assert [reference.ranges for reference in frame.references] == [((0, 900),)]


def test_a_silent_stretch_is_empty_frames(driver, tmp_path):
    pq.write_table(readings([T0, T0 + 3 * SECOND]), tmp_path / "a.parquet")
    assert [frame.rows for frame in driver.frames(read.files("a.parquet"))] == [1, 0, 0, 1]


def test_without_element_time_each_file_is_a_frame(driver, tmp_path):
    for name, rows in (("a", 3), ("b", 0), ("c", 5)):
        as_csv(every(1, rows), tmp_path / f"{name}.csv")
    frames = driver.set(time=None).frames(read.files("*.csv"))
    assert [(frame.n, frame.rows) for frame in frames] == [(1, 3), (2, 0), (3, 5)]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "csv.gz", "jsonl.gz"])
def test_every_format_gives_the_same_rows(driver, tmp_path, suffix):
    table = every(100_000, 25)
    path = tmp_path / f"a.{suffix}"
    match suffix:
        case "parquet":
            pq.write_table(table, path)
        case "csv":
            as_csv(table, path)
        case "csv.gz":
            with gzip.open(path, "wb") as file:
                arrow_csv.write_csv(table, file)
        case "jsonl":
            as_jsonl(table, path)
        case "jsonl.gz":
            as_jsonl(table, path, gzip.open)
    frames = driver.frames(read.files(path))
    assert [frame.rows for frame in frames] == [10, 10, 5]
    assert driver.rows([one for frame in frames for one in frame.references]).equals(table)


LINES = st.lists(
    st.tuples(
        st.integers(0, 20_000_000),
        st.text(st.sampled_from('ab,"\n\r é'), max_size=8) | st.none(),
    ),
    min_size=1,
    max_size=40,
)


PATCHED = [HealthCheck.function_scoped_fixture]


@settings(max_examples=50, deadline=None, suppress_health_check=PATCHED)
@given(rows=LINES, block=st.integers(20, 400))
def test_a_csv_is_right_wherever_its_blocks_are_cut(tmp_path_factory, monkeypatch, rows, block):
    """A quoted newline is not the end of a row; cut there, every later row is another."""
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    folder = tmp_path_factory.mktemp("csv")
    schema = Schema.of("ts timestamp, note string")
    times, notes = zip(*rows, strict=True)
    table = pa.table([pa.array([T0 + t for t in times]), pa.array(notes)], names=["ts", "note"])
    table = table.cast(schema.arrow)
    as_csv(table, folder / "a.csv")

    driver = Driver(folder).set(schema=schema, grace_us=30 * SECOND)
    frames = driver.frames(read.files("a.csv"))

    parts = [driver.rows(frame.references) for frame in frames]
    seconds = (np.array(times) + T0 - driver.clock.t0_us) // SECOND
    order = np.argsort(seconds, kind="stable")
    assert pa.concat_tables(parts).to_pylist() == table.take(order).to_pylist()


# -- restarts ----------------------------------------------------------------


@st.composite
def recordings(draw):
    """Files of wandering times: some late, some far apart."""
    steps = draw(st.lists(st.integers(-2_000_000, 3_000_000), min_size=1, max_size=60))
    times = T0 + 10 * SECOND + np.cumsum(steps)
    cuts = sorted(draw(st.lists(st.integers(0, len(steps)), max_size=4)))
    bounds = [0, *cuts, len(steps)]
    return times, list(zip(bounds, bounds[1:], strict=False))


@settings(max_examples=30, deadline=None)
@given(
    recording=recordings(),
    late=st.sampled_from(["admit", "drop", "quarantine"]),
    grace_us=st.sampled_from([0, 1_500_000]),
    data=st.data(),
)
def test_a_restart_goes_on_with_the_same_frames(tmp_path_factory, recording, late, grace_us, data):
    """Another cut after a restart would seal other content under a number in use."""
    folder = tmp_path_factory.mktemp("restart")
    times, pieces = recording
    for at, (low, high) in enumerate(pieces):
        pq.write_table(readings(times[low:high]), folder / f"{at}.parquet", row_group_size=max(1, high - low))
    reader = read.files("*.parquet")
    driver = Driver(folder).set(late=late, grace_us=grace_us)
    straight = driver.frames(reader)
    n = data.draw(st.integers(1, straight[-1].n))

    again = driver.set(directory=folder / "other")
    stopped = again.frames(reader, stop_after=n)
    resumed = again.frames(reader, from_n=n + 1) if n < straight[-1].n else []

    assert told(stopped + resumed) == told(straight)
    kept = sum(frame.rows for frame in straight)
    apart = sum(one.rows for frame in straight for one in frame.quarantined)
    dropped = sum(frame.late_rows for frame in straight) if late == "drop" else 0
    assert kept + apart + dropped == len(times)


@settings(max_examples=60, deadline=None)
@given(
    recording=recordings(),
    late=st.sampled_from(["admit", "drop", "quarantine"]),
    grace_us=st.sampled_from([0, 1_500_000]),
    group=st.integers(1, 7),
)
def test_frames_do_not_depend_on_row_groups(tmp_path_factory, recording, late, grace_us, group):
    """Rows in time order are placed without looking at each: the answer must be the same."""
    folder = tmp_path_factory.mktemp("groups")
    table = readings(recording[0])
    found = []
    for name, size in (("whole", len(table)), ("groups", group)):
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=size)
        driver = Driver(folder).set(late=late, grace_us=grace_us, directory=folder / name)
        found.append(
            [
                (
                    frame.n,
                    frame.late_rows,
                    [one.ranges for one in frame.references],
                    [one.ranges for one in frame.quarantined],
                )
                for frame in driver.frames(read.files(f"{name}.parquet"))
            ]
        )
    assert found[0] == found[1]


def test_a_restart_does_not_index_what_closed_long_ago(driver, tmp_path, monkeypatch):
    for at in range(10):
        pq.write_table(every(100_000, 10, T0 + at * SECOND), tmp_path / f"{at}.parquet")
    reader = read.files("*.parquet")
    straight = driver.frames(reader)
    indexed = []
    from holdfast.sources.files import file_source as cutting

    def noting(path, *rest, real=cutting.index_file):
        indexed.append(path)
        return real(path, *rest)

    monkeypatch.setattr(cutting, "index_file", noting)
    assert told(driver.frames(reader, from_n=9)) == told(straight[8:])
    assert len(indexed) <= 3


def test_new_files_with_later_names_are_taken_up(driver, tmp_path):
    pq.write_table(every(100_000, 20), tmp_path / "a.parquet")
    reader = read.files("*.parquet")
    assert len(driver.frames(reader)) == 2
    pq.write_table(every(100_000, 20, T0 + 2 * SECOND), tmp_path / "b.parquet")
    assert [frame.n for frame in driver.frames(reader, from_n=3)] == [3, 4]


@pytest.mark.parametrize("change", ["edited", "gone", "before"])
def test_files_changed_under_frames_already_cut_are_refused(driver, tmp_path, change):
    for name, start in (("b", 0), ("c", 2)):
        pq.write_table(every(100_000, 20, T0 + start * SECOND), tmp_path / f"{name}.parquet")
    reader = read.files("*.parquet")
    driver.frames(reader)
    match change:
        case "edited":
            pq.write_table(every(100_000, 21), tmp_path / "b.parquet")
        case "gone":
            (tmp_path / "b.parquet").unlink()
        case "before":
            pq.write_table(every(100_000, 20), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="HF-S004 SourceChanged"):
        driver.frames(reader, from_n=3)


def test_a_torn_catalogue_costs_time_only(driver, tmp_path):
    for at in range(3):
        pq.write_table(every(100_000, 15, T0 + at * 3 * SECOND // 2), tmp_path / f"{at}.parquet")
    reader = read.files("*.parquet")
    straight = driver.frames(reader)
    catalogue = tmp_path / "state" / "files.jsonl"
    catalogue.write_bytes(catalogue.read_bytes()[:-40])
    assert told(driver.frames(reader, from_n=4)) == told(straight[3:])


# -- late --------------------------------------------------------------------

LATE_TIMES = [T0, T0 + 2 * SECOND, T0 + 1, T0 + 2 * SECOND + 1]


def test_late_elements_are_admitted_dropped_or_kept_apart(tmp_path):
    pq.write_table(readings(LATE_TIMES), tmp_path / "a.parquet")
    reader = read.files("a.parquet")
    found = {}
    for late in ("admit", "drop", "quarantine"):
        driver = Driver(tmp_path).set(late=late, directory=tmp_path / late)
        frames = driver.frames(reader)
        assert sum(frame.late_rows for frame in frames) == 1
        found[late] = (
            [frame.rows for frame in frames],
            [one.ranges for frame in frames for one in frame.quarantined],
        )
    assert found == {
        "admit": ([1, 0, 3], []),
        "drop": ([1, 0, 2], []),
        "quarantine": ([1, 0, 2], [((2, 3),)]),
    }


def test_fail_stops_after_the_frames_before_the_late_element(driver, tmp_path):
    pq.write_table(readings(LATE_TIMES), tmp_path / "a.parquet")
    source = driver.set(late="fail").open(read.files("a.parquet"))
    frames = source.frames(threading.Event())
    assert [next(frames).n, next(frames).n] == [1, 2]
    with pytest.raises(SourceError, match=r"HF-F004 ElementLate(.|\n)*a.parquet, row 2"):
        next(frames)


# -- bad input ---------------------------------------------------------------


def refused(driver, reader, *told_in_text):
    driver.clock = None
    driver.set(directory=driver.context.directory / "next")
    with pytest.raises(SourceError) as caught:
        frames = driver.frames(reader)
        for frame in frames:
            driver.rows(frame.references)
    text = str(caught.value)
    assert all(word in text for word in told_in_text), text
    assert caught.value.effect and caught.value.do
    return text


def test_no_file(driver):
    refused(driver, read.files("gone/*.csv"), "HF-S001", "gone/*.csv")


def test_a_misspelt_file_is_answered_with_the_nearest(driver, tmp_path):
    (tmp_path / "readings.csv").write_text("ts\n")
    refused(driver, read.files("reading.csv"), "HF-S001", "did you mean 'readings.csv'?")


def test_a_column_that_is_not_there(driver, tmp_path):
    table = every(1, 3).rename_columns(["ts", "zone", "celcius"])
    pq.write_table(table, tmp_path / "a.parquet")
    as_csv(table, tmp_path / "b.csv")
    as_jsonl(table, tmp_path / "c.jsonl")
    for name in ("a.parquet", "b.csv", "c.jsonl"):
        refused(driver, read.files(name), "HF-S002", name, "did you mean 'celcius'?")


def test_a_type_that_does_not_fit(driver, tmp_path):
    table = every(1, 3).set_column(1, "zone", pa.array(["1", "2", "3"]))
    pq.write_table(table, tmp_path / "a.parquet")
    refused(driver, read.files("a.parquet"), "HF-S003", "'zone' is string", "declared as int")


def test_a_file_that_is_no_parquet(driver, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    refused(driver, read.files("a.parquet"), "HF-S005", "a.parquet")


def test_a_bad_line_is_named(driver, tmp_path):
    good = "2024-01-01T00:00:00Z,1,2.5\n"
    lines = "ts,zone,celsius\n" + good * 5 + "2024-01-01T00:00:00Z,one,2.5\n" + good
    (tmp_path / "a.csv").write_text(lines)
    refused(driver, read.files("a.csv"), "HF-S006", "a.csv, line 7", "one")
    (tmp_path / "b.csv").write_text("ts,zone,celsius\n" + good * 3 + "not a time,1,2.5\n")
    refused(driver, read.files("b.csv"), "HF-S006", "b.csv, line 5")
    row = '{"ts": "2024-01-01T00:00:00", "zone": 1, "celsius": 2.5}\n'
    (tmp_path / "c.jsonl").write_text(row * 2 + row.replace("2.5", '"hot"') + row)
    refused(driver, read.files("c.jsonl"), "HF-S006", "c.jsonl, line 3")
    (tmp_path / "d.jsonl").write_text(row * 2 + "{broken\n")
    refused(driver, read.files("d.jsonl"), "HF-S006", "d.jsonl, line 3")


def test_an_element_without_a_time(driver, tmp_path):
    (tmp_path / "a.csv").write_text("ts,zone,celsius\n2024-01-01T00:00:00Z,1,1\n,2,2\n")
    refused(driver, read.files("a.csv"), "HF-S007", "row 1", "quarantine")
    frames = driver.set(late="quarantine").frames(read.files("a.csv"))
    assert sum(one.rows for frame in frames for one in frame.quarantined) == 1


@pytest.mark.parametrize("group", [1, 3, 6])
def test_a_jump_stops_the_source_after_the_frames_before_it(driver, tmp_path, group):
    """How the file is cut into row groups must not decide how far the run gets."""
    times = [T0 + at * SECOND for at in (0, 2, 1, 3, 400_000_000, 4)]
    pq.write_table(readings(times), tmp_path / "a.parquet", row_group_size=group)
    source = driver.set(grace_us=SECOND).open(read.files("a.parquet"))
    found = []
    with pytest.raises(SourceError, match="HF-S008"):
        for frame in source.frames(threading.Event()):
            found.append(frame.n)
    assert found == [1, 2]


def test_a_clock_that_jumps_by_years(driver, tmp_path):
    far = T0 + 10 * 365 * 86_400 * SECOND
    pq.write_table(readings([T0, T0 + SECOND, far]), tmp_path / "a.parquet")
    refused(driver, read.files("a.parquet"), "HF-S008", "row 2", "2033")


@pytest.mark.parametrize("rate", ["quick", "0x", -1, 0, True, float("nan")])
def test_a_rate_that_is_none(rate):
    with pytest.raises(UsageError, match="HF-C030"):
        read.files("a.csv", rate=rate)


def test_a_gz_replaced_in_place_is_not_read_from_memory(tmp_path):
    for rows in (5, 9):
        with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
            arrow_csv.write_csv(every(1000, rows), file)
        driver = Driver(tmp_path).set(directory=tmp_path / str(rows))
        (frame,) = driver.frames(read.files("a.csv.gz"))
        assert driver.rows(frame.references).equals(every(1000, rows))


def test_times_without_a_zone_are_utc(driver, tmp_path):
    (tmp_path / "a.csv").write_text("ts,zone,celsius\n2024-01-01 00:00:01.5,1,1\n")
    (frame,) = driver.frames(read.files("a.csv"))
    (row,) = driver.rows(frame.references).to_pylist()
    assert row["ts"].isoformat() == "2024-01-01T00:00:01.500000+00:00"


def test_a_folder_is_read_in_name_order_without_hidden_files(driver, tmp_path):
    folder = tmp_path / "in"
    (folder / "2").mkdir(parents=True)
    as_csv(every(1, 2), folder / "1.csv")
    as_csv(every(1, 3), folder / "2" / "x.csv")
    for hidden in ("_SUCCESS", ".hidden.csv", "_meta.csv", "notes.txt"):
        (folder / hidden).write_text("")
    frames = driver.set(time=None, schema=SCHEMA).frames(read.files("in"))
    assert [frame.rows for frame in frames] == [2, 3]
