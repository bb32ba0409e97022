"""A live source that is added to a process, or put back into one, which has gone on without it: no row of it is lost."""

import pytest

from holdfast.frames.clock import FrameClock
from holdfast.sources import read

from .conftest import SECOND
from .growing_files import HEADER, T0, at_once, driven, lines, numbers  # noqa: F401
from .test_feed import Post, record, sent, zones

START_US = 1_704_067_200_000_000


def test_rows_of_a_new_source_that_are_older_than_the_process_are_late(driver):
    driver.clock = FrameClock(START_US, SECOND)
    post = Post([sent("a", record(2, 1), record(5, 2))], [sent("b", record(6, 3))])
    frames = driver.frames(post, from_n=5)
    assert [frame.n for frame in frames] == [5, 6, 7]
    assert zones(driver, frames) == [[1], [2], [3]] and frames[0].late_rows == 1
    assert len(post.acked) == 2


def test_what_a_source_had_open_when_it_was_taken_out_comes_when_it_is_put_back(driver):
    driver.clock = FrameClock(START_US, SECOND)
    post = Post([sent("a", record(0, 1), record(1, 2), record(2, 3))])
    post.bounded = False
    frames = driver.frames(post, stop_after=2)
    assert zones(driver, frames) == [[1], [2]]
    again = Post([sent("b", record(4, 4), record(9, 5))])
    frames = driver.frames(again, from_n=8)
    assert [row for rows in zones(driver, frames) for row in rows] == [3, 4, 5]


class Silent(Post):
    """It never ends; the time that is waited for it passes on its own clock, which the source goes by."""

    bounded = False

    def __init__(self, *batches):
        super().__init__(*batches)
        self.now_s = 0.0

    def take(self, wait_s):
        self.now_s += wait_s
        return super().take(wait_s)

    def has_ended(self):
        return False


@pytest.mark.parametrize("from_n", [41, 61], ids=["after silence", "after the process went on without it"])
def test_a_silent_source_holds_nobody_for_as_long_as_it_was_silent(driver, from_n):
    """Frames that the clock closed are over: after a restart the next one is due a frame later."""
    driver.clock = FrameClock(START_US, SECOND)
    silent = Silent([sent("a", record(0, 1))])
    driver.set(monotonic=lambda: silent.now_s, boundary="clock").frames(silent, stop_after=40)

    again = Silent()
    frames = driver.set(monotonic=lambda: again.now_s).frames(again, from_n=from_n, stop_after=from_n)
    assert [frame.n for frame in frames] == [from_n] and again.now_s < 2.0


@pytest.mark.parametrize("before", [True, False], ids=["put back", "new"])
def test_rows_of_a_growing_file_that_the_process_has_passed_are_late(driver, tmp_path, before):
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 10))
    reader, first = read.files("a.csv", growing=True), []
    if before:
        first = driven(driver, reader)
    else:
        driver.clock = FrameClock(T0, SECOND)
    path.write_text(path.read_text() + lines(10, 50))
    second = driven(driver, reader, from_n=9)

    assert numbers(driver, first + second) == list(range(48))
    assert second[0].n == 9 and second[0].late_rows == 32 - sum(frame.rows for frame in first)
