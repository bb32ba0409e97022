"""Stochastic activity networks: places, activities, gates, cases, rewards; one network, two solvers.

    from holdfast.models import san

    machine = san.Network("machine")
    machine.place("up", 1)
    machine.place("down")
    machine.timed("fails", san.Exponential(1 / 1800), takes="up", gives="down")
    machine.timed("repaired", san.Exponential(1 / 3.5), takes="down", gives="up")
    available = san.Reward("available", rate=lambda m: m["up"], over=san.Average(0, 7200))

    san.solve(machine, [available])               exact, where every timed activity is exponential
    san.estimate(machine, [available], seed=1)    token by token, any distribution, with an interval

Both solvers complete activities by the same code (`firing`), so they cannot read a gate in two
ways; tests hold them against closed forms and against each other.

| module | subject |
|---|---|
| `distributions` | how long a timed activity takes |
| `network` | what a network consists of, and how networks are composed |
| `firing` | when an activity is enabled and what its completion does |
| `rewards` | what is measured |
| `tokens` | one replication, token by token |
| `estimates` | many replications and their confidence intervals |
| `chain` | the reachable markings as a Markov chain |
| `solving` | its steady state, its transients, its rewards |

The word "network" is used for a stochastic activity network throughout; nothing here sends anything.
"""

from holdfast.models.san.chain import Chain
from holdfast.models.san.distributions import (
    Deterministic,
    Distribution,
    Erlang,
    Exponential,
    Given,
    Uniform,
    Weibull,
)
from holdfast.models.san.estimates import Estimate, estimate
from holdfast.models.san.network import Case, Network, join, replicate
from holdfast.models.san.rewards import At, Average, Reward, Steady, Total
from holdfast.models.san.solving import solve
from holdfast.models.san.tokens import simulate

__all__ = [
    "At",
    "Average",
    "Case",
    "Chain",
    "Deterministic",
    "Distribution",
    "Erlang",
    "Estimate",
    "Exponential",
    "Given",
    "Network",
    "Reward",
    "Steady",
    "Total",
    "Uniform",
    "Weibull",
    "estimate",
    "join",
    "replicate",
    "simulate",
    "solve",
]
