"""Many seeds on all cores, and the report.

Schedules are independent, so they are dealt to worker processes in small chunks; the
report adds up what they showed. A broken schedule does not stop the others: the
report names the first seeds that broke, with the line that replays each.

`holdfast simulate` and `make soak-simulate` print the same report.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from holdfast.protocols.invariants import ProtocolRefused
from holdfast.simulation.graphs import GRAPHS
from holdfast.simulation.schedule import Outcome, Parts, Schedule

__all__ = [
    "EVENTS_MEAN_MIN",
    "FAULTS_MEAN_MIN",
    "PROBES",
    "SEEDS_FOR_PROBES",
    "Broken",
    "Report",
    "graphs_of",
    "play_one",
    "shares",
    "simulate",
    "total",
]

PROBES = {
    "fault_while_pending": "a fault while a checkpoint waits for others",
    "fault_during_recovery": "a fault during a recovery",
    "fault_at_both_ends": "a fault at both ends of an edge",
    "fault_while_shipping": "a fault while a checkpoint is on its way to its backup",
    "zombie_after_activation": "an instance that wakes after it was replaced",
    "several_frames_in_a_batch": "a unit that works on several frames at once",
}
"""Rare states that every soak must reach in more than one schedule of a hundred."""

# A schedule with fewer events or faults than these, on average, rehearses too little.
EVENTS_MEAN_MIN = 300
FAULTS_MEAN_MIN = 2

# Below this many seeds a probe of one in a hundred says nothing, and a mean little.
SEEDS_FOR_PROBES = 1_000

_BROKEN_KEPT_MAX = 5
_CHUNK = 20


@dataclass(frozen=True, slots=True)
class Broken:
    """One schedule in which an invariant did not hold."""

    seed: int
    replay: str
    what: str
    story: tuple[str, ...]


@dataclass(slots=True)
class Report:
    """What all schedules of one protocol on one graph, or on several, showed."""

    protocol: str
    graph: str
    per_graph: dict[str, int] = field(default_factory=dict)
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
                replay = (
                    f"holdfast simulate --protocol {self.protocol} "
                    f"--graph {self.graph} --first {outcome.seed} --seeds 1"
                )
                self.broken.append(Broken(outcome.seed, replay, outcome.broken, outcome.story))

    def rare(self, at_least: float = 0.01) -> list[str]:
        """Probes that too few schedules reached."""
        # Without checkpoints nothing is pending and nothing is shipped.
        wanted = [p for p in PROBES if self.protocol != "none" or not p.startswith("fault_while")]
        return [name for name in wanted if self.probes[name] <= at_least * self.seeds]

    def weak(self) -> list[str]:
        """In what these schedules, none of them broken, rehearsed too little."""
        if self.seeds < SEEDS_FOR_PROBES:
            return []
        weak = self.rare()
        if self.steps < EVENTS_MEAN_MIN * self.seeds:
            weak.append("events_mean")
        if self.faults < FAULTS_MEAN_MIN * self.seeds:
            weak.append("faults_mean")
        return weak

    def as_dict(self) -> dict[str, Any]:
        seeds = max(self.seeds, 1)
        return {
            "protocol": self.protocol,
            "graph": self.graph,
            "seeds": self.seeds,
            "seeds_per_graph": self.per_graph,
            "broken": self.broken_seeds,
            "broken_seeds": [b.seed for b in self.broken],
            "events_mean": round(self.steps / seeds, 1),
            "faults_mean": round(self.faults / seeds, 2),
            "probes": {name: round(n / seeds, 4) for name, n in sorted(self.probes.items())},
            "counts_mean": {name: round(n / seeds, 3) for name, n in sorted(self.counts.items())},
            "weak": self.weak(),
            "seconds": round(self.seconds, 1),
        }


def play_one(protocol: str, graph: str, seed: int, parts: Parts | None = None) -> Outcome:
    return Schedule(protocol, graph, seed, parts).play()


def graphs_of(protocol: str) -> tuple[str, ...]:
    """The graphs that a protocol does not refuse."""
    taken = []
    for graph in GRAPHS:
        try:
            play_one(protocol, graph, 0)
        except ProtocolRefused:
            continue
        taken.append(graph)
    return tuple(taken)


def shares(graphs: tuple[str, ...], seeds: int, first: int = 0) -> list[tuple[str, range]]:
    """`seeds` schedules in all, spread evenly over the graphs."""
    least, more = divmod(seeds, len(graphs))
    counts = [least + (i < more) for i in range(len(graphs))]
    return [(graph, range(first, first + n)) for graph, n in zip(graphs, counts, strict=True) if n]


def total(protocol: str, reports: Iterable[Report]) -> Report:
    """One report over all graphs of a protocol."""
    whole = Report(protocol, "all")
    for report in reports:
        whole.per_graph.update(report.per_graph)
        whole.seeds += report.seeds
        whole.steps += report.steps
        whole.faults += report.faults
        whole.seconds += report.seconds
        whole.probes.update(report.probes)
        whole.counts.update(report.counts)
        whole.broken_seeds += report.broken_seeds
        whole.broken += report.broken
    return whole


def _play_chunk(job: tuple[str, str, range]) -> list[Outcome]:
    protocol, graph, seeds = job
    return [play_one(protocol, graph, seed) for seed in seeds]


def _begin_worker() -> None:
    # A schedule lives for some milliseconds; collecting garbage within one only costs.
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


def _outcomes(protocol: str, graph: str, seeds: range, workers: int) -> Iterator[Outcome]:
    if workers == 1 or len(seeds) <= _CHUNK:
        for seed in seeds:
            yield play_one(protocol, graph, seed)
        return
    jobs: Iterable[tuple[str, str, range]] = (
        (protocol, graph, seeds[i : i + _CHUNK]) for i in range(0, len(seeds), _CHUNK)
    )
    # Forked workers share the imported modules; nothing else runs in this process.
    with get_context("fork").Pool(workers, _begin_worker) as pool:
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
        report.per_graph[graph] = report.seeds
        report.seconds = time.monotonic() - begun
        if progress is not None:
            progress(report)
    report.broken.sort(key=lambda b: b.seed)
    return report
