"""20,000 schedules of each lossless protocol: no invariant breaks, and the rare states were reached.

`uncoordinated` and `extended` play on all graphs, `ecoc` on the acyclic ones; the seeds of a protocol are
spread evenly over its graphs and the report says how many each got. Every schedule is checked after each step
and at its calm end (docs/protocols/simulator.md). Fails if an invariant broke, if a rare state was reached by
one schedule in a hundred or fewer, if there were fewer than 300 events or 2 faults a schedule, or if a
protocol took longer than ten minutes.

    make soak-simulate            python -m bench.soak_simulate --seeds 2000 for a short one,
                                  --each-graph for 20,000 on every graph (ten minutes for each of them)
"""

from __future__ import annotations

import argparse
import json
import resource
from typing import Any

from bench.report import finish, say
from holdfast.simulation.protections import PROTECTIONS
from holdfast.simulation.run import Report, graphs_of, shares, simulate, total

PROTOCOLS = ("uncoordinated", "ecoc", "extended")
SECONDS_MAX = 600


def show(report: Report) -> None:
    if report.seeds % 1_000 == 0:
        rate = report.seeds / max(report.seconds, 1e-9)
        say(
            f"  {report.protocol} on {report.graph}: {report.seeds:,} seeds, {report.broken_seeds} broken, {rate:.0f}/s"
        )


def soak(protocol: str, seeds: int, first: int, each_graph: bool) -> tuple[Report, bool]:
    """The report over all graphs, and whether the time was kept."""
    graphs = graphs_of(protocol)
    plan = [(g, range(first, first + seeds)) for g in graphs] if each_graph else shares(graphs, seeds, first)
    reports = []
    for graph, share in plan:
        reports.append(simulate(protocol, graph, share, progress=show))
        say(json.dumps(reports[-1].as_dict()))
    whole = total(protocol, reports)
    timed = max(report.seconds for report in reports) if each_graph else whole.seconds
    for broken in whole.broken:
        say(f"broken: {broken.what}\nreplay: {broken.replay}")
    return whole, timed <= SECONDS_MAX


def cpu_seconds() -> float:
    """Of the workers: what the schedules cost, whatever else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--protocol", action="append", choices=PROTECTIONS)
    parser.add_argument("--each-graph", action="store_true")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    wrong = []
    for protocol in given.protocol or PROTOCOLS:
        say(f"{protocol}: {given.seeds:,} seeds{' on each graph' if given.each_graph else ''}")
        before = cpu_seconds()
        whole, in_time = soak(protocol, given.seeds, given.first, given.each_graph)
        found = {**whole.as_dict(), "cpu_seconds": round(cpu_seconds() - before, 1), "in_time": in_time}
        for known in ("protocol", "graph", "counts_mean"):
            del found[known]
        figures[protocol] = found
        if whole.broken_seeds or whole.weak() or not in_time:
            wrong.append(protocol)
    finish("soak-simulate", {"each_graph": given.each_graph, "protocols": figures, "wrong": wrong})
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
