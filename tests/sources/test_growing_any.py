"""Files that grow, by any schedule; and what is kept of their frames, damaged."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import SourceError
from holdfast.frames.clock import FrameClock
from holdfast.journals.seals import SealJournal
from holdfast.sources import read
from holdfast.sources.files.grown import GrownLog

from .conftest import SECOND, Driver
from .growing_files import HEADER, T0, Script, appends, at_once, driven, line, lines, numbers, parquet, told  # noqa: F401

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
        self.held: dict[
            str, str
        ] = {}  # what is still to be written of each file: its writer stands in the middle of a line

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
        actions = [
            self.random.choice([self.append, self.append, self.new_file, self.rotate])
            for _ in range(self.random.randrange(5))
        ]
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
    used = [
        each
        for each in GrownLog(world.driver.context.directory).files.values()
        if each.rows and (each.pos or each.whole)
    ]
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
