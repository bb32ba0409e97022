"""Files that grow and folders that are watched, as the engine drives them, without an engine."""

from __future__ import annotations

import gzip
import os
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.errors import SourceError, UsageError
from holdfast.frames.clock import FrameClock
from holdfast.records.seals import SealJournal
from holdfast.sources import growing, identity, read, text

from holdfast.sources.grown import GrownLog

from .conftest import SECOND, Driver

T0 = 1_700_000_000 * SECOND
HEADER = "ts,zone,celsius\n"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Every turn of the source looks at the folder."""
    monkeypatch.setattr(growing, "POLL_S", 0.0)
    monkeypatch.setattr(growing, "POLL_SHARE", 0.0)
    monkeypatch.setattr(growing, "LOOK_S", 0.0)


def line(number: int) -> str:
    """One row every quarter of a second; its number is its reading."""
    return f"{np.datetime64(T0 + number * SECOND // 4, 'us')}Z,{number % 5},{number}.0\n"


def lines(start: int, stop: int) -> str:
    return "".join(map(line, range(start, stop)))


def parquet(path, start: int, stop: int) -> None:
    numbers = np.arange(start, stop)
    times = pa.array(T0 + numbers * SECOND // 4, pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "zone": (numbers % 5).astype("int32"), "celsius": numbers.astype(float)})
    pq.write_table(table, path, row_group_size=8)


class Script(threading.Event):
    """Whenever the source has nothing to do, the next of these is done; after the last it is stopped."""

    def __init__(self, *actions) -> None:
        super().__init__()
        self._actions = list(actions)

    def wait(self, timeout=None) -> bool:
        if self._actions:
            self._actions.pop(0)()
        else:
            self.set()
        return self.is_set()


def driven(driver: Driver, reader, *actions, from_n: int = 1) -> list:
    """The frames of one run; it ends when nothing is left to do."""
    if driver.context.boundary is None:
        driver.set(boundary="hold")
    if driver.context.time is not None:
        driver.clock = FrameClock.starting(T0, SECOND)
    source = driver.open(reader, from_n)
    try:
        return list(source.frames(Script(*actions)))
    finally:
        source.close()


def numbers(driver: Driver, frames) -> list[int]:
    table = driver.rows([each for frame in frames for each in frame.references])
    return [int(celsius) for celsius in table.column("celsius").to_pylist()]


def told(frames):
    return [(frame.n, frame.rows, frame.checksum, [each.ranges for each in frame.references]) for frame in frames]


def appends(path, words: str):
    def append() -> None:
        with open(path, "a") as file:
            file.write(words)

    return append


def refused(code: str, driver: Driver, reader, *actions, from_n: int = 1) -> SourceError:
    with pytest.raises(SourceError, match=code) as found:
        driven(driver, reader, *actions, from_n=from_n)
    return found.value


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
        driver, read.files("a.csv", growing=True), appends(path, f'{time},"one\n'), appends(path, 'two"\n' + f"{line(9).split(',')[0]},x\n")
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


def test_a_copy_that_the_pattern_finds_does_not_double_its_rows(driver, tmp_path):
    """copytruncate, looked at between the copy and the cut."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(HEADER + lines(0, 9))
    reader = read.files("in", growing=True)
    first = driven(driver, reader)
    (tmp_path / "in" / "b.csv").write_text(HEADER + lines(0, 9))
    error = refused("HF-S062 FileTwice", driver, reader, from_n=3)
    assert error.where == str(tmp_path / "in" / "b.csv")

    (tmp_path / "in" / "b.csv").rename(tmp_path / "b.csv")
    second = driven(driver, reader, appends(tmp_path / "in" / "a.csv", lines(9, 13)), from_n=3)
    assert numbers(driver, first + second) == list(range(12))


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


# -- bad rows ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["drop", "quarantine"])
@pytest.mark.parametrize("restart", [False, True])
def test_bad_rows_are_set_aside_once(driver, tmp_path, policy, restart):
    import json

    driver.set(bad=policy)
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 5) + "x,1,1\n" + lines(5, 7) + "no\n")
    reader = read.files("a.csv", growing=True)
    more = appends(path, "y,2,2\n" + lines(7, 13))
    if restart:
        frames = driven(driver, reader)
        more()
        frames += driven(driver, reader, from_n=len(frames) + 1)
    else:
        frames = driven(driver, reader, more)

    assert numbers(driver, frames) == list(range(12))
    found = [json.loads(row) for file in sorted((tmp_path / "state" / "quarantine").glob("*")) for row in file.read_text().splitlines()]
    assert [each["raw"] for each in found] == (["x,1,1", "no", "y,2,2"] if policy == "quarantine" else [])
    if found:
        assert f"{path}, line 7" in found[0]["reason"]


def test_a_bad_row_stops_the_source_after_those_before_it_and_can_be_corrected(driver, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 9) + "x,1,1\n" + lines(10, 13))
    reader = read.files("a.csv", growing=True)
    driver.set(boundary="hold", grace_us=0)
    error = None
    source, first = driver.open(reader), []
    try:
        first += source.frames(Script())
    except SourceError as raised:
        error = raised
    assert error.code == "HF-S006" and error.where == f"{path}, line 11"

    path.write_text(HEADER + lines(0, 13))
    assert numbers(driver, driven(driver, reader)) == list(range(12))


@pytest.mark.parametrize(("wrong", "code"), [(",1,20.0\n", "HF-S007"), ("2020-01-01T00:00:00Z,1,20.0\n", "HF-F004")])
def test_a_row_that_stops_the_source_is_not_passed_over_by_the_next_run(driver, tmp_path, wrong, code):
    """Frames closed in the same block are sealed; the position they carry lies before the row."""
    driver.set(late="fail")
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 9) + wrong + lines(10, 21))
    reader = read.files("a.csv", growing=True)
    for from_n in (1, 2, 3):
        refused(code, driver, reader, from_n=from_n)
    path.write_text(HEADER + lines(0, 21))
    assert numbers(driver, driven(driver, reader)) == list(range(20))


def test_rows_of_a_json_file_need_their_fields(driver, tmp_path):
    path = tmp_path / "a.jsonl"
    time = line(0).split(",")[0]
    path.write_text(f'{{"ts": "{time}", "zone": 1, "celsius": null}}\n{{"ts": "{time}", "zone": 1}}\n')
    error = refused("HF-S006", driver, read.files("a.jsonl", growing=True))
    assert "no field 'celsius'" in error.why


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
    monkeypatch.setattr("builtins.open", lambda path, *rest, **more: opened.append(str(path)) or real(path, *rest, **more))
    list(source.frames(Script(*[lambda: None] * 5)))
    assert [path for path in opened if "/in/" in path and not path.endswith(("00196.csv", "00197.csv", "00198.csv", "00199.csv"))] == []


def test_what_is_kept_of_frames_stays_bounded(driver, tmp_path, monkeypatch):
    from holdfast.sources import grown

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


# -- any schedule ------------------------------------------------------------------


class World:
    """A folder that grows at random, and a source over it that is stopped and killed at random."""

    def __init__(self, folder, random) -> None:
        self.folder, self.random = folder / "in", random
        self.folder.mkdir()
        self.driver = Driver(folder).set(boundary="hold", late="admit")
        self.driver.clock = FrameClock.starting(T0, SECOND)
        self.reader = read.files("in", growing=True)
        self.handed: list = []
        self.next_row, self.next_file = 0, 0
        self.held: dict[str, str] = {}  # what is still to be written of each file: its writer stands in the middle of a line

    def rows(self, count: int) -> str:
        self.next_row += count
        return lines(self.next_row - count, self.next_row)

    def new_file(self) -> None:
        name = f"{self.random.randrange(100):02d}-{self.next_file}"
        self.next_file += 1
        count = self.random.randrange(0, 9)
        if self.random.random() < 0.3:
            parquet(self.folder / f"{name}.parquet", self.next_row, self.next_row + count + 1)
            self.next_row += count + 1
            return
        (self.folder / f"{name}.csv").write_text("")
        self.held[f"{name}.csv"] = HEADER + self.rows(count)

    def append(self) -> None:
        if not self.held:
            return self.new_file()
        name = self.random.choice(sorted(self.held))
        words = self.held[name] + (self.rows(self.random.randrange(1, 7)) if self.random.random() < 0.7 else "")
        size = self.random.randrange(0, len(words) + 1)
        appends(self.folder / name, words[:size])()
        self.held[name] = words[size:]
        return None

    def rotate(self) -> None:
        """Its writer goes on in the renamed one for a while, and another file takes the name."""
        if not self.held:
            return
        name = self.random.choice(sorted(self.held))
        moved = f"{name.removesuffix('.csv')}-{self.next_file}.csv"
        self.next_file += 1
        (self.folder / name).rename(self.folder / moved)
        self.held[moved] = self.held.pop(name)
        if self.random.random() < 0.7:
            (self.folder / name).write_text("")
            self.held[name] = HEADER

    def run(self) -> None:
        """A run in which things happen; it ends, or is killed with a frame in its hands."""
        actions = [self.random.choice([self.append, self.append, self.new_file, self.rotate]) for _ in range(self.random.randrange(5))]
        source = self.driver.open(self.reader, len(self.handed) + 1)
        killed_at = len(self.handed) + self.random.randrange(1, 8)
        for frame in source.frames(Script(*actions)):
            self.handed.append(frame)
            if frame.n == killed_at:
                return

    def finish(self) -> None:
        for name, words in self.held.items():
            appends(self.folder / name, words)()
        (self.folder / "zz.csv").write_text(HEADER + line(self.next_row + 100))
        self.handed += driven(self.driver, self.reader, from_n=len(self.handed) + 1)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False))
def test_any_growth_gives_every_row_once_and_a_replay_the_same_frames(tmp_path_factory, random):
    world = World(tmp_path_factory.mktemp("grows"), random)
    for _ in range(random.randrange(1, 12)):
        random.choice([world.append, world.append, world.new_file, world.rotate, world.run, world.run])()
    world.finish()

    assert [frame.n for frame in world.handed] == list(range(1, len(world.handed) + 1))
    assert sorted(numbers(world.driver, world.handed)) == list(range(world.next_row))
    again = driven(world.driver, world.reader)
    assert told(again) == told(world.handed)
    assert numbers(world.driver, again) == numbers(world.driver, world.handed)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False))
def test_any_replacement_of_what_was_used_is_noticed(tmp_path_factory, random):
    world = World(tmp_path_factory.mktemp("replaced"), random)
    for _ in range(random.randrange(3, 12)):
        random.choice([world.append, world.append, world.new_file, world.run])()
    world.append()
    world.finish()
    # What a file was when it was used is in the list of frames, if any of its rows were.
    used = [each for each in GrownLog(world.driver.context.directory).files.values() if each.rows and (each.pos or each.whole)]
    known = random.choice(used)
    path, stamps = Path(known.path), os.stat(known.path)
    size = known.pos or known.size
    data = bytearray(path.read_bytes())
    match random.choice(["flipped", "cut", "gone"]):
        case "flipped":
            data[random.randrange(size)] ^= 1 << random.randrange(8)
        case "cut":
            del data[random.randrange(size) :]
        case "gone":
            data = None
    if data is None:
        path.unlink()
    elif random.random() < 0.5:
        path.write_bytes(data)
    else:
        new = world.folder.parent / "new"
        new.write_bytes(data)
        os.replace(new, path)
    if data is not None and random.random() < 0.5:
        os.utime(path, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))

    with pytest.raises(SourceError) as found:
        numbers(world.driver, driven(world.driver, world.reader))
    assert found.value.code in ("HF-S004", "HF-S060", "HF-S061")
    assert found.value.where == str(path)


def grown_thrice(driver, tmp_path):
    """A list of several lines, and its file."""
    (tmp_path / "a.csv").write_text(HEADER + lines(0, 10))
    reader = read.files("a.csv", growing=True)
    driven(driver, reader, appends(tmp_path / "a.csv", lines(10, 20)), appends(tmp_path / "a.csv", lines(20, 30)))
    return reader, tmp_path / "state" / "grown.jsonl"


@pytest.mark.parametrize("at", [0, 0.3, 0.6, 0.95])
def test_a_flipped_bit_in_the_list_of_frames_is_refused(driver, tmp_path, at):
    """In the last line too: it has its newline, so it was written whole, and its frames were handed out."""
    reader, path = grown_thrice(driver, tmp_path)
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 4
    path.write_bytes(data)
    with pytest.raises(SourceError, match="HF-S009"):
        driven(driver, reader)
    assert path.read_bytes() == data, "nothing is cut off"


def test_a_torn_end_of_the_list_of_frames_is_cut_again_from_the_same_bytes(driver, tmp_path):
    reader, path = grown_thrice(driver, tmp_path)
    data = path.read_bytes()
    for size in (len(data) - 1, len(data) - 20, data.rindex(b"\n", 0, -1) + 3):
        path.write_bytes(data[:size])
        assert numbers(driver, driven(driver, reader)) == list(range(28))


def test_an_end_of_the_list_that_was_cut_off_is_missed_if_its_frames_were_handed_out(driver, tmp_path):
    reader, path = grown_thrice(driver, tmp_path)
    last = GrownLog(tmp_path / "state").last_n
    with closing(SealJournal(tmp_path / "state")) as journal:
        journal.note(last, epoch=1, boundary_us=0, rows=0, size=0, checksum="", late=0, references=[], at=0.0)
    driven(driver, reader)  # all there
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
    with pytest.raises(SourceError, match=f"HF-S009(.|\n)*frame {last} was handed out"):
        driven(driver, reader)


# -- what looks like one row and is not, and what was read before ---------------------------------


def stamp(number: int) -> str:
    return f"{np.datetime64(T0 + number * SECOND // 4, 'us')}Z"


def readings(driver: Driver, frames: list) -> list[float]:
    return [value for frame in frames for value in driver.rows(frame.references).column("celsius").to_pylist()]


def _two_in_a_line(number: int, other: int) -> str:
    return "".join(f'{{"ts": "{stamp(each)}", "zone": 1, "celsius": {each}}}' for each in (number, other)) + "\n"


@pytest.mark.parametrize(
    ("name", "strange"),
    [
        ("a.jsonl", _two_in_a_line(0, 8)),
        ("a.csv", f"{HEADER}{stamp(0)},1,0\r{stamp(8)},1,8\n"),
    ],
    ids=["two objects in a line", "a carriage return inside a line"],
)
def test_a_line_that_holds_two_rows_is_a_bad_one_and_no_row_behind_it_is_lost(driver, name, strange):
    """Arrow counts rows and we count lines: a source that stopped at a late row went on behind it."""
    late = [16, 1, 17, 24]
    if name.endswith(".csv"):
        body = "".join(f"{stamp(each)},1,{each}\n" for each in late)
    else:
        body = "".join(f'{{"ts": "{stamp(each)}", "zone": 1, "celsius": {each}}}\n' for each in late)
    folder = driver.folder / "in"
    folder.mkdir()
    (folder / name).write_bytes((strange + body).encode())
    reader = read.files("in", growing=True)
    with pytest.raises(SourceError, match="HF-S006"):
        driven(driver.set(late="fail"), reader)
    with pytest.raises(SourceError, match="HF-F004"):
        driven(driver.set(bad="quarantine"), reader)
    assert readings(driver, driven(driver.set(late="admit"), reader)) == [16, 1, 17]


def test_a_header_that_ends_with_a_carriage_return_takes_no_row_along(driver):
    (driver.folder / "a.csv").write_bytes((HEADER.replace("\n", "\r") + lines(0, 12)).encode())
    for reader in (read.files("a.csv"), read.files("a.csv", growing=True)):
        with pytest.raises(SourceError, match=r"HF-S006[^$]*carriage return"):
            driven(Driver(driver.folder / str(reader.growing)).set(base=driver.folder), reader)


def test_a_file_of_carriage_returns_alone_is_not_an_empty_one(driver):
    (driver.folder / "a.csv").write_bytes((HEADER + lines(0, 12)).replace("\n", "\r").encode())
    with pytest.raises(SourceError, match=r"HF-S006[^$]*carriage return"):
        driver.frames(read.files("a.csv"))


def test_a_bad_row_with_signs_that_end_a_line_elsewhere_does_not_stop_the_next_start(driver):
    (driver.folder / "a.csv").write_text(HEADER + lines(0, 6) + "half\u2028a\x85row,x,y\n" + lines(6, 12), encoding="utf-8")
    reader = read.files("a.csv", growing=True)
    driver.set(bad="quarantine")
    first = readings(driver, driven(driver, reader))
    assert readings(driver, driven(driver, reader)) == first


def test_a_file_that_was_read_and_is_compressed_comes_not_twice(driver):
    folder = driver.folder / "in"
    folder.mkdir()
    plain = folder / "a.csv"
    plain.write_text(HEADER + lines(0, 12))

    def compress() -> None:
        (folder / "a.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    reader = read.files("in", growing=True)
    more = [lambda: (folder / "b.csv").write_text(HEADER + lines(40, 48)), lambda: None, compress]
    with pytest.raises(SourceError, match=r"HF-S062[^$]*compressed"):
        driven(driver, reader, *more)
    (folder / "a.csv.gz").rename(driver.folder / "a.csv.gz")
    assert readings(driver, driven(driver, reader, from_n=4)) == list(range(40, 44))


def test_a_compressed_file_that_was_read_comes_not_twice_when_it_is_inflated(driver):
    folder = driver.folder / "in"
    folder.mkdir()
    (folder / "a.csv.gz").write_bytes(gzip.compress((HEADER + lines(0, 12)).encode()))
    with pytest.raises(SourceError, match="HF-S062"):
        driven(driver, read.files("in", growing=True), lambda: (folder / "a.csv").write_text(HEADER + lines(0, 12)))


def test_a_copy_is_known_before_it_is_whole(driver):
    folder = driver.folder / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(HEADER + lines(0, 12))
    copy = folder / "b.csv"

    def go_on() -> None:
        with open(copy, "a") as file:
            file.write(lines(6, 12))

    reader = read.files("in", growing=True)
    with pytest.raises(SourceError, match="HF-S062"):
        driven(driver, reader, lambda: copy.write_text(HEADER + lines(0, 6)), lambda: None, go_on)
    copy.unlink()
    assert readings(driver, driven(driver, reader)) == list(range(8))


def test_a_file_that_begins_as_another_is_read_once_it_differs(driver):
    folder = driver.folder / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(HEADER + lines(0, 12))
    other = folder / "b.csv"

    def go_on() -> None:
        with open(other, "a") as file:
            file.write(lines(20, 28))

    frames = driven(
        driver, read.files("in", growing=True), lambda: other.write_text(HEADER + lines(0, 2)), lambda: None, go_on
    )  # fmt: skip
    assert sorted(readings(driver, frames)) == sorted([*range(12), 0, 1, *range(20, 24)])
