"""`python -m holdfast.simulation --protocol P --graph G --seeds N [--first S]`.

Shows progress, tells the story of the first broken schedules with the line that
replays each, and ends with one JSON line. Exit code 1 if an invariant broke or a
rare state was not reached, 2 if the call makes no sense.
"""

from __future__ import annotations

import argparse
import json
import sys

from holdfast.protocols.invariants import ProtocolRefused
from holdfast.simulation.graphs import GRAPHS
from holdfast.simulation.protections import PROTECTIONS
from holdfast.simulation.run import Report, simulate

__all__ = ["main"]

# Below this many seeds a probe of one in a hundred says nothing.
_SEEDS_FOR_PROBES = 1_000


def _show(report: Report) -> None:
    if report.seeds % 200 == 0 and sys.stderr.isatty():
        rate = report.seeds / max(report.seconds, 1e-9)
        print(
            f"\r{report.protocol} on {report.graph}: {report.seeds} seeds, "
            f"{report.broken_seeds} broken, {rate:.0f}/s ",
            end="",
            file=sys.stderr,
            flush=True,
        )
    elif report.seeds % 2_000 == 0:
        print(
            f"{report.protocol} on {report.graph}: {report.seeds} seeds, "
            f"{report.broken_seeds} broken, {report.seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.simulation")
    parser.add_argument("--protocol", required=True, choices=PROTECTIONS)
    parser.add_argument("--graph", required=True, choices=(*GRAPHS, "all"))
    parser.add_argument("--seeds", type=int, default=1_000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=None, help="processes (all cores)")
    args = parser.parse_args(arguments)

    graphs = GRAPHS if args.graph == "all" else (args.graph,)
    share = -(-args.seeds // len(graphs))
    code = 0
    for graph in graphs:
        try:
            seeds = range(args.first, args.first + share)
            report = simulate(args.protocol, graph, seeds, args.workers, _show)
        except ProtocolRefused as refusal:
            if len(graphs) == 1:
                print(f"refused: {refusal}", file=sys.stderr)
                return 2
            continue
        if sys.stderr.isatty():
            print(file=sys.stderr)
        for broken in report.broken:
            print(f"broken: {broken.what}\nreplay: {report.replay_line(broken.seed)}")
            for line in broken.story:
                print(f"  {line}")
        result = report.as_dict()
        if report.seeds >= _SEEDS_FOR_PROBES:
            result["rare"] = report.rare()
            code = max(code, int(bool(report.rare())))
        print(json.dumps(result))
        code = max(code, int(report.broken_seeds > 0))
    return code


if __name__ == "__main__":
    sys.exit(main())
