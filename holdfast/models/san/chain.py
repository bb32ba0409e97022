"""The reachable stable markings of a network as a continuous-time Markov chain.

Where every timed activity is exponential, the stable marking alone decides what comes next, so the
network is a Markov chain: from marking s the chain goes to marking t with the sum of rate x case
probability x the chance that the instantaneous activities lead on to t. Unstable markings hold
for no time and are eliminated: with A the steps among them and B those to stable ones, they end up
in (I - A)^-1 B, which counts loops that are left again right. A set of them that is never left is
an error (HF-N004).

Impulses of timed and instantaneous activities become rates: what a marking earns per unit of
time by the completions it leads to.

Refused, with the reason: delays that are not exponential (HF-N005), more markings than
`states_max` (HF-N006).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

from holdfast.errors import UsageError
from holdfast.models.san.firing import Bound, Compiled, loop_error
from holdfast.models.san.network import Network
from holdfast.models.san.rewards import Reward, check_rewards

__all__ = ["Chain"]

State = tuple[int, ...]


class Chain:
    """`rates`: sparse generator of the chain; `states`: its markings; `start`: their probabilities at time 0."""

    def __init__(self, network: Network, rewards: Sequence[Reward] = (), states_max: int = 200_000) -> None:
        self.net = Compiled(network)
        if rewards:
            check_rewards(list(rewards), self.net.names, self.net.name)
        self._rewards, self._states_max = list(rewards), states_max
        self.states: list[State] = []  # stable ones
        self._stable: dict[State, int] = {}
        self._unstable: dict[State, int] = {}
        self._refuse_what_has_memory()
        self._explore()

    def markings(self, of: Callable[..., float]) -> np.ndarray:
        """A function of the marking, such as a reward's rate, in every state."""
        view = self.net.view("a function of the marking")
        found = np.empty(len(self.states))
        for i, state in enumerate(self.states):
            view.tokens = state
            found[i] = of(view)
        return found

    def earned(self, reward: Reward) -> np.ndarray:
        """What a reward earns per unit of time in every state, impulses included."""
        total = np.zeros(len(self.states)) if reward.rate is None else self.markings(reward.rate)
        return total + self._impulses[reward.name] if reward.impulse else total

    # -- exploration ---------------------------------------------------------------

    def _refuse_what_has_memory(self) -> None:
        other = [
            f"{a.name} ({type(a.fixed).__name__})" for a in self.net.timed if a.fixed is not None and a.rate([]) is None
        ]
        if other:
            raise self._not_exponential(other, "every delay")

    def _not_exponential(self, names: list[str], what: str) -> UsageError:
        return UsageError(
            "HF-N005",
            "NotExponential",
            f"network {self.net.name!r} has no Markov chain: {', '.join(names)}.",
            why=f"{what} has to be exponential: otherwise what comes next depends on how long an activity has been running",
            effect="nothing was solved",
            do="estimate(...) it token by token, or approximate the delay by exponential phases",
        )

    def _explore(self) -> None:
        stable, unstable = _Entries(), _Entries()  # steps out of them: to stable | to unstable, side by side
        start = tuple(self.net.start)
        begin = self._id(start)
        todo = [start]
        leads: dict[State, tuple[bool, int]] = {start: begin}
        while todo:
            state = todo.pop()
            is_stable, i = leads[state]
            entries = stable if is_stable else unstable
            for activity, rate in self._going(state, is_stable):
                for case, p in enumerate(activity.probabilities(list(state))):
                    if not p:
                        continue
                    tokens = list(state)
                    activity.complete(tokens, case)
                    reached = tuple(tokens)
                    if reached not in leads:
                        leads[reached] = self._id(reached)
                        todo.append(reached)
                    entries.add(i, leads[reached], rate * p)
                self._count(entries, i, activity, state, rate)
        self._eliminate(stable, unstable, begin)

    def _id(self, state: State) -> tuple[bool, int]:
        """(stable, its number); a new marking gets the next one."""
        is_stable = not any(activity.enabled(list(state)) for activity in self.net.instants)
        known = self._stable if is_stable else self._unstable
        if len(self._stable) + len(self._unstable) >= self._states_max:
            most = max(range(len(state)), key=lambda p: state[p])
            raise UsageError(
                "HF-N006",
                "TooManyMarkings",
                f"network {self.net.name!r} has more than {self._states_max} markings.",
                why=f"place {self.net.places[most]!r} has reached {state[most]} tokens" if state else "",
                effect="nothing was solved",
                do="bound the place with `when=`, allow more with states_max=, or estimate(...) it token by token",
            )
        known[state] = len(known)
        if is_stable:
            self.states.append(state)
        return is_stable, known[state]

    def _going(self, state: State, is_stable: bool) -> list[tuple[Bound, float]]:
        """(activity, rate) out of a stable marking, (activity, probability) out of an unstable one."""
        tokens = list(state)
        if is_stable:
            found = []
            for activity in self.net.timed:
                if activity.enabled(tokens):
                    rate = activity.rate(tokens)
                    if rate is None:
                        raise self._not_exponential(
                            [f"{activity.name} in marking {self._shown(state)}"], "every delay in every marking"
                        )
                    found.append((activity, rate))
            return found
        enabled = [activity for activity in self.net.instants if activity.enabled(tokens)]
        first = [activity for activity in enabled if activity.priority == enabled[0].priority]
        weights = [activity.weight(tokens) for activity in first]
        return [(activity, weight / sum(weights)) for activity, weight in zip(first, weights, strict=True)]

    def _count(self, entries: _Entries, i: int, activity: Bound, state: State, rate: float) -> None:
        for reward in self._rewards:
            if activity.name in reward.impulse:
                worth = reward.impulse[activity.name]
                if callable(worth):
                    view = self.net.view(f"reward {reward.name!r}")
                    view.tokens = list(state)
                    worth = worth(view)
                entries.earn(reward.name, i, rate * float(worth))

    def _eliminate(self, stable: _Entries, unstable: _Entries, begin: tuple[bool, int]) -> None:
        n, v = len(self._stable), len(self._unstable)
        to_stable, to_unstable = stable.matrix(True, (n, n)), stable.matrix(False, (n, v))
        within, out = unstable.matrix(False, (v, v)), unstable.matrix(True, (v, n))
        self._impulses = {reward.name: stable.earned(reward.name, n) for reward in self._rewards if reward.impulse}
        start = np.zeros(n)
        if v:
            self._refuse_loops(within, out)
            solver = sparse_linalg.splu((sparse.identity(v) - within).tocsc())
            ends = sparse.csr_matrix(solver.solve(out.toarray())) if n * v <= 4_000_000 else _by_column(solver, out)
            jumps = to_stable + to_unstable @ ends
            for name, earned in self._impulses.items():
                earned += to_unstable @ solver.solve(unstable.earned(name, v))
            if not begin[0]:
                start[:] = ends[begin[1]].toarray().ravel()
        else:
            jumps = to_stable
        if begin[0]:
            start[begin[1]] = 1.0
        jumps = sparse.csr_matrix(jumps)
        jumps.setdiag(0.0)  # A completion that changes nothing is not a step.
        jumps.eliminate_zeros()
        self.start = start
        self.rates = sparse.csr_matrix(jumps - sparse.diags(np.asarray(jumps.sum(axis=1)).ravel()))

    def _refuse_loops(self, within: sparse.csr_matrix, out: sparse.csr_matrix) -> None:
        """Every unstable marking has to lead to a stable one."""
        v = within.shape[0]
        leaves = np.asarray((out != 0).sum(axis=1)).ravel() > 0
        back = sparse.bmat(
            [[within.T, None], [sparse.csr_matrix(leaves.astype(float)), sparse.csr_matrix((1, 1))]]
        ).tocsr()
        reached = csgraph.breadth_first_order(back, v, return_predecessors=False)
        stuck = set(range(v)) - {int(i) for i in reached}
        if stuck:
            state = next(state for state, i in self._unstable.items() if i in stuck)
            names = sorted({a.name for s, i in self._unstable.items() if i in stuck for a, _ in self._going(s, False)})
            raise loop_error(self.net.name, names, self._shown(state))

    def _shown(self, state: State) -> str:
        return ", ".join(f"{place} {n}" for place, n in zip(self.net.places, state, strict=True) if n) or "empty"


def _by_column(solver: sparse_linalg.SuperLU, out: sparse.csr_matrix) -> sparse.csr_matrix:
    """The same where a dense matrix would not fit: a block of columns at a time."""
    columns = out.tocsc()
    step = max(1, 4_000_000 // out.shape[0])
    return sparse.csr_matrix(
        sparse.hstack(
            [sparse.csr_matrix(solver.solve(columns[:, i : i + step].toarray())) for i in range(0, out.shape[1], step)]
        )
    )


class _Entries:
    """Steps out of markings of one sort, and what completions earn on the way."""

    def __init__(self) -> None:
        self._steps: dict[bool, tuple[list[int], list[int], list[float]]] = {True: ([], [], []), False: ([], [], [])}
        self._earned: dict[str, list[tuple[int, float]]] = {}

    def add(self, row: int, to: tuple[bool, int], value: float) -> None:
        rows, columns, values = self._steps[to[0]]
        rows.append(row)
        columns.append(to[1])
        values.append(value)

    def earn(self, reward: str, row: int, value: float) -> None:
        self._earned.setdefault(reward, []).append((row, value))

    def matrix(self, to_stable: bool, shape: tuple[int, int]) -> sparse.csr_matrix:
        rows, columns, values = self._steps[to_stable]
        return sparse.coo_matrix((values, (rows, columns)), shape).tocsr()

    def earned(self, reward: str, n: int) -> np.ndarray:
        total = np.zeros(n)
        for row, value in self._earned.get(reward, ()):
            total[row] += value
        return total
