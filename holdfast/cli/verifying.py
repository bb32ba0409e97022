"""`holdfast verify` and `holdfast chaos`: break a process on purpose and compare with an undisturbed run.

The answer goes to standard output, progress to standard error. Exit 0 when nothing was found
wrong, 4 when a promise was broken, when frames computed another way are not those of the run, or
when nothing was promised and the two runs differ. A fault that never struck is said: what was kept through
the others was not shown for it.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.verify.verifying import Bench, Ran, Verified

__all__ = ["add_to"]

File = Annotated[str, typer.Argument(metavar="FILE", help="Python file with the process; FILE:name if it has several")]
Frames = Annotated[int | None, typer.Option(metavar="N", help="run the first N frames only")]
Rate = Annotated[
    str | None, typer.Option(metavar="R", help='pace: "as recorded" (where a delay is promised), 10x, fast')
]
Input = Annotated[
    str | None,
    typer.Option("--input", metavar="log[:last-T]", help="take the input from the source log of its state folder"),
]
State = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="that state folder (default: .holdfast/NAME)")
]
Keep = Annotated[Path | None, typer.Option(metavar="DIR", help="leave states, outputs and logs of the runs here")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output")]


def add_to(app: typer.Typer) -> None:
    app.command()(verify)
    app.command()(chaos)


def verify(
    file: File,
    faults: Annotated[Path, typer.Option(metavar="PLAN", help="TOML file with [[fault]] tables")],
    seed: Annotated[int, typer.Option(metavar="S", help="draws what the plan leaves open")] = 0,
    input_: Input = None,
    state: State = None,
    frames: Frames = None,
    rate: Rate = None,
    oracle: Annotated[
        str,
        typer.Option(metavar="all|N|none", help="frames of each output that are computed a second time, another way"),
    ] = "8",
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Run a process undisturbed and through a fault plan. Says which promises were kept."""
    from holdfast.declare.loading import load
    from holdfast.faults.plans import Victims, fitted, parsed
    from holdfast.oracle.asking import asked_for, not_asked

    asked = asked_for(oracle)
    graph = load(file).graph()
    plan = fitted(parsed(_text(faults), str(faults)), Victims.of(graph), str(faults))
    again = _again(
        "verify",
        file,
        input=input_,
        state=state,
        faults=faults,
        seed=seed,
        frames=frames,
        rate=rate,
        oracle=None if oracle == "8" else oracle,
    )
    with _bench(graph, file, keep, input_, state, until=frames, rate=rate) as bench:
        ideal = bench.ideal(keep_all=asked is not None)
        recomputed = not_asked(graph) if asked is None else bench.recompute(ideal, asked, seed)
        found = bench.compare(ideal, bench.settled(plan, ideal, seed), recomputed=recomputed)
        report = _reported(graph, found, again)
    if as_json:
        print(render.as_json({"process": graph.name, **found.to_json(), "again": again, "report": str(report)}))
    else:
        _print_run("ideal", ideal, found)
        if asked is not None:
            print(f"oracle     frames of the ideal run, computed another way ... {found.oracle_s:.0f} s")
        _print_run("faulty", found.faulty, found)
        for line in _answer(found):
            print(line)
        print(f"again      {again}\nreport     {report}")
    raise typer.Exit(0 if found.is_fine else 4)


def chaos(
    file: File,
    seed: Annotated[int, typer.Option(metavar="S", help="draws the plans")] = 0,
    plans: Annotated[int, typer.Option(metavar="N", min=1, help="how many plans of one to three faults")] = 5,
    only: Annotated[int | None, typer.Option(metavar="K", min=1, help="only plan K of this seed")] = None,
    input_: Input = None,
    state: State = None,
    frames: Frames = None,
    rate: Rate = None,
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Run a process through random fault plans. Each can be repeated by its line."""
    from holdfast.declare.loading import load
    from holdfast.faults.plans import drawn_plan

    graph = load(file).graph()
    is_fine = True
    with _bench(graph, file, keep, input_, state, until=frames, rate=rate) as bench:
        ideal = bench.ideal()
        last = bench.last_with_input(ideal)
        for number in [only] if only is not None else range(1, plans + 1):
            plan = drawn_plan(bench.victims, bench.first, last, Random(f"{seed}/{number}"))
            again = _again("chaos", file, input=input_, state=state, seed=seed, only=number, frames=frames, rate=rate)
            found = bench.compare(ideal, plan, f"plan-{number}")
            is_fine &= found.is_fine
            report = _reported(graph, found, again) if not found.is_fine or only is not None else None
            if as_json:
                print(
                    render.as_json({"process": graph.name, "plan": number, **found.to_json(), "again": again}),
                    flush=True,
                )
            else:
                _print_plan(number, found, again, report)
    if not as_json:
        print(_survives())
    raise typer.Exit(0 if is_fine else 4)


# ---- what is said ----


def _print_run(name: str, ran: Ran, found: Verified) -> None:
    words = f"{name + ' run':<11}{ran.frames:,} frames {found.pace} ... {ran.seconds:.0f} s"
    if name == "faulty":
        hit = sum(ran.hit)
        words += f"   {hit} of {len(found.plan)} faults hit, {render.counted(ran.starts, 'start')}, {render.counted(ran.deaths, 'unit death')}"
    print(words)


def _answer(found: Verified) -> Iterator[str]:
    from holdfast.levels.judging import judge_recomputed
    from holdfast.oracle.asking import told

    for fault, hit in zip(found.plan, found.faulty.hit, strict=True):
        yield f"  {'hit' if hit else 'NOT HIT':<8} {fault}"
    if found.faulty.exit_code:
        yield f"  the faulty run never finished: exit {found.faulty.exit_code} each time; what it has not written counts as lost"
        yield from (f"    {line}" for line in found.faulty.said.splitlines())
    widths = [
        max([len(each.measured) for each in found.verdicts] + [8]),
        max([len(each.promised) for each in found.verdicts] + [8]),
    ]
    for measured in found.measured:
        head = f"output {measured.output}"
        yield f"{head:<18}{'promised':<{widths[1]}}   {'measured':<{widths[0]}}   verdict"
        for each in found.verdicts:
            if each.output == measured.output:
                yield f"  {each.what:<16}{each.promised or '-':<{widths[1]}}   {each.measured:<{widths[0]}}   {each.words}"
    between = [line for line in found.recomputed if not line.output]
    if between:
        yield "between units"
    for line in between:
        yield f"  {line.stream:<16}{line.words:<{sum(widths) + 3}}   {judge_recomputed(line).words}"
    yield from (str(error) for error in told(found.recomputed))
    yield f"answer     {found.answer}"
    yield _survives()


def _survives() -> str:
    from holdfast.verify.verifying import SURVIVES

    return f"survives   {SURVIVES}"


def _print_plan(number: int, found: Verified, again: str, report: Path | None) -> None:
    broken = [each for each in found.verdicts if each.state == "BROKEN"]
    hit = sum(found.faulty.hit)
    word = (
        "BROKEN"
        if broken
        else "kept"
        if found.is_promised
        else "DIFFERS, nothing promised"
        if found.differs
        else "same, nothing promised"
    )
    print(f"plan {number}: {word}   {hit} of {len(found.plan)} faults hit, "
          f"{render.counted(found.faulty.starts, 'start')}, {found.faulty.seconds:.0f} s")  # fmt: skip
    for fault, struck in zip(found.plan, found.faulty.hit, strict=True):
        print(f"  {'hit' if struck else 'NOT HIT':<8} {fault}")
    for each in broken:
        print(f"  output {each.output}: {each.what} {each.measured}, {each.promised} promised: {each.words}")
    if report is not None:
        print(f"  report {report}")
    print(f"  again  {again}", flush=True)


# ---- what is done ----


@contextmanager
def _bench(
    graph: Any, file: str, keep: Path | None, words: str | None, state: Path | None, **settings: Any
) -> Iterator[Bench]:
    from holdfast.faults.inputs import log_input
    from holdfast.verify.verifying import Bench

    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(
            "HF-E054", "FolderNotEmpty", f"{keep} is not empty.", why="a verified run begins with nothing",
            effect="nothing was started", do="name another folder, or remove it",
        )  # fmt: skip
    log = None if words is None else log_input(words, graph, _state_of(graph, state))
    with tempfile.TemporaryDirectory(prefix="holdfast-verify-", ignore_cleanup_errors=True) as temporary:
        yield Bench(
            graph, file, keep.absolute() if keep is not None else Path(temporary), log=log, say=_progress, **settings
        )


def _state_of(graph: Any, state: Path | None = None) -> Path:
    """As `run` would take it: said, in the profile, declared, or .holdfast/NAME."""
    from holdfast.engine.profile import load_profile
    from holdfast.engine.state_folder import state_folder

    return state_folder(graph, state or load_profile(beside=graph.base).state)


def _reported(graph: Any, found: Verified, again: str) -> Path:
    from holdfast.verify.report import page, write_report

    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    return write_report(_state_of(graph) / "reports", stamp, page(graph.name, found, again))


def _text(plan: Path) -> str:
    try:
        return plan.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "HF-E050", "PlanUnreadable", "the fault plan cannot be read.", where=str(plan), why=str(error),
            effect="nothing was started", do="name a TOML file: --faults faults/two_hits.toml",
        ) from None  # fmt: skip


def _again(verb: str, file: str, **options: Any) -> str:
    said = [f"--{name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    return " ".join([f"holdfast {verb} {shlex.quote(file)}", *said])


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
