"""`holdfast verify` and `holdfast chaos`: break a process on purpose and compare with an undisturbed run.

The answer goes to standard output, progress to standard error. Exit 0 when nothing was found
wrong, 4 when a promise was broken, when frames computed another way are not those of the run, or
when nothing was promised and the two runs differ. A fault that never struck is said: what was kept through
the others was not shown for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import render

if TYPE_CHECKING:
    from holdfast.verify.verifying import Ran, Verified

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
    from holdfast.loading import load
    from holdfast.verify.asking import verify as verified

    found = verified(
        load(file),
        faults,
        file=file,
        seed=seed,
        input=input_,
        state=state,
        frames=frames,
        rate=rate,
        oracle=oracle,
        keep=keep,
        say=_progress,
    )
    if as_json:
        answer = {"process": found.process, **found.to_json(), "again": found.again, "report": str(found.report)}
        print(render.as_json(answer))
    else:
        _print_run("ideal", found.ideal, found)
        if oracle.strip().lower() != "none":
            print(f"oracle     frames of the ideal run, computed another way ... {found.oracle_s:.0f} s")
        _print_run("faulty", found.faulty, found)
        for line in _answer(found):
            print(line)
        print(f"again      {found.again}\nreport     {found.report}")
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
    from holdfast.loading import load
    from holdfast.verify.asking import chaos as disturbed

    is_fine = True
    for found in disturbed(
        load(file),
        file=file,
        seed=seed,
        plans=plans,
        only=only,
        input=input_,
        state=state,
        frames=frames,
        rate=rate,
        keep=keep,
        say=_progress,
    ):
        is_fine &= found.is_fine
        if as_json:
            answer = {"process": found.process, "plan": found.number, **found.to_json(), "again": found.again}
            print(render.as_json(answer), flush=True)
        else:
            _print_plan(found)
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


def _print_plan(found: Verified) -> None:
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
    print(f"plan {found.number}: {word}   {hit} of {len(found.plan)} faults hit, "
          f"{render.counted(found.faulty.starts, 'start')}, {found.faulty.seconds:.0f} s")  # fmt: skip
    for fault, struck in zip(found.plan, found.faulty.hit, strict=True):
        print(f"  {'hit' if struck else 'NOT HIT':<8} {fault}")
    for each in broken:
        print(f"  output {each.output}: {each.what} {each.measured}, {each.promised} promised: {each.words}")
    if found.report is not None:
        print(f"  report {found.report}")
    print(f"  again  {found.again}", flush=True)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
