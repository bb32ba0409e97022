"""From what the user names to the state folder, and from there to the running process.

A process is named by its file, by its name, or by its state folder. Reads the
state folder and asks the run that holds it; never writes there.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, StateRefused, UsageError

__all__ = ["ask", "ask_all", "assignments", "change_log", "state_dirs"]

FOLDER = Path(".holdfast")


def state_dirs(named: str | None, state: Path | None = None) -> list[Path]:
    """The state folders meant: given, of a file, of a name; without any, all that are here."""
    if state is not None:
        return [state]
    if named is None:
        # A replay is looked at by its name: it would stand beside its original wherever that is meant.
        found = sorted(
            note.parent for note in FOLDER.glob("*/deployment.json") if not (note.parent / "replay.json").exists()
        )
        if not found:
            raise _nothing_here("no process has run in this folder.", f"{FOLDER}/ has no state folder")
        return found
    if _is_file(named):
        from holdfast.declare.loading import load
        from holdfast.engine.profile import load_profile
        from holdfast.engine.state_folder import state_folder

        graph = load(named).graph()
        return [state_folder(graph, load_profile(beside=graph.base).state)]
    if not (FOLDER / named).is_dir():
        known = ", ".join(sorted(path.parent.name for path in FOLDER.glob("*/deployment.json")))
        raise _nothing_here(f"no process {named!r} has run in this folder.", f"known here: {known or 'none'}")
    return [FOLDER / named]


def _is_file(named: str) -> bool:
    return named.partition(":")[0].endswith(".py") or Path(named).is_file()


def _nothing_here(what: str, why: str) -> UsageError:
    return UsageError(
        "HF-E010",
        "NothingHere",
        what,
        where=str(Path.cwd()),
        why=why,
        effect="no run was reached, nothing was changed",
        do="go to the folder it was started in, or say --state DIR",
    )


def ask(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """One question to the run that holds the folder; its error becomes ours."""
    from holdfast.engine.observe.control import call

    answer = call(folder.absolute(), request)
    if "error" in answer and "exit" in answer:
        raise _told(answer)
    return answer


def ask_all(folders: list[Path], request: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that run; the error of the last one if none does."""
    answers, silent = [], None
    for folder in folders:
        try:
            answers.append(ask(folder, request))
        except UsageError as error:
            if error.code != "HF-U040":
                raise
            silent = error
    if not answers and silent is not None:
        raise silent
    return answers


def _told(answer: dict[str, Any]) -> HoldfastError:
    """An error the run answered with, as it stood there: header line, then fields."""
    kind = StateRefused if answer["exit"] == 6 else UsageError if answer["exit"] == 2 else HoldfastError
    head, *rest = str(answer["error"]).splitlines() or [""]
    code = answer.get("code") or "HF-E013"
    name, _, what = head.removeprefix(code).strip().partition(": ")
    if not what:
        name, what = "NotUnderstood", head
    fields = {}
    for line in rest:
        key, _, text = line.strip().partition(" ")
        if key in ("where", "why", "effect", "do"):
            fields[key] = text.strip()
    return kind(code, name, what, **fields)


def assignments(words: list[str]) -> dict[str, Any]:
    """`limit=75 mode=night` as values; the run casts them to the parameter's type."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(
                "HF-E011",
                "NothingToSet",
                f"{word!r} is not name=value.",
                effect="nothing was changed",
                do="holdfast set FILE limit=75",
            )
        values[name] = value
    return values


def change_log(folder: Path) -> list[dict[str, Any]]:
    """All changes so far, of a process that runs or not."""
    from holdfast.engine.flow.parameters import Config

    if not (folder / "config").is_dir():
        return []
    return [asdict(change) for change in Config(folder / "config", ()).changes()]
