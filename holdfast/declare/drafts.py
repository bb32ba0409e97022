"""What was said about one operator, before ports get their streams: words checked, nothing resolved.

Pure. `declare.process` and `declare.built_in` make drafts, `declare.assembling` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from holdfast.graph import options as read
from holdfast.graph.declared import checked_name, one_of, refuse
from holdfast.graph.durations import Duration, duration_ms
from holdfast.graph.hosting import Backup
from holdfast.graph.model import Arrival
from holdfast.graph.protections import Protection, ecoc, snapshot, uncoordinated
from holdfast.graph.restarting import ON_ERROR, Supervision
from holdfast.graph.words import renamed_value

__all__ = [
    "DEFAULTS",
    "Draft",
    "OperatorSettings",
    "Reads",
    "checked_backup",
    "checked_protection",
    "checked_supervision",
    "checked_time",
    "drafted",
    "optional_ms",
    "settled",
]

# A stream by its name, or hf.feedback(...) of one.
Reads = str | read.Feedback


class OperatorSettings(TypedDict, total=False):
    """What every operator may say beside what it does; see `StreamProcess.operator`."""

    protect: Protection | None
    delay_max: Duration | None
    delay_min: Duration | None
    approximate: bool
    spark_conf: Mapping[str, object] | None
    unit: str | None
    apart: bool
    on_error: str
    stabilises: Duration | None


DEFAULTS: dict[str, Any] = {
    "protect": None,
    "delay_max": None,
    "delay_min": None,
    "approximate": False,
    "spark_conf": None,
    "unit": None,
    "apart": False,
    "on_error": "fail",
    "stabilises": None,
}


@dataclass
class Draft:
    """An operator as declared; ports and parameters are resolved by `graph()`."""

    name: str
    kind: str
    ports: dict[str, Reads]
    outputs: tuple[str, ...]
    line: str
    options: dict[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None
    params: tuple[str, ...] = ()
    with_default: frozenset[str] = frozenset()
    remapped: dict[str, Reads] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def drafted(
    name: str,
    kind: str,
    taken: read.Signature,
    inputs: Mapping[str, Reads] | None,
    outputs: tuple[str, ...],
    line: str,
    chosen: dict[str, Any],
    function: Callable[..., Any],
    settings: dict[str, Any],
) -> Draft:
    """An operator of the user's own function."""
    name = checked_name(name, what="operator")
    wanted = dict(inputs or {})
    for port, reads in wanted.items():
        if not isinstance(reads, str | read.Feedback):
            raise refuse(
                "HF-C003",
                "UnknownWord",
                f"inputs={{{port!r}: {reads!r}}} names no stream.",
                do=f"write inputs={{{port!r}: 'stream'}} or inputs={{{port!r}: hf.feedback('stream', schema=...)}}",
            )
    ports = {port: wanted.get(port, port) for port in taken.ports}
    return Draft(name, kind, ports, outputs, line, chosen, function, taken.params, taken.with_default, wanted, settings)


def settled(said: Mapping[str, Any]) -> dict[str, Any]:
    """OperatorSettings as `model.Operator` has them."""
    said = {**DEFAULTS, **said}
    if said["protect"] is not None:
        checked_protection(said["protect"])
    renamed_value(said["on_error"], {"stop": "fail"}, what="on_error")
    return {
        "protect": said["protect"],
        "delay_ms_max": optional_ms(said["delay_max"], "delay_max"),
        "delay_ms_min": 1 if said["delay_min"] is None else max(1, duration_ms(said["delay_min"], what="delay_min")),
        "approximate": bool(said["approximate"]),
        "spark_conf": {str(key): str(value) for key, value in (said["spark_conf"] or {}).items()},
        "unit": None if said["unit"] is None else checked_name(said["unit"], what="unit"),
        "apart": bool(said["apart"]),
        "on_error": one_of(said["on_error"], ON_ERROR, what="on_error"),
        "stabilises_ms": optional_ms(said["stabilises"], "stabilises"),
    }


def checked_supervision(restart: object) -> Supervision:
    if restart is None or isinstance(restart, Supervision):
        return restart or Supervision()
    raise refuse(
        "HF-C003", "UnknownWord", f"restart={restart!r} is not known.", do="write restart=hf.restarts(tries=8)"
    )


def checked_backup(backup: object) -> Backup | None:
    if backup is not None and not isinstance(backup, Backup):
        raise refuse(
            "HF-C003",
            "UnknownWord",
            f"backup={backup!r} is no backup.",
            do="write backup=hf.backup(copies=2) or hf.backup('/mnt/other')",
        )
    return backup


def checked_protection(protection: object) -> None:
    if not isinstance(protection, Protection):
        name = getattr(protection, "__name__", "")
        is_uncalled = protection in (snapshot, uncoordinated, ecoc)
        raise refuse(
            "HF-C003",
            "UnknownWord",
            f"hf.{name} has no interval." if is_uncalled else f"protection {protection!r} is not known.",
            do=f"write hf.{name}(every='5 seconds')"
            if is_uncalled
            else "take hf.none, hf.snapshot(every), hf.uncoordinated(every) or hf.ecoc(every)",
        )


def checked_time(time: object) -> str | Arrival | None:
    if time is None or isinstance(time, str | Arrival):
        return time
    raise refuse("HF-C003", "UnknownWord", f"time={time!r} is no column.", do="write time='ts' or time=hf.ARRIVAL")


def optional_ms(value: object, what: str) -> int | None:
    return None if value is None else duration_ms(value, what=what)
