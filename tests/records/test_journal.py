"""Journals: whole lines, bounded size, entries that can be taken back."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import StateRefused
from holdfast.journals.journal import Journal


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


@settings(deadline=None)  # 1200 appends on a loaded machine
@given(st.integers(0, 1200), st.integers(1, 1200))
def test_cut_after_leaves_exactly_what_came_before(tmp_path_factory, cut, count):
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder, "commits", keep=None)
    for n in range(1, count + 1):
        journal.append({"n": n})

    journal.cut_after(cut)
    journal.append({"n": min(cut, count) + 1})

    assert [entry["n"] for entry in journal.entries()] == list(range(1, min(cut, count) + 2))


def journal_of(folder, count, **about):
    journal = Journal(folder, "commits", **about)
    for n in range(1, count + 1):
        journal.append({"n": n, "value": n * 10})
    journal.close()
    return next(folder.glob("commits.*.jsonl"))


def test_a_flipped_bit_in_the_middle_is_told_with_file_line_and_number(tmp_path):
    """It was believed where it fell into a digit (80 became 90), and passed over where it fell into a brace."""
    segment = journal_of(tmp_path, 5)
    data = segment.read_bytes()
    for bit in range(8):
        at = data.index(b"30")
        segment.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        with pytest.raises(StateRefused, match="HF-R040") as raised:
            list(Journal(tmp_path, "commits").entries())
        assert raised.value.where == f"{segment}, line 3"
        assert "stands after entry 2 and before entry 4" in raised.value.why


def test_what_the_error_says_to_do_lets_the_journal_go_on(tmp_path):
    segment = journal_of(tmp_path, 5, counted=True)
    for at, line in ((b"30", 3), (b"50", 5)):
        data = segment.read_bytes()
        segment.write_bytes(data.replace(at, b"99"))
        with pytest.raises(StateRefused, match="HF-R040") as raised:
            list(Journal(tmp_path, "commits", counted=True).entries())
        command = raised.value.do.split("give the entry up: ")[1].split(";")[0]
        assert f"'{line}s/" in command
        assert os.system(command) == 0
    journal = Journal(tmp_path, "commits", counted=True)
    assert [entry["n"] for entry in journal.entries()] == [1, 2, 4]
    journal.append({"n": 5})
    assert [entry["n"] for entry in journal.entries()] == [1, 2, 4, 5]


def test_a_line_or_a_file_that_is_gone_is_missed(tmp_path):
    journal = Journal(tmp_path, "commits", keep=None)
    for n in range(1, 1300):
        journal.append({"n": n})
    journal.close()
    first, second, third = sorted(tmp_path.glob("commits.*"))
    lines = third.read_bytes().splitlines(keepends=True)
    third.write_bytes(b"".join(lines[:7] + lines[9:]))
    with pytest.raises(StateRefused, match="HF-R041.*entries 1032 to 1033 are missing"):
        journal.last()
    third.write_bytes(b"".join(lines))
    second.unlink()
    with pytest.raises(StateRefused, match="HF-R041.*entries 513 to 1024 are missing"):
        list(journal.entries())


def test_numbers_that_are_skipped_on_purpose_are_no_gap(tmp_path):
    """A unit that may lose goes on behind what it lost."""
    journal_of(tmp_path, 2)
    journal = Journal(tmp_path, "commits")
    journal.append({"n": 9})
    assert [entry["n"] for entry in journal.entries()] == [1, 2, 9]


def test_an_end_that_was_cut_off_is_missed_where_entries_are_counted(tmp_path):
    """A parameter that was set holds for ever; without its line a replay would take other values."""
    segment = journal_of(tmp_path, 3, keep=None, sync=True, counted=True)
    data = segment.read_bytes()
    for length in range(len(data) - 1):
        segment.write_bytes(data[:length])
        with pytest.raises(StateRefused, match="HF-R041"):
            list(Journal(tmp_path, "commits", counted=True).entries())


def test_a_journal_of_the_version_before_is_read_and_gone_on_with(tmp_path):
    (tmp_path / "commits.000000000001.jsonl").write_text('{"n":1}\n{"n":2}\n')
    journal = Journal(tmp_path, "commits")
    journal.append({"n": 3})
    assert [entry["n"] for entry in journal.entries()] == [1, 2, 3]


def test_damage_in_the_record_of_incidents_does_not_stop_a_run_and_is_told(tmp_path):
    from holdfast.journals.incidents import Incidents, incidents_of

    incidents = Incidents(tmp_path)
    for unit in ("a", "b", "c"):
        incidents.note("restart", unit=unit)
    incidents.close()
    [segment] = (tmp_path / "records").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b'"b"', b'"x"'))

    Incidents(tmp_path).note("restart", unit="d")
    found = incidents_of(tmp_path)
    assert [each.unit for each in found[:-1]] == ["a", "c", "d"]
    assert found[-1].what == "damaged record" and "line 2" in found[-1].text
