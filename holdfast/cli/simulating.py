"""`holdfast simulate`: a protocol under a virtual clock, network and disk, with random faults by seed.

Shows progress, tells the story of the first broken schedules with the line that
replays each, and ends with one JSON line per graph. Exit 4 if an invariant broke or
a rare state was hardly reached, 2 if the call makes no sense.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.errors import UsageError
from holdfast.graph.declared import one_of

if TYPE_CHECKING:
    from holdfast.simulation.run import Report

__all__ = ["add_to"]

# Below this many seeds a probe of one in a hundred says nothing.
_SEEDS_FOR_PROBES = 1_000


def add_to(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(
    protocol: Annotated[str, typer.Option(metavar="P", help="none, checkpoint, uncoordinated, ecoc, extended, ...")],
    graph: Annotated[str, typer.Option(metavar="G", help="sp1 to sp4, diamond, random, or all")] = "all",
    seeds: Annotated[int, typer.Option(metavar="N", help="how many schedules")] = 1_000,
    first: Annotated[int, typer.Option(metavar="S", help="the first seed")] = 0,
    workers: Annotated[int | None, typer.Option(metavar="W", help="processes (all cores)")] = None,
) -> None:
    """Drive a protection protocol through random faults. Its invariants are checked after every step."""
    from holdfast.protocols.invariants import ProtocolRefused
    from holdfast.simulation.graphs import GRAPHS
    from holdfast.simulation.protections import PROTECTIONS
    from holdfast.simulation.run import simulate as run_schedules

    one_of(protocol, tuple(PROTECTIONS), what="protocol")
    one_of(graph, (*GRAPHS, "all"), what="graph")
    graphs = tuple(GRAPHS) if graph == "all" else (graph,)
    share = -(-seeds // len(graphs))
    failed = False
    for each in graphs:
        try:
            report = run_schedules(protocol, each, range(first, first + share), workers, _show)
        except ProtocolRefused as refusal:
            if len(graphs) == 1:
                raise _refused(protocol, each, str(refusal)) from None
            continue
        failed |= _tell(report)
    raise typer.Exit(4 if failed else 0)


def _tell(report: Report) -> bool:
    """Print what came of it; whether something is wrong."""
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for broken in report.broken:
        print(f"broken: {broken.what}\nreplay: {report.replay_line(broken.seed)}")
        for line in broken.story:
            print(f"  {line}")
    result = report.as_dict()
    rare = report.rare() if report.seeds >= _SEEDS_FOR_PROBES else []
    if report.seeds >= _SEEDS_FOR_PROBES:
        result["rare"] = rare
    print(json.dumps(result), flush=True)
    return bool(rare) or report.broken_seeds > 0


def _show(report: Report) -> None:
    rate = report.seeds / max(report.seconds, 1e-9)
    line = f"{report.protocol} on {report.graph}: {report.seeds} seeds, {report.broken_seeds} broken, {rate:.0f}/s"
    if sys.stderr.isatty() and report.seeds % 200 == 0:
        print(f"\r{line} ", end="", file=sys.stderr, flush=True)
    elif report.seeds % 2_000 == 0:
        print(line, file=sys.stderr, flush=True)


def _refused(protocol: str, graph: str, why: str) -> UsageError:
    return UsageError(
        "HF-E040",
        "NothingToSimulate",
        f"protocol {protocol!r} does not run on graph {graph!r}.",
        why=why,
        effect="nothing was simulated",
        do="take another graph, or extended, which runs on all",
    )
