"""Spans of time, and how a state counts down: what `tokens.elements` is made of.

Z of a port after its n-th event. Let C be the clean elements it has read so far. A clean element takes one off
Z, a tainted one or a fault raises it to at least z. So Z + C never falls, and is the largest of z + C
over all events until now: a running maximum, without a loop. A fault that wipes the state starts over.
What is left to refill is the same with one kind of event.

Pure: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

__all__ = ["Spans", "both", "countdown", "inside", "union", "within"]

Spans = np.ndarray  # rows of (from, until), apart from each other and in order


def countdown(
    times: np.ndarray,
    clean: np.ndarray,
    raised: np.ndarray,
    raises: Sequence[tuple[float, int]],
    resets: Sequence[float],
) -> tuple[np.ndarray, list[tuple[float, float]]]:
    """(Z before each element, spans in which it is above 0).

    `clean`: elements that take one off; `raised`: to what an element raises Z at least; `raises`: the same of faults,
    which come before an element of the same time; `resets`: when Z becomes 0, before a fault of the same time.
    """
    before = np.zeros(len(times), np.int64)
    spans: list[tuple[float, float]] = []
    edges = [-np.inf, *resets, np.inf]
    for begin, end in pairwise(edges):
        lo, hi = np.searchsorted(times, [begin, end])
        own = [(at, z) for at, z in raises if begin <= at < end]
        at = np.searchsorted(times[lo:hi], [t for t, _ in own]) if own else np.empty(0, np.int64)
        when = np.insert(times[lo:hi], at, [t for t, _ in own])
        off = np.insert(clean[lo:hi], at, False)
        z = np.insert(raised[lo:hi], at, [z for _, z in own])
        counted = np.cumsum(off)
        top = np.maximum.accumulate(np.where(z > 0, z + counted, 0)) if len(z) else counted
        level = np.maximum(top - counted, 0)
        is_element = np.insert(np.ones(hi - lo, bool), at, False)
        before[lo:hi] = np.concatenate([[0], level[:-1]])[is_element] if len(level) else 0
        high = level > 0
        switch = np.nonzero(np.diff(np.concatenate([[False], high, [False]])))[0]
        for a, b in zip(switch[::2], switch[1::2], strict=True):
            spans.append((float(when[a]), float(when[b]) if b < len(when) else end))
    return before, spans


def union(spans: Sequence[tuple[float, float]]) -> Spans:
    found: list[list[float]] = []
    for start, end in sorted((float(a), float(b)) for a, b in spans):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        elif end > start:
            found.append([start, end])
    return np.array(found).reshape(-1, 2)


def both(spans: Spans, others: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where a span and one of the others overlap."""
    return [(max(a, c), min(b, d)) for a, b in spans for c, d in others if max(a, c) < min(b, d)]


def inside(spans: Spans, at: float) -> bool:
    return any(start <= at < end for start, end in spans)


def within(spans: Sequence[tuple[float, float]] | Spans, times: np.ndarray) -> np.ndarray:
    """Of each time, in order: whether it lies in one of the spans."""
    there = np.zeros(len(times), bool)
    for start, end in spans:
        lo, hi = np.searchsorted(times, [start, end])
        there[lo:hi] = True
    return there
