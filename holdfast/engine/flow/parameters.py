"""Run-time parameters: a logged stream of changes, each with the frame it holds from.

A change is decided once, written and synced, and only then takes effect; every
unit takes the value in force at the frame it works on, and a replay takes the
same one from the log. So does what the process declares: edited between two runs,
it holds from the next frame on, and a frame that is made again has the old value.

    config/changes.*   what was set      config/declared.*   what was declared, where it was another before
"""

from __future__ import annotations

import contextlib
import difflib
import getpass
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.graph.model import Param
from holdfast.journals.journal import Journal

if TYPE_CHECKING:
    from holdfast.engine.flow.scheduler import Board

__all__ = ["Change", "Config", "next_free", "now", "user"]


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
        # What the process itself declares is code, and changes with it: from a frame on, like what is set.
        self._declared_journal = Journal(directory, "declared", keep=None, sync=True, counted=True)
        self._declared: list[dict[str, Any]] = list(self._declared_journal.entries())

    def declare(self, frame: int) -> None:
        """At a start: a value that is declared otherwise than before holds from this frame on; frames before it keep theirs."""
        for name, param in self._params.items():
            known = [each["value"] for each in self._declared if each["name"] == name]
            if known and known[-1] == param.default:
                continue
            entry = {"n": len(self._declared) + 1, "frame": frame if known else 1, "name": name, "value": param.default}
            self._declared_journal.append(entry)
            self._declared.append(entry)
        self._declared_journal.close()

    def _declared_at(self, param: Param, frame: int) -> Any:
        known = [each for each in self._declared if each["name"] == param.name]
        held = [each["value"] for each in sorted(known, key=lambda each: each["frame"]) if each["frame"] <= frame]
        if not held:
            return param.default
        try:
            return type(param.default)(held[-1])  # a number may have become another kind of number
        except (TypeError, ValueError):
            return param.default

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
        values = {name: {"value": self._declared_at(param, frame), "per": {}} for name, param in self._params.items()}
        # By frame: one that was planned for later is not undone by what was set meanwhile for frames before it.
        for change in sorted(self._changes, key=lambda each: each.frame):
            if change.frame > frame or change.name not in values:
                continue
            if change.key is None:
                values[change.name]["value"] = change.value
            else:
                values[change.name]["per"][change.key] = change.value
        return values


def next_free(board: Board, decided: Iterable[int]) -> int:
    """The first frame that no unit has begun and nobody has seen. `decided`: by unit, the last that it made before.

    A frame that is taken again after a crash was made with the values of then.
    """
    with board.changed:
        begun = [unit.permitted for unit in board.units.values()]
        begun += [queue.seen for queue in board.streams.values() if not queue.from_source]
    return max([*begun, *decided], default=0) + 1


def _refused(what: str, do: str) -> UsageError:
    return UsageError("HF-C010", "ParameterRefused", what, effect="nothing was changed; the run goes on", do=do)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def user() -> str:
    """Who changes a parameter here; "" where the system knows no name."""
    with contextlib.suppress(OSError):
        return getpass.getuser()
    return ""
