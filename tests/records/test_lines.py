"""Checked lines: what one flipped bit, one lost byte or one lost line does to a file of them."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.journals.lines import GIVEN_UP, checked_line, gap_in, read_lines

ENTRIES = [
    {"n": n, "note": f"J*{{[ {n} é", "state": {"k": [["00000007-ab-cd.arrow", n, 0, 9, 3]]}} for n in range(1, 7)
]
DATA = b"".join(map(checked_line, ENTRIES))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_single_bit_is_found_or_harmless():
    """A flip in a digit was believed, one in a brace made the entry vanish without a word."""
    harmless = 0
    for bit in range(len(DATA) * 8):
        found = read_lines(flipped(DATA, bit))
        if found.bad:
            continue
        # Only the newline of the last line: the entry is whole, its hash says so.
        assert found.entries == ENTRIES and found.needs_newline
        harmless += 1
    assert harmless == 8


def test_no_single_bit_makes_a_checked_line_one_of_the_version_before():
    """Those have no hash and are believed: a flip must not be the way to become one."""
    for value in [*ENTRIES, [7, "stable", "abc", 1, 30], {"n": 12}]:
        line = checked_line(value)
        for bit in range((len(line) - 1) * 8):
            found = read_lines(flipped(line, bit))
            assert (found.entries == [] and found.bad) or b"\n" in flipped(line, bit)[:-1]
            assert found.entries == []
    # Whatever the hash is: no hex digit is a bit away from how JSON begins.
    near = {chr(ord(c) ^ 1 << bit) for c in "{[" for bit in range(8)}
    assert not near & set("0123456789abcdef")


@given(st.integers(0, len(DATA)))
def test_a_cut_leaves_the_entries_before_it(length):
    """As a crash leaves it: the torn line never was one, and where it begins is known."""
    found = read_lines(DATA[:length])
    assert found.bad == []
    assert found.entries == ENTRIES[: len(found.entries)]
    assert len(found.entries) >= DATA[:length].count(b"\n")
    assert read_lines(DATA[: found.whole]).entries == found.entries


def test_a_bad_last_line_with_its_newline_is_damage_and_one_without_is_torn():
    """The newline is written last: where it is, the line was whole once."""
    line = checked_line(ENTRIES[1])
    damaged = flipped(checked_line(ENTRIES[0]) + line, 8 * (len(line) + 30))
    assert [bad.line for bad in read_lines(damaged).bad] == [2]
    assert read_lines(damaged[:-2]).bad == []


def test_a_bad_line_is_named_by_its_neighbours():
    lines = [checked_line(entry) for entry in ENTRIES[:3]]
    lines[1] = flipped(lines[1], 8 * 12 + 1)
    [bad] = read_lines(b"".join(lines)).bad
    said = bad.sentence(lambda entry: f"entry {entry['n']}")
    assert "line 2, stands after entry 1 and before entry 3;" in said


def test_lines_of_the_version_before_are_read_and_only_above_checked_ones():
    bare = [json.dumps(entry).encode() + b"\n" for entry in ENTRIES]
    assert read_lines(b"".join(bare)).entries == ENTRIES
    assert read_lines(b"".join(bare[:3]) + b"".join(map(checked_line, ENTRIES[3:]))).entries == ENTRIES
    assert [bad.line for bad in read_lines(checked_line(ENTRIES[0]) + bare[1]).bad] == [2]
    # That version ended a torn line with a newline and went on below it.
    assert read_lines(bare[0] + bare[1][:9] + b"\n" + bare[1]).entries == ENTRIES[:2]


def test_a_number_that_is_left_out_is_a_gap_unless_it_says_so():
    lines = [checked_line(entry) for entry in ENTRIES]
    del lines[2:4]
    gap = gap_in(read_lines(b"".join(lines)), lambda entry: entry["n"])
    assert (gap.first, gap.last) == (3, 4)
    lines.insert(2, GIVEN_UP + b"\n")
    assert gap_in(read_lines(b"".join(lines)), lambda entry: entry["n"]) is None
    jump = checked_line({"n": 1}) + checked_line({"n": 9, "skipped": 8})
    assert gap_in(read_lines(jump), lambda entry: entry["n"]) is None


@pytest.mark.parametrize("seed", range(200))
def test_bytes_of_any_kind_are_no_entries_and_no_exception(seed):
    chance = random.Random(seed)
    data = bytearray(DATA)
    for _ in range(chance.randint(1, 40)):
        at = chance.randrange(len(data))
        data[at : at + chance.randint(0, 30)] = chance.randbytes(chance.randint(0, 30))
    for entry in read_lines(bytes(data)).entries:
        assert entry in ENTRIES
