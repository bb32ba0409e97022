"""What users write, read once: words, sizes, lists, and the line they wrote it on.

One place decides how a wrong word is answered (with the nearest right one), so every
declaration fails alike. Touches no file; looks at the call stack for the line only.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.errors import UsageError

__all__ = [
    "as_names",
    "caller",
    "checked_name",
    "did_you_mean",
    "nearest",
    "one_of",
    "refuse",
    "shown_path",
    "size_bytes",
]

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep
# A folder's name may have 255 signs, and ours hold two names and a number.
_NAME_MAX = 100
_SIZES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def caller() -> tuple[str, str]:
    """('kiln.py:12', folder of that file) of the nearest frame outside this package."""
    at = sys._getframe(1)
    while at is not None and at.f_code.co_filename.startswith(_PACKAGE):
        at = at.f_back
    if at is None:
        return "", os.getcwd()
    return f"{shown_path(at.f_code.co_filename)}:{at.f_lineno}", _folder(at.f_code.co_filename)


def shown_path(filename: str) -> str:
    """As people type it: relative to where they stand if it is below, else the bare name."""
    if filename.startswith("<"):
        return filename
    try:
        return str(Path(filename).resolve().relative_to(Path.cwd()))
    except ValueError:
        return Path(filename).name


def _folder(filename: str) -> str:
    path = Path(filename)
    return str(path.resolve().parent) if path.exists() else os.getcwd()


def nearest(word: str, among: Iterable[str]) -> str | None:
    options = sorted(set(among))
    by_fold = {option.lower(): option for option in reversed(options)}
    found = difflib.get_close_matches(word.lower(), list(by_fold), n=1, cutoff=0.6)
    if found:
        return by_fold[found[0]]
    # 'hot' for 'parts.hot': the port alone is a frequent slip.
    return next((option for option in options if option.endswith("." + word)), None)


def did_you_mean(word: str, among: Iterable[str], otherwise: str = "") -> str:
    options = sorted(set(among))
    found = nearest(word, options)
    if found is not None:
        return f"did you mean '{found}'?"
    if otherwise:
        return otherwise
    return "there is: " + ", ".join(options) if options else ""


def refuse(code: str, name: str, what: str, *, why: str = "", do: str = "") -> UsageError:
    """A declaration that cannot be read at all; it is raised where it stands."""
    where, _ = caller()
    return UsageError(code, name, what, where=where, why=why, effect="nothing was declared", do=do)


def one_of(value: object, options: Sequence[str], *, what: str) -> str:
    if isinstance(value, str) and value in options:
        return value
    raise refuse(
        "HF-C003",
        "UnknownWord",
        f"{what}={value!r} is not known.",
        why="there is: " + ", ".join(repr(option) for option in options),
        do=did_you_mean(str(value), options, otherwise=f"take one of them, e.g. {what}={options[0]!r}"),
    )


def checked_name(name: object, *, what: str) -> str:
    """Names become columns, folders and streams: letters, digits and underscores."""
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name, flags=re.ASCII) and len(name) <= _NAME_MAX:
        return name
    fixed = re.sub(r"\W+", "_", str(name), flags=re.ASCII).strip("_")
    fixed = fixed if re.match(r"[A-Za-z_]", fixed) else f"{what.split()[-1]}_{fixed}".rstrip("_")
    raise refuse(
        "HF-C005",
        "NotAName",
        f"{what} name {name!r} cannot be used.",
        why=f"a name becomes a column, a folder and a stream: at most {_NAME_MAX} letters, digits, underscores",
        do=f"take {fixed[:_NAME_MAX]!r}",
    )


def as_names(value: object, *, what: str) -> tuple[str, ...]:
    """'zone' or ['zone', 'site'] -> a tuple."""
    names = (value,) if isinstance(value, str) else value
    if isinstance(names, list | tuple) and names and all(isinstance(each, str) for each in names):
        return tuple(names)
    raise refuse(
        "HF-C003",
        "UnknownWord",
        f"{what}={value!r} is neither a column name nor a list of column names.",
        do=f"write {what}='zone' or {what}=['zone', 'site']",
    )


def size_bytes(value: object, *, what: str) -> int:
    """'512 MB' -> 512000000. An int is taken as bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*", value) if isinstance(value, str) else None
    unit = _SIZES.get(found[2].lower()) if found else None
    if found is None or unit is None or float(found[1]) <= 0:
        raise refuse(
            "HF-C008",
            "NotASize",
            f"{what}={value!r} is not a size.",
            do="write '512 MB', '2 GB' or a number of bytes",
        )
    return round(float(found[1]) * unit)
