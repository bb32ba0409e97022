"""The search for poison rows: which items it blames, and how many tries that takes."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.poison import Ports, search


class Frame:
    """Raises while an item of `bad` is there, or all of one of `pairs`."""

    def __init__(self, count, bad=(), pairs=()):
        self.count, self.bad, self.pairs, self.tries = count, set(bad), [set(pair) for pair in pairs], 0

    def raises(self, left_out):
        self.tries += 1
        there = set(range(self.count)) - left_out
        return bool(there & self.bad) or any(pair <= there for pair in self.pairs)


@settings(deadline=None)  # a busy machine is no defect
@given(st.data())
def test_exactly_the_bad_items_are_found(data):
    count = data.draw(st.integers(1, 300))
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=8))
    frame = Frame(count, bad)
    assert search(count, frame.raises) == bad
    assert frame.tries <= (len(bad) + 1) * (3 + math.ceil(math.log2(count + 1)))


@settings(deadline=None)  # a busy machine is no defect
@given(st.data())
def test_what_is_left_passes_when_items_raise_only_together(data):
    count = data.draw(st.integers(2, 80))
    pairs = data.draw(st.lists(st.sets(st.integers(0, count - 1), min_size=2, max_size=3), max_size=4))
    frame = Frame(count, pairs=pairs)
    out = search(count, frame.raises)
    assert not frame.raises(out)
    assert all(out & pair for pair in frame.pairs)  # no more than one culprit for each cause is asked for
    assert len(out) <= len(pairs)


def test_a_frame_that_raises_without_rows_blames_none():
    assert search(10, lambda left_out: True) is None


def test_a_frame_that_passes_blames_none():
    assert search(10, lambda left_out: False) == frozenset()


def test_a_key_whose_every_row_raises_goes_as_a_whole():
    frame = Frame(90, bad=range(1, 90, 3))  # the rows of key 1
    assert search(90, frame.raises, lambda item: range(item % 3, 90, 3)) == set(range(1, 90, 3))
    assert frame.tries < 20


def test_a_single_bad_row_of_a_key_goes_alone():
    frame = Frame(90, bad=[31])
    assert search(90, frame.raises, lambda item: range(item % 3, 90, 3)) == {31}


def test_more_culprits_than_a_frame_with_poison_has():
    frame = Frame(500, bad=range(500))
    assert search(500, frame.raises) is None


def test_items_become_ranges_of_their_port():
    ports = Ports((("probes", 5), ("last@1", 0), ("motion", 4)))
    assert ports.count == 9
    assert ports.ranges([0, 3, 4, 5, 8]) == {"probes": [[0, 1], [3, 5]], "motion": [[0, 1], [3, 4]]}
