"""Run-time parameters: a logged stream of changes, each with the frame it holds from.

A change is decided once, written and synced, and only then takes effect; every
unit takes the value in force at the frame it works on, and a replay takes the
same one from the log.
"""

from __future__ import annotations

import contextlib
import difflib
import getpass
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import UsageError
from holdfast.graph.model import Param
from holdfast.journals.journal import Journal

__all__ = ["Change", "Config", "now", "user"]


@dataclass(frozen=True, slots=True)
class Change:
    """`name` is `value` (for `key`, where it is declared per key) from `frame` on."""

    n: int
    frame: int
    name: str
    value: Any
    key: str | None = None
    note: str = ""
    who: str = ""
    at: str = ""


class Config:
    def __init__(self, directory: Path, params: tuple[Param, ...]) -> None:
        self._params = {param.name: param for param in params}
        self._journal = Journal(directory, "changes", keep=None, sync=True, counted=True)
        self._lock = threading.Lock()
        self._changes = [Change(**entry) for entry in self._journal.entries()]

    def changes(self) -> list[Change]:
        return list(self._changes)

    def checked(self, name: str, value: Any, key: str | None) -> Any:
        """The value as the parameter's type, or an error that says what would do."""
        param = self._params.get(name)
        if param is None:
            close = difflib.get_close_matches(name, self._params, 1)
            raise _refused(
                f"there is no parameter {name!r}.",
                f"did you mean {close[0]!r}?" if close else f"parameters are: {', '.join(self._params) or 'none'}",
            )
        if key is not None and param.per is None:
            raise _refused(f"parameter {name!r} has one value for all.", f"leave out the key {key!r}")
        kind = type(param.default)
        try:
            if kind is bool and isinstance(value, str):
                cast: Any = {"true": True, "false": False}[value.lower()]
            else:
                cast = kind(value)
        except (TypeError, ValueError, KeyError):
            raise _refused(f"{value!r} is not a value of parameter {name!r}.", f"give a {kind.__name__}") from None
        if cast != cast:  # NaN: equal to nothing, so nobody could tell whether it changed
            raise _refused(f"{value!r} is not a value of parameter {name!r}.", "give a number")
        if param.between is not None and not param.between[0] <= cast <= param.between[1]:
            low, high = param.between
            raise _refused(f"{name} = {cast!r} is out of range.", f"give a value between {low} and {high}")
        return cast

    def set(self, name: str, value: Any, *, frame: int, key: str | None, note: str, who: str, at: str) -> Change:
        cast = self.checked(name, value, key)
        with self._lock:
            change = Change(len(self._changes) + 1, frame, name, cast, key, note, who, at)
            self._journal.append(asdict(change))
            self._changes.append(change)
        return change

    def plan(self, planned: Mapping[int, Mapping[str, Any]], *, who: str, at: str) -> None:
        """Changes known beforehand; those in the log already are not written again."""
        known = {(change.frame, change.name) for change in self._changes}
        for frame, values in sorted(planned.items()):
            for name, value in values.items():
                if (frame, name) not in known:
                    self.set(name, value, frame=frame, key=None, note="planned", who=who, at=at)

    def at(self, frame: int) -> dict[str, dict[str, Any]]:
        """name -> {"value": ..., "per": {key: value}} in force at the frame."""
        values = {name: {"value": param.default, "per": {}} for name, param in self._params.items()}
        # By frame: one that was planned for later is not undone by what was set meanwhile for frames before it.
        for change in sorted(self._changes, key=lambda each: each.frame):
            if change.frame > frame or change.name not in values:
                continue
            if change.key is None:
                values[change.name]["value"] = change.value
            else:
                values[change.name]["per"][change.key] = change.value
        return values


def _refused(what: str, do: str) -> UsageError:
    return UsageError("HF-C010", "ParameterRefused", what, effect="nothing was changed; the run goes on", do=do)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def user() -> str:
    """Who changes a parameter here; "" where the system knows no name."""
    with contextlib.suppress(OSError):
        return getpass.getuser()
    return ""
