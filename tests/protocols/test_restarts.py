"""Deaths in, restarts out: back-off, jitter, blame, futile tries and giving up, without a clock.

Any sequence of deaths is held against the story it tells, read from its beginning each time (`Story`); machines with
one rule broken each must be found by that.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.graph.restarting import RestartPolicy
from holdfast.protocols.restarts import Blame, Cured, Died, Futile, GiveUp, Restart, Restarts, Stopped


def killed(at_s: float, frame: int = 7) -> Died:
    return Died(at_s, frame, "worker died", of_user=False, passes=True)


def unknown(at_s: float, frame: int = 7, error: str = "NullPointerException") -> Died:
    return Died(at_s, frame, error, of_user=False)


def refused(at_s: float, frame: int = 7, error: str = "ConnectionRefusedError") -> Died:
    return Died(at_s, frame, error, of_user=True, passes=True)


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


def test_the_third_time_of_one_error_on_one_frame_is_the_last():
    """Before, an error that came back within seconds was tried eight times, for minutes, and "run again" advised."""
    restarts = unit(tries=8)
    assert [restarts.handle(unknown(0.0)).attempt, restarts.handle(unknown(1.0)).attempt] == [1, 2]
    assert restarts.handle(unknown(2.0)) == Futile(3)


def test_few_tries_are_not_made_more():
    restarts = unit(tries=0)
    assert restarts.handle(unknown(0.0)) == GiveUp(1)


@pytest.mark.parametrize(
    "between", [unknown(1.5, frame=8), unknown(1.5, error="IllegalState"), killed(1.5), Cured(), Stopped()]
)
def test_what_comes_in_between_begins_the_count_anew(between):
    restarts = unit(tries=8)
    restarts.handle(unknown(0.0)), restarts.handle(unknown(1.0)), restarts.handle(between)
    assert isinstance(restarts.handle(unknown(2.0)), Restart)


def test_the_same_error_once_a_night_is_not_futile():
    restarts = unit(tries=8, window_s=600.0)
    assert all(isinstance(restarts.handle(unknown(86_400.0 * night)), Restart) for night in range(20))


def test_what_the_network_did_to_the_users_code_is_blamed_only_when_it_does_not_pass():
    """A service that is away for a minute must not put good rows into quarantine."""
    restarts = unit(tries=8)
    assert all(isinstance(restarts.handle(refused(float(at))), Restart) for at in range(8))
    assert restarts.handle(refused(9.0)) == Blame(7)


def test_rows_that_the_network_did_not_bear_cost_no_try_either():
    restarts = unit(tries=3)
    for frame in range(20):
        answers = [restarts.handle(refused(10.0 * frame + at, frame)) for at in range(4)]
        assert answers[-1] == Blame(frame) and all(isinstance(answer, Restart) for answer in answers[:-1])
        restarts.handle(Cured())


# ---- any sequence ----


class Story:
    """What happened to one unit, and what the rules say of it: read anew from the beginning at each death."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._told: list[tuple[Died | Cured | Stopped, object]] = []

    def tell(self, event: Died | Cured | Stopped, answer: object) -> None:
        self._told.append((event, answer))
        if isinstance(event, Died):
            self._judge(event, answer)
        else:
            assert answer is None

    def _judge(self, event: Died, answer: object) -> None:
        row = self._in_a_row()
        young = [each for each in row if each.at_s > event.at_s - self._policy.window_s]
        counted = self._counted(event.at_s)
        if event.of_user and not event.passes and len(row) > 1:
            assert answer == Blame(event.frame)
        elif not event.of_user and not event.passes and len(young) >= self._policy.same:
            assert answer == Futile(len(young))
        elif counted <= self._policy.tries:
            assert isinstance(answer, Restart) and answer.attempt == counted
            assert event.at_s < answer.at_s <= event.at_s + self._policy.longest_s
        elif event.of_user and len(row) > 1:
            assert answer == Blame(event.frame)
        else:
            assert answer == GiveUp(counted)

    def _in_a_row(self) -> list[Died]:
        """The last deaths of one error on one frame. A blame ends a row: what follows is another search."""
        last = self._told[-1][0]
        row = [last]
        for event, answer in reversed(self._told[:-1]):
            if not isinstance(event, Died) or isinstance(answer, Blame):
                break
            if (event.frame, event.error, event.of_user) != (last.frame, last.error, last.of_user):
                break
            row.append(event)
        return row

    def _counted(self, now_s: float) -> int:
        """Deaths within the window, with the last; without those that were blamed at once, cured or before a stop."""
        counts: list[float] = []
        row, before = 0, None  # how many of them a cure takes back; what it died of before, until that is blamed
        for at, (event, answer) in enumerate(self._told):
            if isinstance(event, Died):
                what = (event.frame, event.error, event.of_user)
                row = row if what == before else 0
                is_last = at == len(self._told) - 1
                if is_last or event.passes or isinstance(answer, (Restart, GiveUp)):
                    counts.append(event.at_s)
                    row += 1
                before = None if isinstance(answer, Blame) else what
            else:
                counts = [] if isinstance(event, Stopped) else counts[: len(counts) - row]
                row, before = 0, None
        return sum(at > now_s - self._policy.window_s for at in counts)


def played(machine: type[Restarts], seed: int) -> None:
    """One unit's life: it dies of this and that, makes frames in between, waits, is cured or stopped."""
    chance = random.Random(seed)
    policy = RestartPolicy(tries=chance.choice([0, 1, 2, 3, 8]), window_s=chance.choice([20.0, 600.0]))
    restarts, story = machine(policy, chance.random), Story(policy)
    kinds = chance.choices([(False, False), (False, True), (True, False), (True, True)], k=2)
    now_s, frame, answer = 0.0, 1, None
    for _ in range(30):
        now_s += chance.choice([0.1, 0.1, 1.0, 15.0, 400.0])
        frame += chance.random() < 0.15
        event: Died | Cured | Stopped = Died(now_s, frame, chance.choice("aaaab"), *chance.choice(kinds))
        if isinstance(answer, Blame) and chance.random() < 0.6:
            event = Cured()
        elif chance.random() < 0.04:
            event = Stopped()
        answer = restarts.handle(event)
        story.tell(event, answer)


@given(st.integers(0, 2**32))
def test_any_sequence_of_deaths_is_answered_by_the_rules(seed):
    played(Restarts, seed)


class AnyFrame(Restarts):
    def _died(self, event):
        return super()._died(replace(event, frame=1))


class AnyError(Restarts):
    def _died(self, event):
        return super()._died(replace(event, error=""))


class AnybodysError(Restarts):
    def _died(self, event):
        return super()._died(replace(event, of_user=False))


class NothingPasses(Restarts):
    def _died(self, event):
        return super()._died(replace(event, passes=False))


class AllPasses(Restarts):
    def _died(self, event):
        return super()._died(replace(event, passes=True))


class Sooner(Restarts):
    def __init__(self, policy, chance):
        super().__init__(replace(policy, same=2), chance)


class Later(Restarts):
    def __init__(self, policy, chance):
        super().__init__(replace(policy, same=4), chance)


class NeverTooOld(Restarts):
    def _drop_old(self, times, now_s):
        if times is self._deaths:
            super()._drop_old(times, now_s)


class OthersInBetween(Restarts):
    def _forget_last(self):
        alike = self._alike.copy()
        super()._forget_last()
        self._alike = deque(alike)


class CuredOfOne(Restarts):
    def handle(self, event):
        self._counted = min(1, self._counted) if isinstance(event, Cured) else self._counted
        return super().handle(event)


class CuredOfNone(Restarts):
    def handle(self, event):
        self._counted = 0 if isinstance(event, Cured) else self._counted
        return super().handle(event)


class BlamedOnAndOn(Restarts):
    def _blame(self, frame):
        return Blame(frame)


class DeathsAreForgottenByBlame(Restarts):
    def _blame(self, frame):
        self._deaths.clear()
        return super()._blame(frame)


MUTANTS = [
    AnyFrame, AnyError, AnybodysError, NothingPasses, AllPasses, Sooner, Later, NeverTooOld, OthersInBetween, CuredOfOne,
    CuredOfNone, BlamedOnAndOn, DeathsAreForgottenByBlame,
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_found(mutant):
    with pytest.raises(AssertionError):
        for seed in range(2000):
            played(mutant, seed)
