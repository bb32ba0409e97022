"""Durations as Spark writes them ("5 seconds", "500 ms"), inside integers of ms."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.errors import UsageError

__all__ = ["duration_ms", "show_ms", "write_ms"]

_UNITS_MS = {
    "millisecond": 1,
    "ms": 1,
    "second": 1000,
    "sec": 1000,
    "s": 1000,
    "minute": 60_000,
    "min": 60_000,
    "m": 60_000,
    "hour": 3_600_000,
    "h": 3_600_000,
    "day": 86_400_000,
    "d": 86_400_000,
    "week": 604_800_000,
}
_TERM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


def duration_ms(text: object, *, what: str = "duration") -> int:
    """'1 minute 30 seconds' -> 90000. An int is taken as ms already."""
    if isinstance(text, bool):
        raise _bad(text, what)
    if isinstance(text, int):
        return text
    if isinstance(text, timedelta):
        return round(text / timedelta(milliseconds=1))
    if not isinstance(text, str):
        raise _bad(text, what)
    body = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    total, at = 0.0, 0
    while at < len(body):
        term = _TERM.match(body, at)
        if term is None:
            raise _bad(text, what)
        word = term[2].lower()
        unit = _UNITS_MS.get(word) or _UNITS_MS.get(word.removesuffix("s"))
        if unit is None:
            raise _bad(text, what)
        total += float(term[1]) * unit
        at = term.end()
    if at == 0 or total != round(total):
        raise _bad(text, what)
    return round(total)


def show_ms(ms: int) -> str:
    """90000 -> '90 s'; 500 -> '500 ms'."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("s", 1000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:g} s"


def write_ms(ms: int) -> str:
    """As a user would write it: 90000 -> '90 seconds'."""
    if ms % 1000:
        return f"{ms} ms"
    return f"{ms // 1000} second" + ("" if ms == 1000 else "s")


def _bad(value: object, what: str) -> UsageError:
    return UsageError(
        "HF-C001",
        "NotADuration",
        f"{what} {value!r} is not a duration.",
        effect="nothing was declared",
        do="write it as Spark does: '5 seconds', '500 ms', '1 minute 30 seconds', or a timedelta",
    )
