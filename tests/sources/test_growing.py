"""Files that grow and folders that are watched, as the engine drives them, without an engine."""

from __future__ import annotations

import gzip
import os

import pytest

import holdfast as hf
from holdfast.errors import SourceError, UsageError
from holdfast.sources import identity, read
from holdfast.sources.files import growing_source as growing
from holdfast.sources.parse import text

from .conftest import Driver
from .growing_files import HEADER, Script, appends, at_once, driven, line, lines, numbers, parquet, refused, told  # noqa: F401

# -- growth ------------------------------------------------------------------------


def test_a_file_that_is_appended_to_gives_its_rows_once(driver, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 10))
    reader = read.files("a.csv", growing=True)

    first = driven(driver, reader, appends(path, lines(10, 20)), appends(path, lines(20, 30)))
    path.write_text(path.read_text() + lines(30, 41))
    second = driven(driver, reader, from_n=first[-1].n + 1)

    assert [frame.rows for frame in first] == [4] * 7
    assert numbers(driver, first + second) == list(range(40))


def test_a_line_counts_when_its_newline_is_there(driver, tmp_path):
    """Half a number is a number too: 1 instead of 12."""
    path = tmp_path / "a.csv"
    path.write_text(HEADER[:5])
    torn = lines(0, 9)
    pieces = [HEADER[5:] + torn[:40], torn[40:41], torn[41:100], torn[100:-3], torn[-3:]]

    frames = driven(driver, read.files("a.csv", growing=True), *(appends(path, each) for each in pieces))

    assert numbers(driver, frames) == list(range(8))


def test_a_newline_inside_quotes_ends_no_row(driver, tmp_path):
    from holdfast.graph.schemas import Schema

    driver.set(schema=Schema.of("ts timestamp, note string"))
    path = tmp_path / "a.csv"
    time = line(0).split(",")[0]
    path.write_text("ts,note\n")
    frames = driven(
        driver,
        read.files("a.csv", growing=True),
        appends(path, f'{time},"one\n'),
        appends(path, 'two"\n' + f"{line(9).split(',')[0]},x\n"),
    )
    assert driver.rows(frames[0].references).column("note").to_pylist() == ["one\ntwo"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "csv.gz", "parquet"])
def test_files_added_to_a_folder_are_taken_up(driver, tmp_path, suffix):
    (tmp_path / "in").mkdir()

    def put(name: str, start: int, stop: int):
        def write() -> None:
            path = tmp_path / "in" / f"{name}.{suffix}"
            if suffix == "parquet":
                parquet(path, start, stop)
            elif suffix == "csv.gz":
                with gzip.open(path, "wt") as file:
                    file.write(HEADER + lines(start, stop))
            elif suffix == "csv":
                path.write_text(HEADER + lines(start, stop))
            else:
                rows = [line(number).strip().split(",") for number in range(start, stop)]
                path.write_text("".join(f'{{"ts": "{a}", "zone": {b}, "celsius": {c}}}\n' for a, b, c in rows))

        return write

    put("b", 0, 10)()
    reader = read.files("in", growing=True)
    # A name before the others comes later all the same: what is handed out stays.
    first = driven(driver, reader, put("a", 10, 20), put("c", 20, 30))
    put("0", 30, 41)()
    second = driven(driver, reader, from_n=first[-1].n + 1)

    assert numbers(driver, first + second) == list(range(40))
    assert told(driven(driver, reader)) == told(first + second)


def test_a_folder_that_is_empty_is_waited_in(driver, tmp_path):
    (tmp_path / "in").mkdir()
    reader = read.files("in/*.csv", growing=True)
    assert reader.open(driver.context).first_time_us(0.01) is None
    (tmp_path / "in" / "a.csv").write_text(HEADER + lines(0, 9))
    assert numbers(driver, driven(driver, reader)) == list(range(8))


def test_a_folder_that_is_not_there_is_named(driver):
    error = refused("HF-S001", driver, read.files("inn/*.csv", growing=True))
    assert "inn" in error.what


@pytest.mark.parametrize("suffix", ["parquet", "csv.gz"])
def test_a_file_still_being_written_is_waited_for_and_named(driver, tmp_path, suffix, monkeypatch):
    whole = tmp_path / "whole"
    if suffix == "parquet":
        parquet(whole, 10, 21)
    else:
        whole.write_bytes(gzip.compress((HEADER + lines(10, 21)).encode()))
    (tmp_path / "in").mkdir()
    parquet(tmp_path / "in" / "a.parquet", 0, 10)
    path = tmp_path / "in" / f"b.{suffix}"
    path.write_bytes(whole.read_bytes()[:-30])
    monkeypatch.setattr(growing, "PATIENCE_S", 0.0)
    reader = read.files("in", growing=True)
    driver.set(boundary="hold")
    source, said = driver.open(reader), []
    script = Script(lambda: said.append(source.remark()), lambda: path.write_bytes(whole.read_bytes()))

    frames = list(source.frames(script))

    assert f"{path} to be whole" in said[0]
    assert said[0].startswith("waiting since ")
    assert numbers(driver, frames) == list(range(20))
    assert source.progress() == "2 files, all read"


def test_a_last_line_without_a_newline_is_named(driver, tmp_path, monkeypatch):
    """A file that was dropped without one would keep its last row for ever; `echo >> FILE` is all it takes."""
    monkeypatch.setattr(growing, "PATIENCE_S", 0.0)
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 9)[:-1])
    driver.set(boundary="hold")
    source, said = driver.open(read.files("a.csv", growing=True)), []
    frames = list(source.frames(Script(lambda: said.append((source.remark(), source.progress())), appends(path, "\n"))))
    assert f"the end of a line in {path}" in said[0][0]
    assert "1 file, " in said[0][1] and "not read yet" in said[0][1]
    assert numbers(driver, frames) == list(range(8))


def test_the_clock_closes_frames_of_a_silent_file_and_a_replay_repeats_it(driver, tmp_path):
    now = [0.0]
    driver.set(boundary="clock", monotonic=lambda: now[0], late="admit")
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 6))
    reader = read.files("a.csv", growing=True)

    def silence() -> None:
        now[0] += 3.0

    frames = driven(driver, reader, silence, appends(path, lines(6, 8)))
    assert [frame.rows for frame in frames][:4] == [4, 2, 0, 0]
    assert told(driven(driver, reader, from_n=1))[: len(frames)] == told(frames)
    # Those that came too late are in the first frame that was still open.
    rest = driven(driver, reader, silence, silence, from_n=len(frames) + 1)
    assert numbers(driver, rest) == [6, 7]
    assert rest[0].late_rows + sum(frame.late_rows for frame in rest[1:]) == 2


def test_by_arrival_a_row_is_in_the_frame_in_which_it_was_read(driver, tmp_path):
    now = [0.0]
    driver.set(time=None, monotonic=lambda: now[0])
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 6))
    reader = read.files("a.csv", growing=True)

    def later() -> None:
        now[0] += 1.5
        appends(path, lines(6, 8))()

    frames = driven(driver, reader, later, lambda: now.__setitem__(0, now[0] + 5))
    assert [frame.rows for frame in frames if frame.rows] == [6, 2]
    assert told(driven(driver, reader))[: len(frames)] == told(frames)


# -- rotation ----------------------------------------------------------------------


def rotated(folder, name="app.csv"):
    """As logrotate does it: renamed, and a new file under the old name."""

    def rotate() -> None:
        olds = sorted(folder.glob(f"{name}.*"), key=lambda path: -int(path.suffix[1:]))
        for old in olds:
            old.rename(folder / f"{name}.{int(old.suffix[1:]) + 1}")
        (folder / name).rename(folder / f"{name}.1")
        (folder / name).write_text(HEADER)

    return rotate


@pytest.mark.parametrize("restart", [False, True])
def test_a_log_that_is_rotated_goes_on_under_both_names(driver, tmp_path, restart):
    (tmp_path / "log").mkdir()
    path = tmp_path / "log" / "app.csv"
    path.write_text(HEADER + lines(0, 6))
    reader = read.files("log/app.csv", growing=True)
    old = tmp_path / "log" / "app.csv.1"
    actions = [
        rotated(tmp_path / "log"),
        appends(old, lines(6, 8)),  # its writer had it open still
        appends(path, lines(8, 12)),
        rotated(tmp_path / "log"),
        appends(path, lines(12, 21)),
    ]
    frames = []
    if restart:
        for action in actions:
            frames += driven(driver, reader, from_n=len(frames) + 1)
            action()
        frames += driven(driver, reader, from_n=len(frames) + 1)
    else:
        frames = driven(driver, reader, *actions)

    assert numbers(driver, frames) == list(range(20))
    assert told(driven(driver, reader)) == told(frames)


def test_a_frame_in_a_queue_finds_its_rows_in_a_log_that_was_rotated(driver, tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "app.csv").write_text(HEADER + lines(0, 9))
    frames = driven(driver, read.files("log/app.csv", growing=True))
    rotated(tmp_path / "log")()

    assert numbers(driver, frames) == list(range(8))


def test_copytruncate_is_refused_and_renaming_the_rest_goes_on(driver, tmp_path):
    (tmp_path / "log").mkdir()
    path = tmp_path / "log" / "app.csv"
    path.write_text(HEADER + lines(0, 10))
    reader = read.files("log/*.csv", growing=True)

    def copytruncate() -> None:
        (tmp_path / "log" / "app.csv.1").write_text(path.read_text())
        path.write_text(HEADER + lines(10, 12))

    first = []
    driver.set(boundary="hold")
    source = driver.open(reader)
    with pytest.raises(SourceError, match="HF-S060 FileCutShort") as found:
        first += source.frames(Script(copytruncate))
    assert found.value.where == str(path)

    path.rename(tmp_path / "log" / "app-2.csv")
    second = driven(driver, reader, appends(tmp_path / "log" / "app-2.csv", lines(12, 21)), from_n=3)
    assert numbers(driver, driven(driver, reader, from_n=1)) == list(range(20))
    assert [frame.rows for frame in second] == [4, 4, 4]


# -- what may not happen -----------------------------------------------------------


@pytest.mark.parametrize("when", ["in a run", "between"])
@pytest.mark.parametrize("how", ["in place", "renamed over", "cut"])
def test_a_file_that_is_replaced_is_refused(driver, tmp_path, when, how):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.csv"
    path.write_text(HEADER + lines(0, 10))
    old = path.read_bytes()
    reader = read.files("in", growing=True)

    def replace() -> None:
        if how == "cut":
            path.write_text(HEADER)
            return
        new = path if how == "in place" else tmp_path / "new"
        new.write_text(HEADER + lines(20, 40))
        os.replace(new, path)

    code = "HF-S060" if how == "cut" else "HF-S004"
    if when == "between":
        driven(driver, reader)
        replace()
        error = refused(code, driver, reader, from_n=2)
    else:
        error = refused(code, driver, reader, replace)
    assert error.where == str(path)

    # The remedy: under a name of its own it is a new file; the old content, back in the folder, is the old one.
    path.rename(tmp_path / "in" / "b.csv")
    path.write_bytes(old)
    expected = list(range(8)) if how == "cut" else [*range(10), *range(20, 36)]
    assert numbers(driver, driven(driver, reader)) == expected


def test_a_file_that_frames_need_may_not_be_deleted(driver, tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.csv"
    path.write_text(HEADER + lines(0, 10))
    old = path.read_bytes()
    reader = read.files("in", growing=True)
    driven(driver, reader)
    path.unlink()

    error = refused("HF-S061 FileGone", driver, reader, from_n=2)
    assert "frames 2 to 3 have rows of it" in error.why
    # Under any name.
    (tmp_path / "in" / "restored").write_bytes(old)
    assert numbers(driver, driven(driver, reader, from_n=2)) == list(range(4, 8))


def test_a_file_that_is_used_up_may_go(driver, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(HEADER + lines(0, 8))
    (tmp_path / "in" / "b.csv").write_text(HEADER + lines(8, 13))
    reader = read.files("in", growing=True)
    first = driven(driver, reader)
    (tmp_path / "in" / "a.csv").unlink()
    (tmp_path / "in" / "c.csv").write_text(HEADER + lines(13, 21))

    second = driven(driver, reader, from_n=len(first) + 1)
    assert numbers(driver, second) == list(range(12, 20))
    # Another one under its name is told from it.
    (tmp_path / "in" / "a.csv").write_text(HEADER + lines(100, 101))
    refused("HF-S004", driver, reader, from_n=6)


def test_a_file_deleted_before_it_was_read_to_its_end_is_told(driver, tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.csv"
    path.write_text(HEADER + lines(0, 8) + line(8)[:-1])
    (tmp_path / "in" / "b.csv").write_text(HEADER + lines(9, 13))
    reader = read.files("in", growing=True)
    first = driven(driver, reader)
    path.unlink()
    error = refused("HF-S061 FileGone", driver, reader, from_n=len(first) + 1)
    assert "were not read yet" in error.why


def test_growing_is_declared_once_and_for_all(driver, tmp_path):
    (tmp_path / "a.csv").write_text(HEADER + lines(0, 9))
    driver.frames(read.files("a.csv"))
    refused("HF-S063", driver, read.files("a.csv", growing=True))
    other = Driver(tmp_path).set(directory=tmp_path / "other")
    driven(other, read.files("a.csv", growing=True))
    refused("HF-S063", other, read.files("a.csv"))
    # Both remedies: as it was, and a folder of its own.
    assert numbers(other, driven(other, read.files("a.csv", growing=True))) == list(range(8))
    third = Driver(tmp_path).set(directory=tmp_path / "third")
    assert numbers(third, third.frames(read.files("a.csv"))) == list(range(9))


@pytest.mark.parametrize("option", [{"new_columns": "fail"}, {"ahead": "1 minute"}])
def test_what_means_nothing_to_growing_files_is_refused(option):
    process = hf.StreamProcess("kiln", frame="1 second", time="ts")
    with pytest.raises(UsageError, match="HF-C032"):
        process.source("probes", read.files("in", growing=True), schema="ts timestamp", **option)
    with pytest.raises(UsageError, match="HF-C030"):
        read.files("in", growing=True, rate="10x")


# -- what it costs -----------------------------------------------------------------


def test_a_look_at_many_files_reads_none_of_them(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "FRESH_NS", 0)
    (tmp_path / "in").mkdir()
    for number in range(200):
        (tmp_path / "in" / f"{number:05d}.csv").write_text(HEADER + line(number))
    reader = read.files("in", growing=True)
    frames = driven(driver, reader)
    assert numbers(driver, frames) == list(range(196))
    source = driver.open(reader, from_n=50)
    opened = []
    real = open
    monkeypatch.setattr(
        "builtins.open", lambda path, *rest, **more: opened.append(str(path)) or real(path, *rest, **more)
    )
    list(source.frames(Script(*[lambda: None] * 5)))
    assert [
        path
        for path in opened
        if "/in/" in path and not path.endswith(("00196.csv", "00197.csv", "00198.csv", "00199.csv"))
    ] == []


def test_what_is_kept_of_frames_stays_bounded(driver, tmp_path, monkeypatch):
    from holdfast.sources.files import grown

    monkeypatch.setattr(grown, "SPARE_MAX", 20)
    path = tmp_path / "a.csv"
    path.write_text(HEADER)
    driver.set(boundary="hold")
    reader = read.files("a.csv", growing=True)
    path.write_text(HEADER + lines(0, 4))
    source, made = driver.open(reader), []
    script = Script(*(appends(path, lines(at, at + 4)) for at in range(4, 400, 4)))
    for frame in source.frames(script):
        made.append(frame)
        source.trim(frame.n - 3)
    assert len((tmp_path / "state" / "grown.jsonl").read_bytes().splitlines()) < 60
    assert told(driven(driver, reader, from_n=len(made) - 2)) == told(made[-3:])
    error = refused("HF-S010", driver, reader, from_n=5)
    assert "no longer" in error.what


def test_text_block_sizes_do_not_show(driver, tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 41))
    reader = read.files("a.csv", growing=True)
    whole = numbers(driver, driven(driver, reader))
    monkeypatch.setattr(text, "BLOCK_BYTES", 100)
    other = Driver(tmp_path).set(directory=tmp_path / "other")
    assert numbers(other, driven(other, reader)) == whole == list(range(40))
