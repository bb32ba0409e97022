"""Deaths in, restarts out: back-off, jitter, blame and giving up, without a clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocols.restarts import Blame, Cured, Died, GiveUp, Restart, RestartPolicy, Restarts, Stopped


def killed(at_s: float, frame: int = 7) -> Died:
    return Died(at_s, frame, "worker died", of_user=False)


def raised(at_s: float, frame: int = 7, error: str = "ValueError: x") -> Died:
    return Died(at_s, frame, error, of_user=True)


def unit(tries: int = 3, chance: float = 0.0, **policy: float) -> Restarts:
    return Restarts(RestartPolicy(tries=tries, **policy), lambda: chance)


def test_pauses_double_up_to_the_longest():
    restarts = unit(tries=5, first_s=1.0, longest_s=5.0)
    assert [restarts.handle(killed(0.0)).at_s for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_four_kills_in_a_row_on_one_frame_are_survived():
    restarts = unit(tries=8)
    assert [restarts.handle(killed(float(at))).attempt for at in range(4)] == [1, 2, 3, 4]


def test_one_death_more_than_tries_gives_up():
    restarts = unit(tries=3)
    last = [restarts.handle(killed(float(at))) for at in range(4)][-1]
    assert last == GiveUp(deaths=4)


def test_deaths_are_forgotten_by_age():
    restarts = unit(tries=2, window_s=10.0)
    for at in range(0, 100, 6):  # never three within ten seconds
        assert isinstance(restarts.handle(killed(float(at))), Restart)


def test_progress_does_not_forget_a_death():
    restarts = unit(tries=2, window_s=600.0)
    answers = [restarts.handle(killed(float(frame), frame)) for frame in (3, 6, 9)]
    assert isinstance(answers[-1], GiveUp)


def test_the_same_error_on_the_same_frame_is_the_users():
    restarts = unit()
    assert isinstance(restarts.handle(raised(0.0)), Restart)
    assert restarts.handle(raised(1.0)) == Blame(7)


def test_rows_that_were_left_out_cost_no_try():
    """With on_error="quarantine" a bad row in each of many frames must not give the unit up."""
    restarts = unit(tries=3)
    for frame in range(20):
        assert restarts.handle(raised(2.0 * frame, frame)).attempt == 1
        assert restarts.handle(raised(2.0 * frame + 1, frame)) == Blame(frame)
        assert restarts.handle(Cured()) is None


def test_a_search_that_finds_nothing_comes_to_an_end():
    restarts = unit(tries=3)
    answers = [restarts.handle(raised(float(at))) for at in range(20)]
    assert any(isinstance(answer, GiveUp) for answer in answers)


@pytest.mark.parametrize("second", [raised(1.0, frame=8), raised(1.0, error="KeyError: y"), killed(1.0)])
def test_another_frame_or_error_is_not_blamed(second):
    restarts = unit()
    restarts.handle(raised(0.0))
    assert isinstance(restarts.handle(second), Restart)


def test_a_kill_between_two_raises_blames_nobody():
    restarts = unit()
    answers = [restarts.handle(event) for event in (raised(0.0), killed(1.0), raised(2.0))]
    assert all(isinstance(answer, Restart) for answer in answers)


def test_a_stop_forgets():
    restarts = unit(tries=1)
    restarts.handle(killed(0.0))
    assert restarts.handle(Stopped()) is None
    assert restarts.handle(killed(1.0)).attempt == 1


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_jitter_only_shortens_and_never_below_half(seed, tries):
    policy = RestartPolicy(tries=tries)
    restarts = Restarts(policy, random.Random(seed).random)
    for attempt in range(1, tries + 1):
        pause = restarts.handle(killed(0.0)).at_s
        whole = policy.pause_s(attempt, 0.0)
        assert whole / 2 <= pause <= whole <= policy.longest_s
