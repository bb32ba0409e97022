"""Many seeds on all cores, and the report.

Schedules are independent, so they are dealt to worker processes in small chunks; the
report adds up what they showed. A broken schedule does not stop the others: the
report names the first seeds that broke, with the line that replays each.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from holdfast.simulation.schedule import Outcome, Parts, Schedule

__all__ = ["PROBES", "Broken", "Report", "play_one", "simulate"]

PROBES = (
    "fault_while_pending",
    "fault_during_recovery",
    "fault_at_both_ends",
    "fault_while_shipping",
    "zombie_after_activation",
)
"""Rare states that every soak must reach in more than one schedule of a hundred."""

_BROKEN_KEPT_MAX = 5
_CHUNK = 20


@dataclass(frozen=True, slots=True)
class Broken:
    """One schedule in which an invariant did not hold."""

    seed: int
    what: str
    story: tuple[str, ...]


@dataclass(slots=True)
class Report:
    """What all schedules of one protocol on one graph showed."""

    protocol: str
    graph: str
    seeds: int = 0
    steps: int = 0
    faults: int = 0
    seconds: float = 0.0
    probes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    broken_seeds: int = 0
    broken: list[Broken] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.steps += outcome.steps
        self.faults += outcome.faults
        self.probes.update(outcome.probes)
        self.counts.update(outcome.counts)
        if outcome.broken is not None:
            self.broken_seeds += 1
            if len(self.broken) < _BROKEN_KEPT_MAX:
                self.broken.append(Broken(outcome.seed, outcome.broken, outcome.story))

    def replay_line(self, seed: int) -> str:
        return (
            f"holdfast simulate --protocol {self.protocol} "
            f"--graph {self.graph} --first {seed} --seeds 1"
        )

    def rare(self, at_least: float = 0.01) -> list[str]:
        """Probes that too few schedules reached."""
        return [name for name in PROBES if self.probes[name] <= at_least * self.seeds]

    def as_dict(self) -> dict[str, Any]:
        seeds = max(self.seeds, 1)
        return {
            "protocol": self.protocol,
            "graph": self.graph,
            "seeds": self.seeds,
            "broken": self.broken_seeds,
            "broken_seeds": [b.seed for b in self.broken],
            "events_mean": round(self.steps / seeds, 1),
            "faults_mean": round(self.faults / seeds, 2),
            "probes": {name: round(n / seeds, 4) for name, n in sorted(self.probes.items())},
            "counts_mean": {name: round(n / seeds, 3) for name, n in sorted(self.counts.items())},
            "seconds": round(self.seconds, 1),
        }


def play_one(protocol: str, graph: str, seed: int, parts: Parts | None = None) -> Outcome:
    return Schedule(protocol, graph, seed, parts).play()


def _play_chunk(job: tuple[str, str, range]) -> list[Outcome]:
    protocol, graph, seeds = job
    return [play_one(protocol, graph, seed) for seed in seeds]


def _outcomes(protocol: str, graph: str, seeds: range, workers: int) -> Iterator[Outcome]:
    if workers == 1 or len(seeds) <= _CHUNK:
        for seed in seeds:
            yield play_one(protocol, graph, seed)
        return
    jobs: Iterable[tuple[str, str, range]] = (
        (protocol, graph, seeds[i : i + _CHUNK]) for i in range(0, len(seeds), _CHUNK)
    )
    # Forked workers share the imported modules; nothing else runs in this process.
    with get_context("fork").Pool(workers) as pool:
        for outcomes in pool.imap_unordered(_play_chunk, jobs):
            yield from outcomes


def simulate(
    protocol: str,
    graph: str,
    seeds: range,
    workers: int | None = None,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Play one schedule per seed and add up what they showed."""
    report = Report(protocol, graph)
    begun = time.monotonic()
    for outcome in _outcomes(protocol, graph, seeds, workers or os.cpu_count() or 1):
        report.add(outcome)
        report.seconds = time.monotonic() - begun
        if progress is not None:
            progress(report)
    report.broken.sort(key=lambda b: b.seed)
    return report
