"""Where and how a process runs, apart from what it does: `holdfast.toml` and HOLDFAST_*.

    [default]                       # holds for every run
    heap = "2g"

    [profile.ward]                  # holds with --profile ward, or HOLDFAST_PROFILE=ward
    state = "/var/lib/holdfast/ward"
    metrics = "127.0.0.1:9464"

What is said nearer to the run wins: an argument (`--rate`, `start(rate=...)`), then
HOLDFAST_RATE, then the profile, then [default], then what the process's file declares,
then Holdfast's own. The file is `holdfast.toml` in the current folder, else beside the
process's file; HOLDFAST_CONFIG names another one. A file that somebody else can have written is
ignored with a note, unless HOLDFAST_CONFIG names it. A key nobody knows is an error: a
misspelt one would otherwise be a setting that silently does not hold.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from holdfast.engine.trusted import distrusted
from holdfast.errors import UsageError
from holdfast.graph.model import Graph

__all__ = ["FILE_NAME", "Profile", "load_profile"]

FILE_NAME = "holdfast.toml"
_PREFIX = "HOLDFAST_"
# Read elsewhere: which file and profile, and two switches that belong to a machine and to tests.
_OTHER_VARIABLES = {"PROFILE", "CONFIG", "DISK_RESERVE", "FAULTS"}
_HEAP = re.compile(r"\d+[kmgKMG]")


@dataclass(frozen=True)
class Profile:
    """None: not said here."""

    state: str | None = None  # the state folder; relative to the folder of the file that says it
    master: str | None = None  # Spark's master, as in "local[4,3]"
    heap: str | None = None  # memory of Spark's driver, as in "2g"
    metrics: str | None = None  # HOST:PORT of /metrics and /healthz
    metrics_open: bool | None = None  # allow a HOST that others can reach
    rate: str | float | None = None  # pace of recorded sources
    values: str | None = None  # "show" | "hide"
    alerts: str | None = None  # command or address told when the run degrades
    origins: tuple[tuple[str, str], ...] = ()  # (key, where it was said)
    notes: tuple[str, ...] = ()  # what the user has to hear about them

    def applied_to(self, graph: Graph) -> Graph:
        """The graph with what a profile may change about it: nothing that decides a frame."""
        changes: dict[str, Any] = {}
        # Hiding can be added from outside, not taken away.
        if self.values == "hide":
            changes["values"] = "hide"
        if self.alerts is not None:
            changes["on_degraded"] = self.alerts
        return replace(graph, **changes) if changes else graph

    def with_said(self, said: Mapping[str, Any]) -> Profile:
        """What was said as an argument wins; None says nothing."""
        given = {key: value for key, value in said.items() if value is not None}
        for key in said:
            if key not in KEYS:
                raise _unknown(key, KEYS, "arguments of start()", "setting")
        checked = {key: _checked(key, value, f"{key}=", Path.cwd()) for key, value in given.items()}
        return replace(self, **checked, origins=(*self.origins, *((key, "argument") for key in checked)))

    def spark_conf(self) -> dict[str, str]:
        said = {"spark.driver.memory": self.heap, "spark.master": self.master}
        return {key: value for key, value in said.items() if value is not None}


KEYS = tuple(field.name for field in fields(Profile) if field.name not in ("origins", "notes"))


def load_profile(
    name: str | None = None,
    *,
    beside: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    here: Path | None = None,
) -> Profile:
    """`beside`: the folder of the process's file."""
    environ = os.environ if environ is None else environ
    here = Path.cwd() if here is None else here
    name = name or environ.get("HOLDFAST_PROFILE") or None
    notes: list[str] = []
    file = _file(environ, here, None if beside is None else Path(beside), notes)
    said: dict[str, tuple[Any, str]] = {}
    if file is not None:
        for table, origin in _tables(file, name):
            said |= {key: (_checked(key, value, origin, file.parent), origin) for key, value in table.items()}
    elif name is not None:
        why = "; ".join(notes) or f"no {FILE_NAME} was found"
        raise _refused(f"there is no profile {name!r}.", str(here), why, f"write one with [profile.{name}]")
    said |= _from_environment(environ, here)
    origins = tuple((key, origin) for key, (_, origin) in said.items())
    return Profile(**{key: value for key, (value, _) in said.items()}, origins=origins, notes=tuple(notes))


def _file(environ: Mapping[str, str], here: Path, beside: Path | None, notes: list[str]) -> Path | None:
    """One that is named is taken; one that is found is taken if nobody else can have written it."""
    if named := environ.get("HOLDFAST_CONFIG"):
        if not (here / named).is_file():
            raise _refused(
                "the file of settings is not there.", named, "HOLDFAST_CONFIG names it", "correct the path, or unset it"
            )
        return here / named
    for folder in dict.fromkeys((here, beside)):
        if folder is None or not (folder / FILE_NAME).is_file():
            continue
        if not (why := distrusted(folder / FILE_NAME)):
            return folder / FILE_NAME
        notes.append(
            f"{folder / FILE_NAME} was ignored: {why}; if it is yours, name it: HOLDFAST_CONFIG={folder / FILE_NAME}"
        )
    return None


def _tables(file: Path, name: str | None) -> list[tuple[dict[str, Any], str]]:
    try:
        whole = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _refused(
            "the file of settings cannot be read.", str(file), str(error), "correct it: it is TOML"
        ) from None
    for word in whole:
        if word not in ("default", "profile"):
            raise _unknown(word, ("default", "profile"), str(file), "section")
    profiles = whole.get("profile", {})
    # A misspelt key in a profile nobody asked for today is found today.
    for origin, table in (
        ("default", whole.get("default", {})),
        *((f"profile.{each}", own) for each, own in profiles.items()),
    ):
        if not isinstance(table, dict):
            raise _refused(
                f"[{origin}] is no section.", str(file), f"it is {table!r}", f"write [{origin}] and keys below it"
            )
        for key in table:
            if key not in KEYS:
                raise _unknown(key, KEYS, f"{file}, [{origin}]", "key")
    found = [(whole.get("default", {}), f"{file} [default]")]
    if name is not None:
        if name not in profiles:
            raise _unknown(name, tuple(profiles), str(file), "profile")
        found.append((profiles[name], f"{file} [profile.{name}]"))
    return found


def _from_environment(environ: Mapping[str, str], here: Path) -> dict[str, tuple[Any, str]]:
    said: dict[str, tuple[Any, str]] = {}
    for variable, text in environ.items():
        if not variable.startswith(_PREFIX):
            continue
        word = variable.removeprefix(_PREFIX)
        if word in _OTHER_VARIABLES or word.startswith("TEST_"):
            continue  # the second kind is for tests: ours, and yours
        key = word.lower()
        if key not in KEYS or word != word.upper():
            known = tuple(f"{_PREFIX}{each.upper()}" for each in KEYS) + tuple(
                f"{_PREFIX}{each}" for each in _OTHER_VARIABLES
            )
            raise _unknown(variable, known, "the environment", "variable")
        if text == "":
            continue  # unset, as shells and service files write it
        value: Any = text
        if key == "metrics_open":
            value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
        said[key] = (_checked(key, value, variable, here), variable)
    return said


def _checked(key: str, value: Any, origin: str, base: Path) -> Any:
    """The value in its type; paths are meant from where they are written."""
    if key == "metrics_open":
        if isinstance(value, bool):
            return value
        raise _refused(f"metrics_open = {value!r} is neither true nor false.", origin, "", "write true or false")
    if key == "rate":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                return value
    if not isinstance(value, str) or not value.strip():
        raise _refused(f"{key} = {value!r} is no text.", origin, "", f'write {key} = "..."')
    if key == "state":
        return str(base / value)
    if key == "values" and value not in ("show", "hide"):
        raise _refused(f"values = {value!r} is not known.", origin, "", 'write values = "show" or "hide"')
    if key == "heap" and not _HEAP.fullmatch(value):
        raise _refused(f"heap = {value!r} is no size.", origin, "", 'write heap = "2g", or "800m"')
    return value


def _unknown(word: str, known: tuple[str, ...], where: str, kind: str) -> UsageError:
    close = difflib.get_close_matches(word, known, 1)
    do = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(known) or 'none'}"
    return _refused(f"there is no {kind} {word!r}.", where, "", do)


def _refused(what: str, where: str, why: str, do: str) -> UsageError:
    return UsageError("HF-E022", "SettingRefused", what, where=where, why=why, effect="nothing was started", do=do)
