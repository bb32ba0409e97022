"""Which frames are computed a second time, and when two ways to compute a frame agree."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.levels.judging import judge_recomputed
from holdfast.levels.recomputed import Differing, Recomputed, compared, unmatched
from holdfast.levels.sampling import sampled

NAN, INF = float("nan"), float("inf")


def sample(rows: dict[int, int], count: int | None, seed: int = 1) -> tuple[int, ...]:
    return sampled(rows, count, Random(seed).randrange)


FRAMES = st.dictionaries(st.integers(1, 300), st.integers(0, 2), min_size=1)


@given(FRAMES, st.integers(1, 12), st.integers())
def test_a_sample_has_as_many_frames_as_asked_for(rows, count, seed):
    found = sample(rows, count, seed)

    assert len(found) == min(count, len(rows)) == len({*found})
    assert {*found} <= {*rows}
    assert list(found) == sorted(found)


@given(FRAMES, st.integers(3, 12), st.integers())
def test_it_has_the_first_and_the_last_with_rows_and_some_without(rows, count, seed):
    """A frame without rows that comes out without rows shows nearly nothing; but where an engine loses rows, there are none."""
    found = {*sample(rows, count, seed)}
    full, empty = {n for n in rows if rows[n]}, {n for n in rows if not rows[n]}

    assert not full or {min(full), max(full)} <= found
    assert len(found & empty) >= min(len(empty), count // 4)
    assert len(found & full) >= min(len(full), count - count // 4)


def test_a_sample_is_spread_over_the_run_and_the_seed_repeats_it():
    rows = dict.fromkeys(range(1, 601), 1)
    found = sample(rows, 8, seed=5)

    assert found == sample(rows, 8, seed=5) != sample(rows, 8, seed=6)
    assert (found[0], found[-1]) == (1, 600)
    assert [(n - 2) * 6 // 598 for n in found[1:-1]] == [0, 1, 2, 3, 4, 5]


def test_all_means_all_and_one_is_one_with_rows():
    assert sample({1: 0, 2: 0, 3: 4, 4: 0}, None) == (1, 2, 3, 4)
    assert sample({1: 0, 2: 0, 3: 4, 4: 0}, 1) == (3,)
    assert sample({}, 8) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")]),
        ([(NAN,), (None,), (INF,)], [(INF,), (NAN,), (None,)]),
        ([(0.1 + 0.2, 1)], [(0.3, 1)]),
        ([(1e15, 3.0), (1e15 + 1, 4.0)], [(1e15 + 1, 3.0), (1e15, 4.0)]),
        ([(1e9, 1), (0.0, 2)], [(1e9, 1), (1e-5, 2)]),  # the column has 1e9 in it: 1e-5 is what is left of rounding
        ([(float(n) + 1e-10,) for n in range(1, 500)], [(float(n),) for n in range(1, 500)]),
    ],
)
def test_rows_that_are_the_same_have_a_partner(one, other):
    assert unmatched(one, other) == ([], [])


@pytest.mark.parametrize(
    ("one", "other", "alone"),
    [
        ([(1,), (1,)], [(1,)], ([(1,)], [])),
        ([(1, 2.0)], [(1, 2.0001)], ([(1, 2.0)], [(1, 2.0001)])),
        ([(1, 2.0)], [(2, 2.0)], ([(1, 2.0)], [(2, 2.0)])),
        ([(0.0,)], [(None,)], ([(0.0,)], [(None,)])),
        ([(INF,)], [(-INF,)], ([(INF,)], [(-INF,)])),
        ([(INF,)], [(1.0,)], ([(INF,)], [(1.0,)])),
        ([("x",)], [], ([("x",)], [])),
    ],
)
def test_rows_that_differ_have_none(one, other, alone):
    assert unmatched(one, other) == alone


def test_what_cancelled_out_may_differ_by_what_its_parts_allow():
    assert unmatched([(0.0,)], [(3e-7,)]) == ([(0.0,)], [(3e-7,)])
    assert unmatched([(0.0,)], [(3e-7,)], slack=1e-6) == ([], [])


def test_a_frame_that_differs_says_by_which_rows():
    found, undecided = compared(7, [(1, "a"), (2, "b")], [(2, "b"), (3, "c"), (3, "c")])

    assert found == Differing(7, 1, 2, ("1, a",), ("3, c", "3, c"))
    assert undecided == 0
    assert compared(7, [(1, "a")], [(2, "b")], quote=False)[0] == Differing(7, 1, 1)


def test_a_row_that_rests_on_the_last_digit_is_not_decided_and_counted():
    """`mean > 80` where the mean is 80: another order of addition may give 80.00000000000001."""
    a, b, c = ("a", 80.0), ("b", 90.0), ("c", 70.0)
    ways = [[b], [a, b]]  # with the numbers a little smaller, a little larger

    assert compared(1, [b], [a, b], otherwise=ways) == (None, 1)
    assert compared(1, [a, b], [b], otherwise=ways) == (None, 1)
    assert compared(1, [b], [a, b, c], otherwise=ways) == (Differing(1, 0, 1, (), ("c, 70.0",)), 1)
    assert compared(1, [b], [], otherwise=ways)[0] == Differing(1, 1, 0, ("b, 90.0",))


def line(**settings) -> Recomputed:
    return Recomputed("hot", "hot", "hot", "hot", "each frame alone", **settings)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (line(frames=(1, 5), of=9, rows=30), "agrees"),
        (line(frames=(1, 5), of=9, rows=30, differs=(Differing(5, 1),)), "BROKEN, frame 5"),
        (line(of=9, left_out="there is no other way"), "not recomputed: there is no other way"),
        (line(frames=(1,), of=9, left_out="it ended"), "not recomputed: it ended"),
        (line(of=9, differs=(Differing(4, came=False),)), "BROKEN, frame 4"),
        (line(), "not recomputed"),
    ],
)
def test_what_was_not_computed_is_not_said_to_agree(found, words):
    assert judge_recomputed(found).words == words


def test_what_was_found_goes_through_json():
    found = line(frames=(1, 5), of=9, rows=30, differs=(Differing(5, 1, 0, ("1, a",)),))

    assert Recomputed.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.words == "2 of 9 frames, 30 rows"
