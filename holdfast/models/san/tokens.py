"""One replication of a network, token by token: any delays, all kinds of reward but the long run.

Events are completions of timed activities, taken in order of time from a heap; after each one
the instantaneous activities run until the marking is stable. What an activity or a reward has
read is known (`firing`), so after a completion only those are asked again of which a place has changed.

The outcome depends on the network, the rewards and the state of the generator alone: activities
are asked in the order in which they were declared, so the same seed gives the same bits.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from holdfast.models.san.distributions import Exponential
from holdfast.models.san.firing import INSTANTS_MAX, Bound, Compiled, loop_error
from holdfast.models.san.network import Network
from holdfast.models.san.rewards import At, Average, Reward, Steady, check_rewards, makes_no_sense

__all__ = ["Meters", "Replication", "simulate"]


def simulate(network: Network | Compiled, rewards: Sequence[Reward], rng: np.random.Generator) -> dict[str, float]:
    """Reward -> its value in one replication, which ends where the last reward does."""
    compiled = network if isinstance(network, Compiled) else Compiled(network)
    rewards = list(rewards)
    check_rewards(rewards, compiled.names, compiled.name)
    return Replication(compiled, rewards, rng).run()


def _interval(reward: Reward) -> tuple[float, float]:
    over = reward.over
    if isinstance(over, At):
        return over.time, over.time
    if isinstance(over, Steady):
        raise makes_no_sense(
            f"reward {reward.name!r} is of the long run.",
            "a replication has an end",
            "take Average(start, end) with a start after the warm-up, or solve(...) it",
        )
    return over.start, over.end


class Watchers:
    """Who has to be asked again when a place changes."""

    def __init__(self, places: int) -> None:
        self._of: list[set[int]] = [set() for _ in range(places)]
        self._known: dict[int, int] = {}

    def learn(self, who: int, reads: set[int]) -> None:
        # What was read once may be read again, so the set only grows; its size tells whether it has.
        if self._known.get(who) != len(reads):
            self._known[who] = len(reads)
            for place in reads:
                self._of[place].add(who)

    def of(self, touched: set[int]) -> list[int]:
        found: set[int] = set()
        for place in touched:
            found |= self._of[place]
        return sorted(found)


class Meters:
    """Accumulates rewards. A rate's value holds from `since` until it is seen to be another one."""

    def __init__(self, compiled: Compiled, rewards: Sequence[Reward]) -> None:
        self.rewards = rewards
        self.sums = [0.0] * len(rewards)
        self._views = [compiled.view(f"reward {reward.name!r}") for reward in rewards]
        self._rated = [i for i, reward in enumerate(rewards) if reward.rate is not None]
        self._value, self._since = [0.0] * len(rewards), [0.0] * len(rewards)
        self._watch = Watchers(len(compiled.places))
        self.impulses: dict[str, list[int]] = {}
        for i, reward in enumerate(rewards):
            for name in reward.impulse:
                self.impulses.setdefault(name, []).append(i)
        # (start, end] of each; of a moment both are that moment.
        self._over = [_interval(reward) for reward in rewards]
        self.end = max(end for _, end in self._over)

    def start(self, tokens: list[int]) -> None:
        for i in self._rated:
            self._value[i] = self._ask(i, tokens)

    def changed(self, touched: set[int], tokens: list[int], now: float) -> None:
        for i in self._watch.of(touched):
            value = self._ask(i, tokens)
            if value != self._value[i]:
                self._book(i, now)
                self._value[i] = value

    def completes(self, name: str, tokens: list[int], now: float) -> None:
        """Of an activity with impulses, before anything is taken."""
        for i in self.impulses[name]:
            start, end = self._over[i]
            if start < now <= end:
                earned = self.rewards[i].impulse[name]
                if callable(earned):
                    self._views[i].tokens = tokens
                    earned = float(earned(self._views[i]))
                self.sums[i] += earned

    def results(self) -> dict[str, float]:
        for i in self._rated:
            self._book(i, float("inf"))
        found = {}
        for reward, total, (start, end) in zip(self.rewards, self.sums, self._over, strict=True):
            found[reward.name] = total / (end - start) if isinstance(reward.over, Average) else total
        return found

    def _ask(self, i: int, tokens: list[int]) -> float:
        view = self._views[i]
        view.tokens = tokens
        value = float(self.rewards[i].rate(view))
        self._watch.learn(i, view.reads)
        return value

    def _book(self, i: int, now: float) -> None:
        (start, end), since = self._over[i], self._since[i]
        if start == end:
            if since <= start < now:
                self.sums[i] = self._value[i]
        else:
            self.sums[i] += self._value[i] * max(0.0, min(now, end) - max(since, start))
        self._since[i] = now


class Replication:
    """State of one run: the marking, who is due when, and the meters."""

    def __init__(self, compiled: Compiled, rewards: Sequence[Reward], rng: np.random.Generator) -> None:
        self.net, self.rng = compiled, rng
        self.tokens = list(compiled.start)
        self.now = 0.0
        self.meters = Meters(compiled, rewards)
        timed, instants = compiled.timed, compiled.instants
        self._due: list[float | None] = [None] * len(timed)  # None: not enabled
        self._drawn: list[object] = [None] * len(timed)  # the distribution of the running draw
        self._left: list[float | None] = [None] * len(timed)  # of an interrupted activity that resumes
        self._heap: list[tuple[float, int]] = []
        self._timed_watch = Watchers(len(compiled.places))
        self._instant_watch = Watchers(len(compiled.places))
        self._ready = [False] * len(instants)

    def run(self) -> dict[str, float]:
        everything = set(range(len(self.tokens)))
        for i in range(len(self.net.instants)):
            self._look_instant(i)
        self._settle(everything)
        self.meters.start(self.tokens)
        for i in range(len(self.net.timed)):
            self._look_timed(i)
        again = [i for i, activity in enumerate(self.net.timed) if activity.reactivates]
        heap, due, end, impulses = self._heap, self._due, self.meters.end, self.meters.impulses
        at_once = 0
        while heap and heap[0][0] <= end:
            time, i = heapq.heappop(heap)
            if due[i] != time:
                continue  # Disabled, or drawn again, since this entry was made.
            at_once = at_once + 1 if time == self.now else 0
            if at_once > INSTANTS_MAX:
                raise loop_error(self.net.name, [self.net.timed[i].name], self._shown())
            activity, self.now, due[i] = self.net.timed[i], time, None
            touched = set(self._complete(activity, impulses))
            self._settle(touched)
            self.meters.changed(touched, self.tokens, time)
            looked = self._timed_watch.of(touched)
            if again:
                looked = sorted({*looked, *again})
            for each in looked:
                self._look_timed(each)
            if due[i] is None and i not in looked:
                self._look_timed(i)  # It touched nothing that it reads: enabled as before, it starts again.
        return self.meters.results()

    def _complete(self, activity: Bound, impulses: dict[str, list[int]]) -> list[int]:
        tokens = self.tokens
        if activity.name in impulses:
            self.meters.completes(activity.name, tokens, self.now)
        probabilities = activity.probabilities(tokens)
        case = _drawn(probabilities, self.rng.random()) if len(probabilities) > 1 else 0
        return activity.complete(tokens, case)

    def _settle(self, touched: set[int]) -> None:
        """Instantaneous activities, until none is enabled. `touched` gains what they touch."""
        for i in self._instant_watch.of(touched):
            self._look_instant(i)
        instants, ready = self.net.instants, self._ready
        went = 0
        while True in ready:
            first = ready.index(True)
            chosen = self._chosen(first)
            went += 1
            if went > INSTANTS_MAX:
                raise loop_error(
                    self.net.name, [a.name for a, on in zip(instants, ready, strict=True) if on], self._shown()
                )
            moved = set(self._complete(instants[chosen], self.meters.impulses))
            touched |= moved
            looked = self._instant_watch.of(moved)
            for i in looked:
                self._look_instant(i)
            if chosen not in looked:
                self._look_instant(chosen)

    def _chosen(self, first: int) -> int:
        """Of the enabled ones of the highest priority, one by weight. They are sorted by priority."""
        instants, ready = self.net.instants, self._ready
        among = [first]
        for i in range(first + 1, len(instants)):
            if instants[i].priority != instants[first].priority:
                break
            if ready[i]:
                among.append(i)
        if len(among) == 1:
            return first
        weights = [instants[i].weight(self.tokens) for i in among]
        total = sum(weights)
        return among[_drawn([weight / total for weight in weights], self.rng.random())]

    def _look_instant(self, i: int) -> None:
        activity = self.net.instants[i]
        self._ready[i] = activity.enabled(self.tokens)
        self._instant_watch.learn(i, activity.view.reads)

    def _look_timed(self, i: int) -> None:
        activity, tokens = self.net.timed[i], self.tokens
        running = self._due[i] is not None
        if activity.enabled(tokens):
            delay = activity.delay(tokens)
            if not running:
                left, self._left[i] = self._left[i], None
                self._set(i, delay, delay.draw(self.rng) if left is None else left)
            elif delay is not self._drawn[i] and delay != self._drawn[i]:
                if activity.resample or isinstance(delay, Exponential):
                    self._set(i, delay, delay.draw(self.rng))
            elif activity.reactivates and activity.starts_again(tokens):
                self._set(i, delay, delay.draw(self.rng))
        elif running:
            if activity.resume:
                self._left[i] = self._due[i] - self.now
            self._due[i] = None
        self._timed_watch.learn(i, activity.view.reads)

    def _shown(self) -> str:
        return ", ".join(f"{p} {n}" for p, n in zip(self.net.places, self.tokens, strict=True) if n) or "empty"

    def _set(self, i: int, delay: object, after: float) -> None:
        due = self.now + after
        self._due[i], self._drawn[i] = due, delay
        heapq.heappush(self._heap, (due, i))


def _drawn(weights: Sequence[float], u: float) -> int:
    """Which of the weights, 1 together, a number below 1 falls into; never one of weight 0."""
    last = 0
    for i, weight in enumerate(weights):
        if weight > 0:
            last = i
            u -= weight
            if u < 0:
                break
    return last
