"""The command `holdfast`: check, show, run, status, set, stop, doctor; trace, du, clean, quarantine; adopt;
simulate, verify, chaos.

Exit codes: 0 fine, 1 running but degraded (status), 2 usage, 3 check failed,
4 promise broken, 5 unit given up, 6 refused (state in use or unfit, no Java),
70 a defect of ours, 130 second Ctrl-C. Errors appear in the house format; a
traceback of ours goes to a file that the message names.

Imports Spark, pandas and the engine only inside commands that need them:
`holdfast check --no-types` has to answer in less than a second.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from holdfast.cli import adopting, render, setting_aside, simulating, telemonitoring, verifying, watching
from holdfast.errors import Finding, HoldfastError, ProcessRefused, UsageError

__all__ = ["app", "main"]


class _Tidy(typer.core.TyperGroup):
    """Shows every error in the house format, however the app is called."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ProcessRefused as error:
            for finding in error.findings:
                render.print_finding(finding, render.errors())
            raise typer.Exit(error.exit_code) from error
        except HoldfastError as error:
            render.print_finding(error.finding, render.errors())
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except Exception as error:
            # Typer's own (usage, exit) and a closed pipe (`| head`) are ended by typer.
            if type(error).__module__.startswith("typer.") or isinstance(error, BrokenPipeError):
                raise
            raise typer.Exit(_defect(error)) from error


app = typer.Typer(
    cls=_Tidy,
    help="Stream processes on PySpark that keep their promises.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

File = Annotated[str, typer.Argument(metavar="FILE", help="Python file with the process; FILE:name if it has several")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output")]
State = Annotated[Path | None, typer.Option("--state", metavar="DIR", help="state folder (default: .holdfast/NAME)")]


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"holdfast {version('holdfast')}, pyspark {version('pyspark')}, Python {sys.version.split()[0]}")
        raise typer.Exit


@app.callback()
def everywhere(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="versions of Holdfast, PySpark and Python"
        ),
    ] = False,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="settings of [profile.NAME] in holdfast.toml")
    ] = None,
) -> None:
    """Stream processes on PySpark that keep their promises."""
    if profile is not None:
        import os

        os.environ["HOLDFAST_PROFILE"] = profile  # as if it had been said there: every command reads it


@app.command()
def doctor(
    as_json: Json = False,
    start: Annotated[bool, typer.Option(help="start a Spark session and time it")] = True,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="make the class archive first (a minute): sessions then open more quickly")
    ] = False,
) -> None:
    """Versions, Java, disk; starts a session once and times it."""
    from holdfast.cli.doctor import examine, report_lines

    report = examine(start=start, prepare=prepare, say=None if as_json else _progress_line)
    if as_json:
        print(render.as_json(report))
    else:
        render.console().print("\n".join(report_lines(report)))
    raise typer.Exit(0 if report["fine"] else 6)


@app.command()
def check(
    file: File,
    as_json: Json = False,
    types: Annotated[bool, typer.Option(help="check types too (needs Java, takes seconds)")] = True,
) -> None:
    """Check structure and types. Opens no source and no sink."""
    began = time.perf_counter()
    process = _load(file)
    findings, seconds = _findings(process, types=False), {"structure": time.perf_counter() - began}
    if types and all(finding.warning for finding in findings):
        began = time.perf_counter()
        findings, seconds["types"] = _findings(process, types=True), time.perf_counter() - began
    failed = sum(not finding.warning for finding in findings)
    if as_json:
        print(render.as_json({"process": process.name, "fine": not failed, "findings": findings, "seconds": seconds}))
    else:
        _print_report(file, process, findings, seconds)
    raise typer.Exit(3 if failed else 0)


@app.command()
def show(
    file: File,
    svg: Annotated[Path | None, typer.Option(metavar="OUT", help="write the drawing to this file")] = None,
    as_json: Json = False,
) -> None:
    """Draw the graph, the units it is cut into, and why."""
    from holdfast.graph.drawing import as_svg, as_text
    from holdfast.graph.units import cut

    graph = _load(file).graph()
    units = cut(graph)
    print(render.as_json(render.graph_fields(graph, units)) if as_json else as_text(graph, units))
    if svg is not None:
        svg.write_text(as_svg(graph, units), encoding="utf-8")
        _progress_line(f"drawing in {svg}")


@app.command()
def run(
    file: File,
    fresh: Annotated[
        list[str] | None, typer.Option(metavar="OP", help="this changed operator starts with empty state")
    ] = None,
    keep: Annotated[list[str] | None, typer.Option(metavar="OP", help="this changed operator keeps its state")] = None,
    state: State = None,
    rate: Annotated[
        str | None, typer.Option(metavar="R", help='pace: "as recorded", 10x, fast, or rows a second')
    ] = None,
    until_frame: Annotated[int | None, typer.Option(metavar="N", help="stop after frame N")] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="settings of [profile.NAME] in holdfast.toml")
    ] = None,
    from_frame: Annotated[int | None, typer.Option(metavar="N", help="replay from this frame on, with --into")] = None,
    from_time: Annotated[
        str | None, typer.Option(metavar="T", help="replay from the frame of this time on, with --into")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="N|T", help="replay up to this frame or time, with --into")
    ] = None,
    into: Annotated[
        str | None, typer.Option(metavar="TABLE|DIR/", help="replay kept input into this table or folder")
    ] = None,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="serve /metrics and /healthz there")] = None,
    metrics_open: Annotated[bool, typer.Option("--metrics-open", help="HOST may be one that others can reach")] = False,
    as_json: Json = False,
) -> None:
    """Run a process. Until its input ends, Ctrl-C (stops after the frame), or `holdfast stop`."""
    from holdfast.cli.running import replay_until_done, run_until_done

    process = _load(file)
    if into is not None or from_frame is not None or from_time is not None or until is not None:
        asked = {"into": into, "from_frame": from_frame, "from_time": from_time, "until": until}
        said = {
            "state": state,
            "rate": rate,
            "profile": profile,
            "metrics": metrics,
            "metrics_open": metrics_open or None,
        }
        decided = {"--fresh": fresh, "--keep": keep, "--until-frame": until_frame}
        raise typer.Exit(replay_until_done(process, file, asked, said, decided, as_json=as_json))
    raise typer.Exit(
        run_until_done(
            process,
            file,
            as_json=as_json,
            state=state,
            fresh=tuple(fresh or ()),
            keep=tuple(keep or ()),
            rate=rate,
            until_frame=until_frame,
            profile=profile,
            metrics=metrics,
            metrics_open=metrics_open or None,
        )
    )


@app.command()
def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME|FILE]", help="process; all below .holdfast when left out")
    ] = None,
    state: State = None,
    edges: Annotated[
        bool, typer.Option("--edges", help="every edge: who is where, and whether it is consistent")
    ] = False,
    as_json: Json = False,
) -> None:
    """What a running process does; whether it keeps promises."""
    from holdfast.cli.reaching import ask_all, state_dirs

    folders = state_dirs(name, state)
    answers = ask_all(folders, {"do": "status"})
    if edges:
        for answer, each in zip(answers, ask_all(folders, {"do": "edges"}), strict=True):
            answer["edges"] = each["edges"]
    if as_json:
        print(render.as_json(answers[0] if len(answers) == 1 else answers))
    else:
        for answer in answers:
            render.print_status(answer, render.console())
            for line in render.edge_lines(answer["edges"]) if edges else ():
                print(line)
    raise typer.Exit(1 if any(render.is_degraded(answer) for answer in answers) else 0)


@app.command("set")
def set_(
    file: File,
    values: Annotated[list[str] | None, typer.Argument(metavar="name=value ...")] = None,
    for_key: Annotated[
        str | None, typer.Option("--for", metavar="KEY", help="only for this key (parameters with per=)")
    ] = None,
    note: Annotated[str, typer.Option(help="why, for the log")] = "",
    log: Annotated[bool, typer.Option("--log", help="show the changes so far")] = False,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Change parameters of a running process. Says from which frame on they hold."""
    from holdfast.cli.reaching import ask, assignments, change_log, state_dirs

    folder = state_dirs(file, state)[0]
    changes = assignments(values or [])
    answer: dict[str, Any] = {}
    if changes:
        answer = ask(folder, {"do": "set", "values": changes, "key": for_key, "note": note})
    elif not log:
        raise UsageError(
            "HF-E011",
            "NothingToSet",
            "no parameter was given.",
            effect="nothing was changed",
            do="holdfast set FILE name=value, or --log for the changes so far",
        )
    if log:
        answer["log"] = change_log(folder)
    if as_json:
        print(render.as_json(answer))
        return
    if changes:
        names = ", ".join(f"{name} = {value}" for name, value in changes.items())
        whom = f" for {for_key}" if for_key else ""
        print(f"{names}{whom} from frame {answer['frame']:,} on")
    for entry in answer.get("log", ()):
        whom = f" for {entry['key']}" if entry["key"] else ""
        note = f"   {entry['note']}" if entry["note"] else ""
        print(
            f"{entry['at']}  frame {entry['frame']:,}  {entry['name']} = {entry['value']}{whom}  {entry['who']}{note}"
        )


@app.command()
def stop(file: File, state: State = None, as_json: Json = False) -> None:
    """Stop a running process after its frame."""
    from holdfast.cli.reaching import ask, state_dirs

    answer = ask(state_dirs(file, state)[0], {"do": "stop"})
    print(render.as_json(answer) if as_json else "stops after this frame")


watching.add_to(app)
setting_aside.add_to(app)
adopting.add_to(app)
simulating.add_to(app)
verifying.add_to(app)
app.add_typer(telemonitoring.app, name="demo")


def _load(file: str) -> Any:
    from holdfast.declare.loading import load

    return load(file)


def _findings(process: Any, *, types: bool) -> list[Finding]:
    try:
        return process.check(types=types)
    except ProcessRefused as error:
        return error.findings


def _print_report(file: str, process: Any, findings: list[Finding], seconds: dict[str, float]) -> None:
    out, graph = render.console(), process.graph()
    parts = [
        render.counted(len(graph.sources), "source"),
        render.counted(len(graph.operators), "operator"),
        render.counted(len(graph.sinks), "sink"),
    ]
    out.print(f"{file}: stream process '{process.name}', {', '.join(parts)}", markup=False)
    for finding in findings:
        out.print()
        render.print_finding(finding, out)
    failed = sum(not finding.warning for finding in findings)
    found = [render.counted(failed, "error")] if failed else []
    found += [render.counted(len(findings) - failed, "warning")] if len(findings) > failed else []
    times = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    if findings:
        out.print()
    out.print(f"{', '.join(found) or 'fine'} ({times})", markup=False)


def _progress_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """The console script."""
    try:
        app()
    except SystemExit as end:
        _leave(end)


def _leave(end: SystemExit) -> NoReturn:
    """All that is done at an end, but for taking the interpreter down.

    Then, a thread of the background that comes out of a library in C++ is ended in the middle of it, and the whole
    process with it: "terminate called without an active exception", with exit code 134 for whatever it was.
    """
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does: threads that are waited for, what is registered, what is still to be written
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it any more
            stream.flush()
    os._exit(code)


def _defect(error: Exception) -> int:
    """An exception nobody foresaw: ours. The traceback goes to a file, the user gets the story."""
    import tempfile
    import traceback

    from holdfast.redaction import redacted

    with tempfile.NamedTemporaryFile("w", prefix="holdfast-", suffix=".traceback", delete=False) as file:
        file.write(redacted(traceback.format_exc()))
    finding = Finding(
        "HF-E012",
        "Defect",
        f"{type(error).__name__}: {error}".splitlines()[0],
        where=f"traceback in {file.name}",
        why="Holdfast met something it did not foresee",
        effect="the run stopped here; sealed frames and sink tables are as they were",
        do="this is a defect of Holdfast: report it with that file; a new run resumes",
    )
    render.print_finding(finding, render.errors())
    return 70
