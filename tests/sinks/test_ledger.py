"""The verdict on a frame is a function of its record and of what the ledger has."""

from __future__ import annotations

import sqlite3

import pytest

from holdfast.errors import FrameDiffers, SinkError
from holdfast.frames.identity import Kind
from holdfast.sinks.ledger import KEPT_FRAMES, Entry, Ledger, Verdict, judge_frame

from .conftest import make_frame

S, T, L = Kind.STABLE, Kind.TENTATIVE, Kind.LOST


@pytest.mark.parametrize(
    ("there", "comes", "expected"),
    [
        (None, (S, "a"), Verdict.WRITE),
        (None, (L, "a"), Verdict.WRITE),
        ((S, "a"), (S, "a"), Verdict.SKIP),
        ((T, "a"), (T, "a"), Verdict.SKIP),
        ((T, "a"), (S, "b"), Verdict.REPLACE),
        ((S, "b"), (T, "a"), Verdict.SKIP),
        ((L, "a"), (L, "a"), Verdict.SKIP),
    ],
)
def test_stable_replaces_tentative_once_and_nothing_replaces_stable(there, comes, expected):
    record, _ = make_frame(5, kind=comes[0], checksum=comes[1])
    assert judge_frame(record, there and Entry(*there), last=9, where="") is expected


@pytest.mark.parametrize(
    ("there", "comes"),
    [((S, "a"), (S, "b")), ((T, "a"), (T, "b")), ((L, "a"), (S, "b")), ((S, "a"), (L, "b"))],
)
def test_other_content_under_a_number_already_written_is_an_error(there, comes):
    """Accepted in silence, two runs would disagree about what was sent."""
    record, _ = make_frame(5, kind=comes[0], checksum=comes[1])
    with pytest.raises(FrameDiffers) as caught:
        judge_frame(record, Entry(*there), last=9, where="sink 'x'")
    assert caught.value.code == "HF-F001"
    assert "a" in caught.value.why and "b" in caught.value.why and caught.value.effect


def test_a_frame_older_than_the_ledger_reaches_is_refused():
    """Its row was pruned. Written again it would be doubled; counted as written, rows of another numbering would vanish."""
    old, _ = make_frame(5)
    with pytest.raises(SinkError) as caught:
        judge_frame(old, None, last=5 + KEPT_FRAMES, where="")
    assert caught.value.code == "HF-K033"
    assert judge_frame(old, None, last=4 + KEPT_FRAMES, where="") is Verdict.WRITE


@pytest.fixture
def ledger():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    made = Ledger(lambda sql, values: connection.execute(sql, values).fetchall(), "kiln", "average")
    made.create()
    yield made
    connection.close()


def enter(ledger, *frames, epoch=1):
    records = [record for record, _ in frames]
    last = ledger.fence(epoch)
    verdicts = ledger.judge(records, last=last)
    ledger.enter(records, verdicts, last=last)
    return verdicts


def test_the_same_frame_twice_in_one_transaction_is_entered_once(ledger):
    assert enter(ledger, make_frame(1), make_frame(1)) == [Verdict.WRITE, Verdict.SKIP]
    assert ledger.last() == 1


def test_tentative_and_its_stable_in_one_transaction_leave_the_stable(ledger):
    frames = make_frame(1, kind=T, checksum="t"), make_frame(1, checksum="s")
    assert enter(ledger, *frames) == [Verdict.WRITE, Verdict.REPLACE]
    assert ledger.entry(1) == Entry(S, "s")


def test_an_old_epoch_is_refused_and_a_new_one_is_remembered(ledger):
    """An orphan of a killed run may still hold frames to write."""
    ledger.fence(3)
    ledger.fence(3)
    with pytest.raises(SinkError) as caught:
        ledger.fence(2)
    assert caught.value.code == "HF-K003"
    ledger.fence(4)
    with pytest.raises(SinkError):
        ledger.fence(3)


def test_the_ledger_keeps_a_bounded_number_of_rows(ledger):
    frames = [make_frame(n, checksum=str(n)) for n in range(1, KEPT_FRAMES + 501)]
    enter(ledger, *frames)
    [(count, oldest)] = ledger._run("select count(*), min(frame) from _holdfast_ledger", ())
    assert (count, oldest) == (KEPT_FRAMES, 501)
    assert enter(ledger, frames[500], frames[-1]) == [Verdict.SKIP, Verdict.SKIP]
    with pytest.raises(SinkError):
        enter(ledger, frames[0])
    assert ledger.last() == KEPT_FRAMES + 500


def test_sinks_do_not_see_each_other(ledger):
    other = Ledger(ledger._run, "kiln", "damped")
    enter(ledger, make_frame(1))
    assert enter(other, make_frame(1, checksum="other")) == [Verdict.WRITE]
    other.fence(1, target="damped")
    assert ledger.others_at("damped") == [("kiln", "damped")]
    assert other.others_at("damped") == []
