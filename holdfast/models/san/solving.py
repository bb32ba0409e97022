"""Rewards of a Markov chain: in the long run, at a moment, over an interval; exact up to rounding.

*Long run.* The chain ends up in one of its closed classes of states. Within one, the balance
equations are solved by elimination without a subtraction (Grassmann, Taksar, Heyman) up to
`DENSE_MAX` states, so tiny probabilities keep all their digits; above, by sparse LU. Several
closed classes are weighted by the chance of ending in each.

*At a moment, over an interval.* Uniformisation: with L at least every state's rate and
P = I + Q / L, the chain at time t is the sum over k of Poisson(k; L t) p P^k, and what it earned
until t is the sum of P(more than k jumps) / L p P^k. All terms are positive; the sum ends where the jumps
left out have a probability below `LEFT_OUT`, or where p P^k no longer moves.

That takes L t steps. A chain with rates far apart (a millisecond beside a month) needs too many: up to `DENSE_MAX` states the
matrices of a short time are then doubled, P(2h) = P(h) P(h) and S(2h) = S(h) + P(h) S(h) for the time spent, again without a
subtraction; each doubling at most doubles the relative error, and thirty of them leave nine digits. Larger chains are refused (HF-N012).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse, stats
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

from holdfast.errors import UsageError
from holdfast.models.san.chain import Chain
from holdfast.models.san.network import Network
from holdfast.models.san.rewards import At, Average, Reward, Steady

__all__ = ["long_run", "solve", "transient"]

# n^3 operations: 400 states take a tenth of a second.
DENSE_MAX = 400
LEFT_OUT = 1e-14
# Steps of uniformisation: some seconds for a few thousand states.
STEPS_MAX = 1_000_000
# p P^k is a probability vector; below this two of them are the same to the last bits.
SETTLED = 1e-16


def solve(network: Network, rewards: Sequence[Reward], *, states_max: int = 200_000) -> dict[str, float]:
    """Reward -> its expected value, exactly. Refuses networks that are no Markov chain (HF-N005, HF-N006)."""
    chain = Chain(network, rewards, states_max)
    steady: np.ndarray | None = None
    found = {}
    for reward in rewards:
        earned, over = chain.earned(reward), reward.over
        if isinstance(over, Steady):
            steady = long_run(chain) if steady is None else steady
            found[reward.name] = float(steady @ earned)
        elif isinstance(over, At):
            found[reward.name] = float(transient(chain, over.time)[0] @ earned)
        else:
            begin, _ = transient(chain, over.start)
            _, spent = transient(chain, over.end - over.start, begin)
            total = float(spent @ earned)
            found[reward.name] = total / (over.end - over.start) if isinstance(over, Average) else total
    return found


def transient(chain: Chain, time: float, start: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(probability of each state at `time`, expected time spent in each until then)."""
    p = chain.start if start is None else start
    fastest = float(-chain.rates.diagonal().min(initial=0.0))
    if time == 0 or fastest == 0:
        return p.copy(), p * time
    rate = 1.02 * fastest  # Above the fastest state: otherwise P may be periodic and never settle.
    step = sparse.csr_matrix((sparse.identity(chain.rates.shape[0]) + chain.rates / rate).T)
    if rate * time > STEPS_MAX:
        return _doubled(chain, p, time, rate, step)
    return _uniformised(p, time, rate, step)


def _uniformised(p: np.ndarray, time: float, rate: float, step: sparse.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Of one start (a vector), or of several (columns)."""
    last = int(stats.poisson.isf(LEFT_OUT, rate * time)) + 1
    at, spent = np.zeros_like(p), np.zeros_like(p)
    block = 4096  # Poisson weights are made by the block; there may be millions.
    for begin in range(0, last + 1, block):
        jumps = np.arange(begin, min(begin + block, last + 1))
        weights, more = stats.poisson.pmf(jumps, rate * time), stats.poisson.sf(jumps, rate * time) / rate
        for k in range(len(jumps)):
            at += weights[k] * p
            spent += more[k] * p
            following = step @ p
            if np.abs(following - p).max() < SETTLED:
                # From here on every term has the same vector: the rest is what is missing of the sums.
                return at + (1.0 - at.sum(0)) * following, spent + (time - spent.sum(0)) * following
            p = following
    return at / at.sum(0), spent * (time / spent.sum(0))


def _doubled(
    chain: Chain, p: np.ndarray, time: float, rate: float, step: sparse.csr_matrix
) -> tuple[np.ndarray, np.ndarray]:
    n = len(p)
    if n > DENSE_MAX:
        raise UsageError(
            "HF-N012",
            "RatesTooFarApart",
            f"network {chain.net.name!r} makes {rate * time:.2g} jumps in that time.",
            why=f"its fastest marking is left {rate:.2g} times per unit of time, and it has {n} markings",
            effect="nothing was solved",
            do="ask for the long run with over=Steady(), or make activities that take next to no time instantaneous",
        )
    doublings = int(np.ceil(np.log2(rate * time / 1000)))
    short = time / 2**doublings
    at, spent = (each.T for each in _uniformised(np.identity(n), short, rate, step))
    for _ in range(doublings):
        spent, short = spent + at @ spent, 2 * short
        at = at @ at
        at, spent = at / at.sum(1, keepdims=True), spent * (short / spent.sum(1, keepdims=True))
    return p @ at, p @ spent


def long_run(chain: Chain) -> np.ndarray:
    """Probability of each state in the long run, from the chain's own start."""
    jumps = chain.rates - sparse.diags(chain.rates.diagonal())
    count, of = csgraph.connected_components(jumps, directed=True, connection="strong")
    rows, columns = jumps.nonzero()
    leaving = set(of[rows[of[rows] != of[columns]]])
    found = np.zeros(len(of))
    closed = [each for each in range(count) if each not in leaving]
    ends = _ends(chain, of, closed)
    for each, share in zip(closed, ends, strict=True):
        if share:
            members = np.nonzero(of == each)[0]
            found[members] = share * _balanced(sparse.csr_matrix(jumps[members][:, members]))
    return found


def _ends(chain: Chain, of: np.ndarray, closed: list[int]) -> np.ndarray:
    """The chance of ending in each closed class."""
    inside = np.isin(of, closed)
    shares = np.array([chain.start[of == each].sum() for each in closed])
    passing = np.nonzero(~inside)[0]
    if len(passing) and chain.start[passing].any():
        within = chain.rates[passing][:, passing].T.tocsc()
        visits = sparse_linalg.spsolve(within, -chain.start[passing])  # expected time spent in each
        flow = np.atleast_1d(visits) @ chain.rates[passing]
        shares = shares + np.array([flow[of == each].sum() for each in closed])
    return shares / shares.sum()


def _balanced(jumps: sparse.csr_matrix) -> np.ndarray:
    """Probabilities within one closed class, from its rates without the diagonal."""
    n = jumps.shape[0]
    if n > DENSE_MAX:
        balance = sparse.lil_matrix((jumps - sparse.diags(np.asarray(jumps.sum(axis=1)).ravel())).T)
        balance[n - 1] = np.ones(n)  # One equation is redundant; the probabilities are 1 together.
        right = np.zeros(n)
        right[n - 1] = 1.0
        found = np.maximum(sparse_linalg.spsolve(balance.tocsc(), right), 0.0)
        return found / found.sum()
    rates = jumps.toarray()
    for k in range(n - 1, 0, -1):
        rates[:k, k] /= rates[k, :k].sum()
        rates[:k, :k] += np.outer(rates[:k, k], rates[k, :k])
    found = np.zeros(n)
    found[0] = 1.0
    for k in range(1, n):
        found[k] = found[:k] @ rates[:k, k]
    return found / found.sum()
