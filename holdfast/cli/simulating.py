"""`holdfast simulate`: a protocol under a virtual clock, network and disk, with random faults by seed.

Uses all cores and shows progress. For people a few lines per graph go to standard error;
standard output has one JSON line per graph and, where there are several, one for all of
them. Exit 4 with an error that holds the replaying line if an invariant broke, or if the
schedules rehearsed too little to say anything; 2 if the call makes no sense.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import render
from holdfast.errors import Finding, UsageError
from holdfast.graph.declared import did_you_mean

if TYPE_CHECKING:
    from holdfast.simulation.run import Broken, Report

__all__ = ["add_to"]

_PROTOCOLS = "none, checkpoint, uncoordinated, ecoc, extended, two_phase; mixed: a lossless one drawn for each unit; mixed_lossy: any"
_GRAPHS = (
    "sp1 a chain, sp2 a join, sp3 a cycle, sp4 two cycles, diamond, random without cycles, cycles at random, "
    "or all that the protocol runs on"
)


def add_to(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(
    protocol: Annotated[str, typer.Option(metavar="P", help=_PROTOCOLS)],
    graph: Annotated[str, typer.Option(metavar="G", help=_GRAPHS)] = "all",
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, help="how many schedules in all, spread over the graphs")
    ] = 1_000,
    first: Annotated[int, typer.Option(metavar="S", help="the first seed of each graph")] = 0,
    workers: Annotated[int | None, typer.Option(metavar="W", min=1, help="processes (all cores)")] = None,
) -> None:
    """Drive a protection protocol through random faults. Its invariants are checked after every step."""
    from holdfast.protocols.invariants import ProtocolRefused
    from holdfast.simulation.graphs import GRAPHS
    from holdfast.simulation.protections import PROTECTIONS
    from holdfast.simulation.run import graphs_of, shares, total
    from holdfast.simulation.run import simulate as run_schedules

    _known(protocol, tuple(PROTECTIONS), "protocol")
    _known(graph, (*GRAPHS, "all"), "graph")
    graphs = graphs_of(protocol) if graph == "all" else (graph,)
    reports = []
    try:
        for each, share in shares(graphs, seeds, first):
            reports.append(run_schedules(protocol, each, share, workers, _show))
            _tell(reports[-1], is_last=len(graphs) == 1)
    except ProtocolRefused as refusal:
        raise _refused(protocol, graph, str(refusal)) from None
    whole = reports[0]
    if len(reports) > 1:
        whole = total(protocol, reports)
        _tell(whole, is_last=True)
    findings = [_broken(broken) for broken in whole.broken]
    if whole.weak() and not findings:
        findings.append(_weak(whole))
    for finding in findings:
        render.print_finding(finding, render.errors())
    raise typer.Exit(4 if findings else 0)


def _broken(broken: Broken) -> Finding:
    return Finding(
        "HF-E041",
        "InvariantBroken",
        f"{broken.what}.",
        where="recent events there:\n" + "\n".join(broken.story),
        why="a protocol does not keep what its proof says, or the proof forgot this order of events",
        effect="nothing ran but the simulator; a process under this protocol could lose data",
        do=broken.replay,
    )


def _weak(report: Report) -> Finding:
    figures = report.as_dict()
    reached = [f"{name} {figures['probes'].get(name, figures.get(name, 0.0))}" for name in report.weak()]
    return Finding(
        "HF-E042",
        "RehearsedTooLittle",
        f"{report.seeds} schedules of {report.protocol!r} on {report.graph!r} say little.",
        why=", ".join(reached),
        effect="no invariant broke, but states in which one could were hardly reached",
        do="more seeds, or a graph with more units",
    )


def _show(report: Report) -> None:
    rate = report.seeds / max(report.seconds, 1e-9)
    line = f"{report.protocol} on {report.graph}: {report.seeds} seeds, {report.broken_seeds} broken, {rate:.0f}/s"
    if sys.stderr.isatty() and report.seeds % 200 == 0:
        print(f"\r{line} ", end="", file=sys.stderr, flush=True)
    elif report.seeds % 2_000 == 0:
        print(line, file=sys.stderr, flush=True)


def _tell(report: Report, *, is_last: bool) -> None:
    """To people on standard error, to programs on standard output, where a terminal gets the last line only."""
    from holdfast.simulation.run import PROBES

    figures = report.as_dict()
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(
        f"{report.protocol} on {report.graph}: {report.seeds:,} schedules, {report.broken_seeds or 'none'} broken, "
        f"{figures['events_mean']:.0f} events and {figures['faults_mean']:.1f} faults each, {report.seconds:.0f} s",
        file=sys.stderr,
    )
    if is_last:
        for name, words in PROBES.items():
            print(f"  {figures['probes'].get(name, 0.0):6.1%} had {words}", file=sys.stderr, flush=True)
    if is_last or not sys.stdout.isatty():
        print(json.dumps(figures), flush=True)


def _known(word: str, words: tuple[str, ...], what: str) -> None:
    if word not in words:
        raise UsageError(
            "HF-C003",
            "UnknownWord",
            f"there is no {what} {word!r}.",
            effect="nothing was simulated",
            do=did_you_mean(word, words),
        )


def _refused(protocol: str, graph: str, why: str) -> UsageError:
    return UsageError(
        "HF-E040",
        "NothingToSimulate",
        f"protocol {protocol!r} does not run on graph {graph!r}.",
        why=why,
        effect="nothing was simulated",
        do="take another graph, or extended, which runs on all",
    )
