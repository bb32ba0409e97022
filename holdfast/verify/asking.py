"""`process.verify`, `process.chaos` and the commands of those names: from what is asked to what was found.

Runs are os processes that load the process's file again, in a folder of their own: the user's
state folder and sinks are not touched. What was found says how to ask the same again.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from holdfast.engine.profile import load_profile
from holdfast.engine.state_folder import state_folder
from holdfast.errors import UsageError
from holdfast.faults.inputs import log_input
from holdfast.faults.plans import Fault, Victims, drawn_plan, fitted, parsed, parsed_tables
from holdfast.graph.model import Declares, Graph
from holdfast.oracle.asking import FRAMES, asked_for, not_asked
from holdfast.verify.report import page, write_report
from holdfast.verify.verifying import Bench, Verified

__all__ = ["Faults", "bench", "chaos", "verify"]

# A TOML file, or its [[fault]] tables: [{"do": "kill unit", "unit": "alarms", "frame": 41}].
Faults = str | os.PathLike[str] | Sequence[Mapping[str, object]]


def verify(
    process: Declares,
    faults: Faults,
    *,
    file: str = "",
    seed: int = 0,
    input: str | None = None,
    state: str | os.PathLike[str] | None = None,
    frames: int | None = None,
    rate: str | None = None,
    oracle: str | int = FRAMES,
    keep: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Verified:
    """One plan. `file`: how the process's file is named to the runs and in `again`; its own when empty."""
    file, graph = file or _file_of(process), process.graph()
    asked = asked_for(str(oracle))
    plan, named = _plan(faults, Victims.of(graph))
    again = _again("verify", file, input=input, state=state, faults=named, seed=seed, frames=frames, rate=rate,
                   oracle=None if str(oracle) == str(FRAMES) else oracle)  # fmt: skip
    with bench(graph, file, keep, input, state, until=frames, rate=rate, say=say) as made:
        ideal = made.ideal(keep_all=asked is not None)
        recomputed = not_asked(graph) if asked is None else made.recompute(ideal, asked, seed)
        found = made.compare(ideal, made.settled(plan, ideal, seed), recomputed=recomputed)
        found = replace(found, process=graph.name, again=again if named is not None else "")
        return replace(found, report=_reported(graph, found))


def chaos(
    process: Declares,
    *,
    file: str = "",
    seed: int = 0,
    plans: int = 5,
    only: int | None = None,
    input: str | None = None,
    state: str | os.PathLike[str] | None = None,
    frames: int | None = None,
    rate: str | None = None,
    keep: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Verified]:
    """One answer a plan, each as soon as it is known."""
    file, graph = file or _file_of(process), process.graph()
    with bench(graph, file, keep, input, state, until=frames, rate=rate, say=say) as made:
        ideal = made.ideal()
        last = made.last_with_input(ideal)
        for number in [only] if only is not None else range(1, plans + 1):
            plan = drawn_plan(made.victims, made.first, last, Random(f"{seed}/{number}"))
            again = _again("chaos", file, input=input, state=state, seed=seed, only=number, frames=frames, rate=rate)
            found = made.compare(ideal, plan, f"plan-{number}")
            found = replace(found, process=graph.name, again=again, number=number)
            is_reported = not found.is_fine or only is not None
            yield replace(found, report=_reported(graph, found)) if is_reported else found


@contextmanager
def bench(
    graph: Graph,
    file: str,
    keep: str | os.PathLike[str] | None = None,
    input: str | None = None,
    state: str | os.PathLike[str] | None = None,
    *,
    until: int | None = None,
    rate: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Bench]:
    """A place for runs that are compared: `keep`, or a folder that goes with them."""
    kept = None if keep is None else Path(keep)
    if kept is not None and kept.exists() and any(kept.iterdir()):
        raise UsageError(
            "HF-E054", "FolderNotEmpty", f"{kept} is not empty.", why="a verified run begins with nothing",
            effect="nothing was started", do="name another folder, or remove it",
        )  # fmt: skip
    log = None if input is None else log_input(input, graph, _state_of(graph, state))
    with tempfile.TemporaryDirectory(prefix="holdfast-verify-", ignore_cleanup_errors=True) as temporary:
        folder = kept.absolute() if kept is not None else Path(temporary)
        yield Bench(graph, file, folder, log=log, until=until, rate=rate, say=say)


def _file_of(process: Declares) -> str:
    if process.file:
        return process.file
    raise UsageError(
        "HF-E053", "CannotVerify", f"process {process.name!r} is not declared in a file.",
        why="both runs are os processes of their own, which load the file again; at a prompt or in a notebook there is none",
        effect="nothing was started", do="put the declaration into a .py file and import the process from there",
    )  # fmt: skip


def _plan(faults: Faults, victims: Victims) -> tuple[list[Fault], str | None]:
    """The plan, and the name of its file if it has one."""
    if not isinstance(faults, str | os.PathLike):
        return fitted(parsed_tables(list(faults), "faults="), victims, "faults="), None
    named = os.fspath(faults)
    try:
        text = Path(named).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "HF-E050", "PlanUnreadable", "the fault plan cannot be read.", where=named, why=str(error),
            effect="nothing was started", do="name a TOML file: --faults faults/two_hits.toml",
        ) from None  # fmt: skip
    return fitted(parsed(text, named), victims, named), named


def _state_of(graph: Graph, state: str | os.PathLike[str] | None = None) -> Path:
    """As `run` would take it: said, in the profile, declared, or .holdfast/NAME."""
    return state_folder(graph, state or load_profile(beside=graph.base).state)


def _reported(graph: Graph, found: Verified) -> Path:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    return write_report(_state_of(graph) / "reports", stamp, page(graph.name, found, found.again))


def _again(verb: str, file: str, **options: object) -> str:
    said = [f"--{name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    return " ".join([f"holdfast {verb} {shlex.quote(file)}", *said])
