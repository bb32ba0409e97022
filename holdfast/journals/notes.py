"""Small whole files with a check: a register, a note, a name. What does not fit its check is an error, not a value.

A JSON object has the hash of the rest in its field `check`, so it stays one for every
other reader; a word has it behind itself: `=7 3d41402a`. Files of the version before
have none and are believed. No bit makes such a file of a checked one: a name that is a bit
or two away from `check` is damage. Nor does a cut: JSON without its end is none, and a
word that begins with `=` must have its check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

from holdfast.errors import StateRefused

__all__ = ["as_note", "as_word", "damaged_note", "note_in", "read_note", "read_word", "word_in"]

_CHECK = "check"


def as_note(fields: Mapping[str, Any], *, indent: int | None = None) -> str:
    """JSON text of the fields, and their check."""
    fields = json.loads(json.dumps(fields))  # as they will be read: keys are strings, tuples are lists
    return json.dumps({**fields, _CHECK: _sum(_plain(fields))}, indent=indent)


def note_in(text: str | bytes) -> dict[str, Any]:
    """The fields in the text; ValueError if they are not what was written."""
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    if any(_is_near_check(key) for key in fields):
        raise ValueError(f"its field {_CHECK!r} has another name")
    check = fields.pop(_CHECK, None)
    if check is not None and check != _sum(_plain(fields)):
        raise ValueError(f"its content hashes to {_sum(_plain(fields))}, its field {_CHECK!r} says {check}")
    return fields


def as_word(word: object) -> str:
    return f"={word} {_sum(str(word))}\n"


def word_in(text: str) -> str:
    """The word in the text; ValueError if it is not what was written."""
    word, *check = text.split() or [""]
    if not word:
        raise ValueError("it is empty")
    is_checked, word = word.startswith("="), word.removeprefix("=")
    if (is_checked or check) and check != [_sum(word)]:
        raise ValueError(f"{word!r} hashes to {_sum(word)}, behind it stands {' '.join(check)!r}")
    return word


def read_note(path: Path, *, effect: str, do: str) -> dict[str, Any]:
    """The fields of a file that is there, or HF-R042."""
    try:
        return note_in(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise damaged_note(path, error, effect=effect, do=do) from error


def read_word(path: Path, kind: type, *, effect: str, do: str) -> Any:
    """The word of a file that is there, as an `int` or `str`, or HF-R042."""
    try:
        return kind(word_in(path.read_text(encoding="ascii")))
    except ValueError as error:
        raise damaged_note(path, error, effect=effect, do=do) from error


def damaged_note(path: Path, error: Exception, *, effect: str, do: str) -> StateRefused:
    return StateRefused(
        "HF-R042",
        "NoteDamaged",
        f"the file {path.name} of the state folder is not what was written.",
        where=str(path),
        why=str(error).splitlines()[0],
        effect=effect,
        do=do,
    )


def _is_near_check(key: str) -> bool:
    if key == _CHECK or len(key) != len(_CHECK):
        return False
    return sum((ord(a) ^ ord(b)).bit_count() for a, b in zip(key, _CHECK, strict=True)) <= 2


def _plain(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _sum(text: str) -> str:
    return xxhash.xxh32_hexdigest(text.encode())
