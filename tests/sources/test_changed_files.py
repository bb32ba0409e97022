"""A file that changes under the frames made of it is noticed, whenever it happens; the remedies work."""

from __future__ import annotations

import gzip
import os
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import SourceError
from holdfast.sources import identity, read
from holdfast.sources.parse import text

from .conftest import SECOND, Driver

T0 = 1_700_000_000 * SECOND
ROWS = 40  # ten frames of four rows
SUFFIXES = ["csv", "jsonl", "csv.gz", "parquet"]


def lines(rows: int, celsius: float = 20.0, suffix: str = "csv") -> list[str]:
    found = []
    for row in range(rows):
        time = str(np.datetime64(T0 + row * SECOND // 4, "us")) + "Z"
        if suffix == "jsonl":
            found.append(f'{{"ts": "{time}", "zone": {row % 5}, "celsius": {celsius}}}\n')
        else:
            found.append(f"{time},{row % 5},{celsius}\n")
    return found


def write(path, rows: int = ROWS, celsius: float = 20.0) -> None:
    suffix = path.name.partition(".")[2]
    if suffix == "parquet":
        times = pa.array(T0 + np.arange(rows) * SECOND // 4, pa.timestamp("us", "UTC"))
        zones = pa.array((np.arange(rows) % 5).astype("int32"))
        pq.write_table(
            pa.table({"ts": times, "zone": zones, "celsius": np.full(rows, celsius)}), path, row_group_size=8
        )
        return
    head = "" if suffix == "jsonl" else "ts,zone,celsius\n"
    opener = gzip.open if suffix.endswith(".gz") else open
    with opener(path, "wt") as file:
        file.write(head + "".join(lines(rows, celsius, suffix)))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """A file of a few hundred bytes has several blocks, as a large one has."""
    monkeypatch.setattr(text, "BLOCK_BYTES", 300)


def begun(driver, reader, frames=3):
    """A run that is stopped in the middle of its first file."""
    assert len(driver.frames(reader, stop_after=frames)) == frames


def told(frames):
    return [(frame.n, frame.rows, frame.checksum) for frame in frames]


def refused(driver, reader, from_n=2) -> SourceError:
    with pytest.raises(SourceError, match="HF-S004 SourceChanged") as found:
        for frame in driver.frames(reader, from_n=from_n):
            driver.rows(frame.references)
    return found.value


# -- between two runs --------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("change", ["replaced", "grown", "cut", "gone", "renamed"])
def test_a_file_that_was_only_partly_cut_may_not_change_before_the_next_run(driver, tmp_path, suffix, change):
    """The next run would go on with rows of another file, and nobody would be told."""
    path = tmp_path / f"a.{suffix}"
    write(path)
    reader = read.files("*." + suffix)
    straight = Driver(tmp_path).set(directory=tmp_path / "twin").frames(reader)
    begun(driver, reader)
    old = path.read_bytes()
    match change:
        case "replaced":
            write(path, celsius=30.0)
        case "grown":
            write(path, ROWS + 4)
        case "cut":
            write(path, ROWS - 4)
        case "gone":
            path.unlink()
            write(tmp_path / f"b.{suffix}", celsius=30.0)
        case "renamed":
            path.rename(tmp_path / f"b.{suffix}")

    error = refused(driver, reader)

    assert error.where == str(path)
    assert "frames from 1 on were made of it" in error.why
    # The first remedy: the old content under the old name.
    (tmp_path / f"b.{suffix}").unlink(missing_ok=True)
    path.write_bytes(old)
    assert told(driver.frames(reader, from_n=2)) == told(straight[1:])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_new_files_can_be_read_in_a_folder_of_their_own(driver, tmp_path, suffix):
    """The second remedy that HF-S004 names."""
    path = tmp_path / f"a.{suffix}"
    write(path)
    reader = read.files(path)
    begun(driver, reader)
    write(path, celsius=30.0)
    refused(driver, reader)

    frames = driver.set(directory=tmp_path / "another").frames(reader)

    rows = driver.rows([each for frame in frames for each in frame.references])
    assert set(rows.column("celsius").to_pylist()) == {30.0}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("done", [False, True])
def test_other_bytes_under_the_same_size_and_time_are_noticed(driver, tmp_path, suffix, done):
    """`cp -p` and `rsync -t` keep times; a size is soon the same."""
    path = tmp_path / f"a.{suffix}"
    write(path)
    before = path.stat()
    driver.frames(read.files(path)) if done else begun(driver, read.files(path))
    write(path, celsius=30.0)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)

    refused(driver, read.files(path))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_new_stamps_on_the_old_bytes_are_no_change(driver, tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    write(path)
    straight = Driver(tmp_path).set(directory=tmp_path / "twin").frames(read.files(path))
    begun(driver, read.files(path))
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    os.replace(copy, path)
    os.utime(path, ns=(1, 1))

    assert told(driver.frames(read.files(path), from_n=2)) == told(straight[1:])


def test_a_link_that_leads_elsewhere_now_is_noticed(driver, tmp_path):
    for name, celsius in (("one", 20.0), ("two", 30.0)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.parquet", celsius=celsius)
    link = tmp_path / "a.parquet"
    link.symlink_to(tmp_path / "one" / "a.parquet")
    begun(driver, read.files(link))
    link.unlink()
    link.symlink_to(tmp_path / "two" / "a.parquet")

    refused(driver, read.files(link))


def test_a_file_written_through_another_name_is_noticed(driver, tmp_path):
    write(tmp_path / "a.csv")
    os.link(tmp_path / "a.csv", tmp_path / "other")
    begun(driver, read.files("a.csv"))
    (tmp_path / "other").write_bytes((tmp_path / "a.csv").read_bytes().replace(b"20.0", b"30.0"))

    refused(driver, read.files("a.csv"))


def test_another_setting_does_not_forget_what_was_used(driver, tmp_path):
    """A run with another `late=` cuts anew, from the same files or not at all."""
    write(tmp_path / "a.csv")
    begun(driver, read.files("a.csv"))
    write(tmp_path / "a.csv", celsius=30.0)

    refused(driver.set(late="drop"), read.files("a.csv"))


def test_a_folder_may_move_with_its_files(tmp_path):
    (tmp_path / "here").mkdir()
    write(tmp_path / "here" / "a.csv")
    driver = Driver(tmp_path / "here")
    reader = read.files("a.csv")
    straight = driver.frames(reader)
    (tmp_path / "here").rename(tmp_path / "there")
    moved = Driver(tmp_path / "there")
    moved.clock = driver.clock
    assert told(moved.frames(reader, from_n=3)) == told(straight[2:])

    write(tmp_path / "there" / "a.csv", celsius=30.0)
    refused(moved, reader)


def test_files_without_rows_keep_their_place(driver, tmp_path):
    write(tmp_path / "a.csv", 0)
    write(tmp_path / "b.csv")
    write(tmp_path / "c.csv", 0)
    straight = driver.frames(read.files("*.csv"))

    assert told(driver.frames(read.files("*.csv"), from_n=2)) == told(straight[1:])


def test_a_file_whose_stamps_are_new_is_read_once_more_and_not_at_every_start(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "FRESH_NS", 0)
    write(tmp_path / "a.parquet")
    begun(driver, read.files("a.parquet"))
    os.utime(tmp_path / "a.parquet", ns=(1, 1))
    read_whole = []
    real = identity.digest_of
    monkeypatch.setattr(identity, "digest_of", lambda path: read_whole.append(path) or real(path))

    for _ in range(3):
        driver.frames(read.files("a.parquet"), from_n=2, stop_after=3)

    assert len(read_whole) == 1


def test_a_list_of_files_with_a_flipped_bit_is_refused(driver, tmp_path):
    write(tmp_path / "a.csv")
    begun(driver, read.files("a.csv"))
    catalogue = tmp_path / "state" / "files.jsonl"
    data = bytearray(catalogue.read_bytes())
    data[data.index(b'"digest') if b'"digest' in data else data.index(b'"used"') + 40] ^= 1
    catalogue.write_bytes(data)

    with pytest.raises(SourceError, match="HF-S009 LogDamaged"):
        driver.frames(read.files("a.csv"), from_n=2)


# -- while a run goes on -----------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("how", ["in place", "renamed over", "grown"])
def test_a_change_between_two_frames_of_a_run_stops_it(driver, tmp_path, suffix, how):
    path = tmp_path / f"a.{suffix}"
    write(path)
    source = driver.open(read.files(path))
    found = []
    with pytest.raises(SourceError, match="HF-S004 SourceChanged"):
        for frame in source.frames(threading.Event()):
            found += driver.rows(frame.references).column("celsius").to_pylist()
            if frame.n == 2:
                write(tmp_path / f"new.{suffix}", ROWS + 4 * (how == "grown"), celsius=20.0 if how == "grown" else 30.0)
                if how == "renamed over":
                    os.replace(tmp_path / f"new.{suffix}", path)
                else:
                    path.write_bytes((tmp_path / f"new.{suffix}").read_bytes())
    assert set(found) == {20.0}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "csv.gz"])
def test_a_worker_never_reads_other_bytes_for_a_frame(driver, tmp_path, suffix):
    """The frame waits in a queue; meanwhile the file is replaced, with the same size and time."""
    path = tmp_path / f"a.{suffix}"
    write(path)
    before = path.stat()
    frames = driver.frames(read.files(path))
    write(path, celsius=30.0)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    for frame in frames:
        with pytest.raises(SourceError, match="HF-S004 SourceChanged"):
            driver.rows(frame.references)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "csv.gz"])
def test_a_change_is_told_although_the_worker_has_the_old_rows(driver, tmp_path, suffix, monkeypatch):
    """The rows of all frames were decoded with the first; a run of 300 frames ended well over a file that was another."""
    monkeypatch.setattr(text, "BLOCK_BYTES", 1 << 20)
    path = tmp_path / f"a.{suffix}"
    write(path)
    old = path.read_bytes()
    first, second, *others = driver.frames(read.files(path))
    driver.rows(first.references)

    path.write_bytes(old)  # other stamps, the same bytes
    assert set(driver.rows(second.references).column("celsius").to_pylist()) == {20.0}
    write(path, celsius=30.0)
    for frame in others:
        with pytest.raises(SourceError, match="HF-S004 SourceChanged"):
            driver.rows(frame.references)


def test_a_frame_read_while_its_file_is_replaced_is_not_kept(driver, tmp_path, monkeypatch):
    """Between the look at the file and the reading of it; put back, the worker must not remember the other rows."""
    path = tmp_path / "a.csv"
    write(path)
    old = path.read_bytes()
    frame = driver.frames(read.files(path))[0]
    real = text.read_bytes

    def replaced(*where):
        path.write_bytes(old.replace(b"20.0", b"30.0"))
        return real(*where)

    monkeypatch.setattr(text, "read_bytes", replaced)
    with pytest.raises(SourceError, match="HF-S004"):
        driver.rows(frame.references)
    monkeypatch.setattr(text, "read_bytes", real)
    path.write_bytes(old)
    assert set(driver.rows(frame.references).column("celsius").to_pylist()) == {20.0}


# -- what is not used yet may be mended --------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("2023-11-14T22:13:27Z,one,20.0\n", "HF-S006"),
        (",1,20.0\n", "HF-S007"),
        ("2020-01-01T00:00:00Z,1,20.0\n", "HF-F004"),
    ],
)
@pytest.mark.parametrize("at", [1, 17, 30])
def test_a_line_that_stopped_the_source_can_be_corrected(driver, tmp_path, wrong, code, at):
    """What HF-S006, HF-S007 and HF-F004 tell users to do; the frames before the line stand."""
    path = tmp_path / "a.csv"
    driver.set(late="fail")
    rows = lines(ROWS)
    path.write_text("ts,zone,celsius\n" + "".join(rows))
    reader = read.files(path)
    straight = driver.set(directory=tmp_path / "twin").frames(reader)
    driver.set(directory=tmp_path / "state")
    path.write_text("ts,zone,celsius\n" + "".join([*rows[:at], wrong, *rows[at + 1 :]]))
    source, handed = driver.open(reader), []
    with pytest.raises(SourceError, match=code):
        handed += source.frames(threading.Event())

    # Mended, the frames go on; a change before the line is still refused.
    path.write_text("ts,zone,celsius\n" + "".join(rows))
    again = driver.frames(reader, from_n=1)
    assert [driver.rows(f.references).to_pylist() for f in again] == [
        driver.rows(f.references).to_pylist() for f in straight
    ]
    assert [frame.rows for frame in again[: len(handed)]] == [4] * len(handed)


def test_mending_a_line_is_no_leave_to_change_those_before_it(driver, tmp_path):
    path = tmp_path / "a.csv"
    rows = lines(ROWS)
    path.write_text("ts,zone,celsius\n" + "".join([*rows[:30], "x,y,z\n", *rows[31:]]))
    with pytest.raises(SourceError, match="HF-S006"):
        driver.frames(read.files(path))
    path.write_text(("ts,zone,celsius\n" + "".join(rows)).replace("20.0", "30.0", 2))

    refused(driver, read.files(path))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_edit_is_refused_or_was_not_used_yet(tmp_path_factory, data):
    """Whatever is changed, at whatever point: the frames of both runs are those of one file, or the second is refused."""
    folder = tmp_path_factory.mktemp("edited")
    path = folder / "a.csv"
    write(path)
    old = path.read_bytes()
    driver, reader = Driver(folder), read.files(path)
    stop = data.draw(st.integers(1, 10))
    before = [driver.rows(frame.references).to_pylist() for frame in driver.frames(reader, stop_after=stop)]
    # A digit of a reading: every version can be read, and no row moves to another frame.
    row = data.draw(st.integers(0, ROWS - 1))
    at = old.index(b"20.0", old.index(lines(ROWS)[row].encode())) + data.draw(st.sampled_from([0, 1, 3]))
    new = old[:at] + bytes([old[at] ^ 1]) + old[at + 1 :]
    keep_times = data.draw(st.booleans())
    stamps = path.stat()
    path.write_bytes(new)
    if keep_times:
        os.utime(path, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))

    try:
        after = [driver.rows(frame.references).to_pylist() for frame in driver.frames(reader, from_n=stop + 1)]
    except SourceError as error:
        assert error.code == "HF-S004"
        return
    twin = Driver(folder).set(directory=folder / "twin").frames(reader)
    assert before + after == [driver.rows(frame.references).to_pylist() for frame in twin]
