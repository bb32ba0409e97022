"""A live source that is added to a process, or put back into one, which has gone on without it: no row of it is lost."""

from holdfast.frames.clock import FrameClock

from .test_feed import Post, record, sent, zones


def test_rows_of_a_new_source_that_are_older_than_the_process_are_late(driver):
    driver.clock = FrameClock(1_704_067_200_000_000, 1_000_000)
    post = Post([sent("a", record(2, 1), record(5, 2))], [sent("b", record(6, 3))])
    frames = driver.frames(post, from_n=5)
    assert [frame.n for frame in frames] == [5, 6, 7]
    assert zones(driver, frames) == [[1], [2], [3]] and frames[0].late_rows == 1
    assert len(post.acked) == 2


def test_what_a_source_had_open_when_it_was_taken_out_comes_when_it_is_put_back(driver):
    driver.clock = FrameClock(1_704_067_200_000_000, 1_000_000)
    post = Post([sent("a", record(0, 1), record(1, 2), record(2, 3))])
    post.bounded = False
    frames = driver.frames(post, stop_after=2)
    assert zones(driver, frames) == [[1], [2]]
    again = Post([sent("b", record(4, 4), record(9, 5))])
    frames = driver.frames(again, from_n=8)
    assert [row for rows in zones(driver, frames) for row in rows] == [3, 4, 5]
