"""Silent corruption in the fluid model: one wrong element is followed on its way, a wrong state becomes unstable.

One element among thousands has no rate, so it is drawn: at each operator it passes with the
selectivity of tainted elements, and each port with state that takes it is wrong from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from holdfast.models.fluid import _Fluid

__all__ = ["corrupt"]


def corrupt(fluid: _Fluid, c: int, hit: np.ndarray, outputs: list[int]) -> None:
    """Channel c fires in the replications `hit`: at one of its instances, element or state."""
    layout, rng = fluid.layout, fluid.rng
    channel = layout.channels[c]
    where = np.array(channel.instances)[rng.integers(len(channel.instances), size=len(hit))]
    alive = fluid.up_at[where, hit] <= fluid.now[hit]
    fluid.hits += int(alive.sum())
    sent = np.zeros((len(layout.instances), len(fluid.now)), int)
    for j in np.unique(where):
        rows = hit[(where == j) & alive]
        slots = layout.slots_of[j]
        in_state = np.full(len(rows), bool(slots)) & (rng.random(len(rows)) < channel.fault.state_share)
        if slots:
            chosen = np.array(slots)[rng.integers(len(slots), size=len(rows))]
            _make_wrong(fluid, chosen[in_state], rows[in_state])
        sent[j, rows[~in_state]] = rng.random((~in_state).sum()) < _chance_to_leave(fluid, j)
    if sent.any():
        _follow(fluid, sent, outputs)


def _make_wrong(fluid: _Fluid, slots: np.ndarray, rows: np.ndarray) -> None:
    needed = np.array([slot.state.to_refill_tainted for slot in fluid.layout.slots])
    fluid.wrong[slots, rows] = np.maximum(fluid.wrong[slots, rows], needed[slots])


def _chance_to_leave(fluid: _Fluid, j: int) -> float:
    """That the element which is worked on when the fault happens is sent on; ports by their rates."""
    operator = fluid.layout.model.operators[fluid.layout.instances[j].operator]
    if operator.is_source:
        return 1.0
    rates = fluid.layout.model.rates[operator.name][0]
    passes = sum(rate * min(1.0, port.selectivity_bad) for rate, port in zip(rates, operator.ports, strict=True))
    return passes / sum(rates) if sum(rates) else 0.0


def _follow(fluid: _Fluid, sent: np.ndarray, outputs: list[int]) -> None:
    """`sent`: wrong elements that leave each instance now; those below are reached without delay.

    Copies that read the same element decide alike, so they share the draw.
    """
    layout, rng = fluid.layout, fluid.rng
    for i, operator in enumerate(layout.model.operators):
        for p, port in enumerate(operator.ports):
            copies = list(layout.of_operator[i])
            read = np.stack([_at_port(fluid, sent, j, p) for j in copies])
            rows = np.nonzero(read.any(0))[0]
            if not len(rows):
                continue
            for j, own in zip(copies, read, strict=True):
                reached = np.nonzero(own)[0]
                for m in layout.slots_of[j]:
                    if layout.slots[m].port == p:
                        _make_wrong(fluid, np.full(len(reached), m), reached)
            whole, share = divmod(port.selectivity_bad, 1.0)
            passed = rng.binomial(read[:, rows].max(0), share)
            for j, own in zip(copies, read, strict=True):
                sent[j, rows] += own[rows] * int(whole) + np.minimum(own[rows], passed)
    for o, i in enumerate(outputs):
        fluid.extra[o] += sent[list(layout.of_operator[i])].max(0)


def _at_port(fluid: _Fluid, sent: np.ndarray, j: int, p: int) -> np.ndarray:
    alive = fluid.up_at[j] <= fluid.now
    return sum(_read(fluid, sent, feed) for feed in fluid.layout.feeds[j][p]) * alive


def _read(fluid: _Fluid, sent: np.ndarray, feed) -> np.ndarray:
    if feed.group < 0:
        return sent[list(feed.instances)].max(0)
    active, columns = fluid.active[feed.group], np.arange(sent.shape[1])
    return sent[np.array(feed.instances)[np.maximum(active, 0)], columns] * (active >= 0)
