"""Journals: whole lines, bounded size, entries that can be taken back."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.journal import Journal


def test_a_torn_line_is_no_entry_and_the_next_one_is_whole(tmp_path):
    """A process killed in the middle of a write must not make its journal unreadable."""
    journal = Journal(tmp_path, "commits")
    journal.append({"n": 1})
    journal.close()
    segment = next(tmp_path.glob("commits.*"))
    segment.write_bytes(segment.read_bytes() + b'{"n": 2, "outp')

    again = Journal(tmp_path, "commits")
    assert again.last() == {"n": 1}
    again.append({"n": 2})

    assert [entry["n"] for entry in again.entries()] == [1, 2]


def test_an_entry_after_a_torn_line_in_the_same_segment_is_not_swallowed(tmp_path):
    """The segment of frame 2 exists with a torn line when frame 2 is written again."""
    (tmp_path / "commits.000000000002.jsonl").write_bytes(b'{"n": 2, "x')

    journal = Journal(tmp_path, "commits")
    journal.append({"n": 2})

    assert list(journal.entries()) == [{"n": 2}]


def test_an_entry_for_which_there_was_no_room_is_refused_and_spoils_no_other(tmp_path, monkeypatch):
    """A full disk takes half a line and says so only by the count: a parameter counted as set, and was forgotten."""
    journal = Journal(tmp_path, "changes", keep=None, sync=True)
    journal.append({"n": 1})
    room = [5]

    def write(file, line):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken, room[0] = min(room[0], len(line)), room[0] - min(room[0], len(line))
        return real(file, bytes(line[:taken]))

    real = os.write
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space"):
        journal.append({"n": 2})
    monkeypatch.setattr(os, "write", real)
    journal.append({"n": 3})

    assert [entry["n"] for entry in Journal(tmp_path, "changes").entries()] == [1, 3]


def test_size_does_not_grow_with_the_number_of_entries(tmp_path):
    journal = Journal(tmp_path, "commits", keep=512)
    for n in range(1, 6_000):
        journal.append({"n": n})

    kept = [entry["n"] for entry in journal.entries()]
    assert len(list(tmp_path.iterdir())) <= 3
    assert kept == list(range(kept[0], 6_000))
    assert len(kept) >= 512


def test_restarts_do_not_make_it_forget_sooner(tmp_path):
    """Each begins a segment of its own; three of them, and what was done before the first was gone."""
    for n in range(1, 11):
        journal = Journal(tmp_path, "commits", keep=512)
        journal.append({"n": n})
        journal.close()

    assert [entry["n"] for entry in journal.entries()] == list(range(1, 11))


def test_tail_reaches_over_segments(tmp_path):
    journal = Journal(tmp_path, "commits")
    for n in range(1, 515):
        journal.append({"n": n})

    assert [entry["n"] for entry in journal.tail(4)] == [511, 512, 513, 514]


@given(st.integers(0, 1200), st.integers(1, 1200))
def test_cut_after_leaves_exactly_what_came_before(tmp_path_factory, cut, count):
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder, "commits", keep=None)
    for n in range(1, count + 1):
        journal.append({"n": n})

    journal.cut_after(cut)
    journal.append({"n": min(cut, count) + 1})

    assert [entry["n"] for entry in journal.entries()] == list(range(1, min(cut, count) + 2))
