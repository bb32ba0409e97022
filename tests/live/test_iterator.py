"""A source that is logged before use is killed: no element is lost, none comes twice."""

from __future__ import annotations

from tests.live.feed import ELEMENTS, PER_FRAME
from tests.live.runs import content


def expected() -> list[tuple]:
    """(number, running sum of its parity, frame)."""
    sums, rows = [0, 0], []
    for number in range(ELEMENTS):
        sums[number % 2] += number
        rows.append((number, sums[number % 2], number // PER_FRAME + 1))
    return rows


def allow(feed, frames: int) -> None:
    """The source may give so many frames' worth; never fewer than before."""
    whole = feed.folder / "allowed.tmp"
    whole.write_text(str(frames * PER_FRAME))
    whole.replace(feed.folder / "allowed")


def test_an_iterator_killed_while_it_is_logged_loses_and_doubles_nothing(bench):
    """Before the first frame, between frames, and while elements are logged faster than frames are made."""
    feed = bench("feed.py", db="summed.db")
    log = feed.state / "sources" / "pulses" / "log"
    allow(feed, 10)
    first = feed.start()
    assert first.reaches(lambda: any(log.glob("*.arrow"))), first.said()
    first.kill("driver")
    first.ended()
    for frames, victim in ((4, "driver"), (5, "jvm")):
        run = feed.start()
        allow(feed, feed.last_written() + 20)
        wanted = feed.last_written() + frames
        assert run.reaches(lambda n=wanted: feed.last_written() >= n), run.said()
        run.kill(victim)
        assert run.ended() != 0
    assert feed.last_written() < ELEMENTS // PER_FRAME
    allow(feed, ELEMENTS // PER_FRAME)
    feed.finish()

    found = content(feed.folder)["summed"]
    rows = sorted((number, total, frame) for _, _, number, total, frame, _ in found["rows"])
    assert rows == expected()
    assert [frame for _, _, frame, *_ in found["ledger"]] == list(range(1, ELEMENTS // PER_FRAME + 2))
