"""Every element of a stream graph under given faults, operator by operator over whole arrays.

The graph has no cycle and an element takes no time, so what an operator does in a whole run depends on
what those above it sent in the whole run: nodes are worked through upstream first, each with all of its
elements at once. Every element is drawn for itself at every operator; nothing is averaged.

How long a state is wrong is a running maximum over its events (`tokens.spans`), so that no loop visits an element.

The rules are those of `models.stream`, for crashes, hosts, drivers, silent sources and "ha" groups. Copies of kind
"replicate" and corruptions are refused: `tokens.net` has them.

Pure: randomness arrives as a `numpy.random.Generator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.models.schedules import Hit
from holdfast.models.stream import StreamModel, refused
from holdfast.models.tokens.spans import Spans, both, countdown, inside, union, within
from holdfast.models.tokens.unfolded import Node, Unfolded, elements

__all__ = ["Passed", "follow"]


@dataclass(frozen=True)
class Passed:
    """Of one run: share of time, and elements that left each output."""

    available: float
    clean: dict[str, int]
    tainted: dict[str, int]


@dataclass
class _Run:
    """What happened to one node, and what it sent."""

    down: list[tuple[float, float]] = field(default_factory=list)
    raises: dict[int, list[tuple[float, int]]] = field(default_factory=dict)  # port -> (time, Z at least)
    wipes: list[float] = field(default_factory=list)  # its state is gone
    wrong: Spans = field(default_factory=lambda: np.empty((0, 2)))
    times: np.ndarray = field(default_factory=lambda: np.empty(0))
    bad: np.ndarray = field(default_factory=lambda: np.empty(0, bool))


def follow(model: StreamModel, schedule: Sequence[Hit], until_s: float, rng: np.random.Generator) -> Passed:
    """One run under these faults."""
    graph = Unfolded(model)
    if any(group.kind != "ha" for group in model.copies) or any(hit.kind == "corruption" for hit in schedule):
        raise refused(
            "copies that are all read, or corruption.",
            f"model {model.name!r}",
            "only crashes and groups with one active copy are followed here",
            "simulate tokens.net.network_of(model)",
        )
    return _Following(graph, until_s, rng).run(sorted(schedule, key=lambda hit: hit.at_s))


class _Following:
    def __init__(self, graph: Unfolded, until_s: float, rng: np.random.Generator) -> None:
        self.graph, self.until_s, self.rng = graph, until_s, rng
        self.runs = {node: _Run() for node in graph.nodes}
        self.active: dict[int, list[tuple[float, int]]] = {}  # group -> (from, copy or -1)

    def run(self, schedule: Sequence[Hit]) -> Passed:
        for hit in schedule:
            self._strike(hit)
        for stage in self._stages():
            for node in stage:
                self._work(node)
            if stage[0].group >= 0:
                self._activate(stage[0].group)
        clean, tainted = {}, {}
        for output in self.graph.model.outputs:
            _, bad = self._read_outside(output.operator)
            clean[output.operator], tainted[output.operator] = int((~bad).sum()), int(bad.sum())
        return Passed(1 - self._unavailable() / self.until_s, clean, tainted)

    def _stages(self) -> list[list[Node]]:
        """Upstream first; both copies of a group before anybody who reads the active one."""
        done: list[list[Node]] = []
        seen: set[Node] = set()
        for node in self.graph.nodes:
            if node in seen:
                continue
            stage = [node] if node.group < 0 else [n for n in self.graph.nodes if n.group == node.group]
            above = {name for n in stage for name in self.graph.model.above(n.operator.name)}
            behind = above - {n.operator.name for n in [*stage, *seen]}
            if behind:
                raise refused(
                    f"a group of copies reads {', '.join(sorted(behind))}, which stands after its first member.",
                    f"model {self.graph.model.name!r}",
                    "members are worked through together",
                    "list what a group reads before its first member",
                )
            done.append(stage)
            seen.update(stage)
        return done

    # -- faults --------------------------------------------------------------------

    def _strike(self, hit: Hit) -> None:
        struck = self.graph.planned(hit)
        at, repair_s = hit.at_s, struck.fault.repair_s
        taken = [n for n in struck.nodes if not self.runs[n].down or self.runs[n].down[-1][1] <= at]
        for node in taken:
            run = self.runs[node]
            run.down.append((at, at + repair_s))
            for p in node.states:
                z = self.graph.own_wrong(node, p, repair_s)
                if z is None:
                    run.wipes.append(at)
                else:
                    run.raises.setdefault(p, []).append((at, z))
        for node, p, z in struck.wrong if taken else ():
            self.runs[node].raises.setdefault(p, []).append((at, z))

    def _activate(self, g: int) -> None:
        """Which copy is active when; `loses` and `takes over` of the net."""
        group = self.graph.model.copies[g]
        members = [self.graph.members(g, k) for k in range(group.n)]
        down = [union([span for n in copy for span in self.runs[n].down]) for copy in members]
        wrong = [union([span for n in copy for span in self.runs[n].wrong]) for copy in members]
        below = self.graph.when_lost(g)
        steps, active, now = [(0.0, 0)], 0, 0.0
        while True:
            lost = next((start for start, end in down[active] if start >= now), None)
            if lost is None:
                break
            steps.append((lost, -1))
            for node, p, z in below:
                self.runs[node].raises.setdefault(p, []).append((lost, z))
            now = self._whole_for(down, lost, group.failover_s)
            whole = [k for k in range(group.n) if not inside(down[k], now)]
            right = [k for k in whole if not inside(wrong[k], now)]
            active = (right or whole)[0]
            steps.append((now, active))
        self.active[g] = steps

    def _whole_for(self, down: list[Spans], since: float, failover_s: float) -> float:
        """When, after `since`, some copy had been whole for so long without a break."""
        changes = sorted({since, *(float(t) for spans in down for t in spans.ravel() if t > since)})
        begun: float | None = None
        for now in changes:
            if begun is not None and begun + failover_s <= now:
                break
            if all(inside(spans, now) for spans in down):
                begun = None
            elif begun is None:
                begun = now
        return float("inf") if begun is None else begun + failover_s

    # -- one node --------------------------------------------------------------------

    def _work(self, node: Node) -> None:
        run, operator = self.runs[node], node.operator
        if operator.is_source:
            times = np.arange(1, int(self.until_s * operator.rate + 1e-9) + 1) / operator.rate
            run.times = times[~within(run.down, times)]
            run.bad = np.zeros(len(run.times), bool)
            return
        times, ports, bad = self._arrivals(node)
        is_wrong = np.zeros(len(times), bool)
        share = np.ones(len(times))
        spans: list[tuple[float, float]] = []
        for p, state in node.states.items():
            raises = sorted(run.raises.get(p, ()))
            clean, raised = (ports == p) & ~bad, np.zeros(len(times), np.int64)
            raised[(ports == p) & bad] = elements(state.to_refill_tainted)
            if raises or raised.any():
                # A wipe sets Z to 0: what came before it is forgotten.
                before, level = countdown(times, clean, raised, raises, sorted(set(run.wipes)))
                is_wrong |= before > 0
                spans += level
            if run.wipes:
                whole = [(at, int(np.ceil(state.size))) for at in run.wipes]
                left, level = countdown(times, clean, np.zeros(len(times), np.int64), whole, [])
                share[left > 0] *= state.refilling
                spans += level
        run.wrong = union(spans)
        out_bad = bad | is_wrong
        table = np.array([(port.selectivity, port.selectivity_bad) for port in operator.ports])
        passes = np.where(out_bad, *table[0, ::-1]) if len(table) == 1 else table[ports, out_bad.view(np.int8)]
        if run.wipes:
            passes = passes * share
        drawn = self.rng.random(len(times))
        if table.max() <= 1:
            sent = drawn < passes
            run.times, run.bad = times[sent], out_bad[sent]
        else:
            whole = np.floor(passes)
            n = whole.astype(np.int64) + (drawn < passes - whole)
            run.times, run.bad = np.repeat(times, n), np.repeat(out_bad, n)

    def _arrivals(self, node: Node) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Times, ports and taint of what a node reads while it is up, in the order in which it reads."""
        parts = []
        for p in range(len(node.operator.ports)):
            found = [self._read(node, feed_name) for feed_name in node.operator.ports[p].reads]
            times, bad = np.concatenate([t for t, _ in found]), np.concatenate([b for _, b in found])
            parts += [(times[~bad], p, False), (times[bad], p, True)]
        parts = [part for part in parts if len(part[0])]
        if not parts:
            return np.empty(0), np.empty(0, np.int8), np.empty(0, bool)
        times = np.concatenate([t for t, _, _ in parts])
        ports = np.concatenate([np.full(len(t), p, np.int8) for t, p, _ in parts])
        bad = np.concatenate([np.full(len(t), b) for t, _, b in parts])
        order = np.argsort(times, kind="stable")  # Runs that are in order each: little to do.
        order = order[~within(self.runs[node].down, times[order])]
        return times[order], ports[order], bad[order]

    def _read(self, node: Node, name: str) -> tuple[np.ndarray, np.ndarray]:
        sender = self.graph.of(name)[0]
        if sender.group >= 0 and sender.group == node.group:
            run = self.runs[self.graph.of(name)[node.copy]]
            return run.times, run.bad
        return self._read_outside(name)

    def _read_outside(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        nodes = self.graph.of(name)
        if nodes[0].group < 0:
            return self.runs[nodes[0]].times, self.runs[nodes[0]].bad
        times, bad = [], []
        for node in nodes:
            run = self.runs[node]
            there = within(self._active_spans(node), run.times)
            times.append(run.times[there])
            bad.append(run.bad[there])
        all_times, all_bad = np.concatenate(times), np.concatenate(bad)
        order = np.argsort(all_times, kind="stable")
        return all_times[order], all_bad[order]

    # -- availability ----------------------------------------------------------------

    def _active_spans(self, node: Node) -> list[tuple[float, float]]:
        steps = self.active[node.group]
        ends = [at for at, _ in steps[1:]] + [float("inf")]
        return [(at, end) for (at, copy), end in zip(steps, ends, strict=True) if copy == node.copy]

    def _unavailable(self) -> float:
        spans: list[tuple[float, float]] = []
        for node, run in self.runs.items():
            own = [*run.down, *run.wrong]
            spans += own if node.group < 0 else both(union(own), self._active_spans(node))
        for steps in self.active.values():
            ends = [at for at, _ in steps[1:]] + [float("inf")]
            spans += [(at, end) for (at, copy), end in zip(steps, ends, strict=True) if copy < 0]
        found = np.clip(union(spans), 0, self.until_s)
        return float((found[:, 1] - found[:, 0]).sum())
