"""Networks whose answers are known in another way, for the tests beside this file."""

from __future__ import annotations

import numpy as np

from holdfast.models import san


def two_states(fails: float, repaired: float) -> san.Network:
    net = san.Network("machine")
    net.place("up", 1)
    net.place("down")
    net.timed("fails", san.Exponential(fails), takes="up", gives="down")
    net.timed("repaired", san.Exponential(repaired), takes="down", gives="up")
    return net


def queue(room: int, arrives: float, served: float, breaks: float, repaired: float) -> san.Network:
    """M/M/1/K whose server breaks down, busy or not; who is being served waits."""
    net = san.Network("queue")
    net.place("inside")
    net.place("up", 1)
    net.place("down")
    net.timed("arrives", san.Exponential(arrives), gives="inside", when=lambda m: m["inside"] < room)
    net.timed("served", san.Exponential(served), takes="inside", when=lambda m: m["up"] == 1)
    net.timed("breaks", san.Exponential(breaks), takes="up", gives="down")
    net.timed("repaired", san.Exponential(repaired), takes="down", gives="up")
    return net


def queue_by_hand(room: int, arrives: float, served: float, breaks: float, repaired: float) -> np.ndarray:
    """Probabilities [down or up, inside] in the long run: the generator written down, solved densely."""
    n = room + 1
    rates = np.zeros((2 * n, 2 * n))
    for up in (0, 1):
        for inside in range(n):
            here = up * n + inside
            if inside < room:
                rates[here, here + 1] += arrives
            if up and inside:
                rates[here, here - 1] += served
            rates[here, (1 - up) * n + inside] += breaks if up else repaired
    rates -= np.diag(rates.sum(1))
    balance = np.vstack([rates.T, np.ones(2 * n)])
    found = np.linalg.lstsq(balance, np.append(np.zeros(2 * n), 1.0), rcond=None)[0]
    return found.reshape(2, n)
