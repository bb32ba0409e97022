"""Checked lines: one JSON value a line, behind the hash of its own bytes.

    5d41402a {"n":7,"outputs":{}}

Every file that is written line by line is written and read here: journals, the seals
and chunks of a source log. A bit that flips, a line that is cut or grown is told
from what was written; only an end that was torn by a crash is passed over.

- A last line without its newline is torn: it never was an entry. Whole but for the
  newline, or with another byte in its place, it is one: its hash says so.
- Any other line that does not fit its hash is damage, also the last one.
- A line without hash was written by the version before. It is JSON, so it begins
  with a brace or bracket, and no single bit makes one of a hex digit; besides it is
  believed only above the first checked line, and a checked line that lost its hash
  is no JSON. That version left torn lines where they were: half an object among
  such lines is passed over, as it did.
- A line that says `# given up` stands for a damaged one that a person has given up.

Pure: no file, clock or randomness; who reads the bytes says what becomes of the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import xxhash

__all__ = ["GIVEN_UP", "Bad", "Gap", "Read", "checked_line", "gap_in", "read_lines"]

GIVEN_UP = b"# given up"
_CHECK = 8  # hex digits of xxh32
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that is not what was written. `line` counts from 1."""

    line: int
    is_last: bool
    before: Any = None  # the entry above it, if there is one
    after: Any = None
    text: str = ""

    def sentence(self, name: Callable[[Any], str]) -> str:
        """Which it was, as far as its neighbours tell; `name` names an entry."""
        around = []
        if self.before is not None:
            around.append(f"stands after {name(self.before)}")
        if self.after is not None:
            around.append(f"before {name(self.after)}")
        which = f", {' and '.join(around)}" if around else ""
        last = ", is the last" if self.is_last else ""
        return f"line {self.line}{which}{last}; it does not fit its check word and reads {self.text!r}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries that must be there, since numbers are without a gap, and are not."""

    first: int
    last: int


@dataclass(slots=True)
class Read:
    """What stands in a file of checked lines."""

    entries: list[Any] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # of each entry: the byte behind its text, newline not counted
    whole: int = 0  # bytes that stay; what follows is torn
    needs_newline: bool = False  # the last entry is whole but for its newline
    breaks: list[int] = field(default_factory=list)  # entries before which lines were given up, or may have been
    checked_from: int = 0  # entries from here on have a check word


def checked_line(value: Any) -> bytes:
    body = json.dumps(value, separators=(",", ":"), default=str).encode()
    return xxhash.xxh32_hexdigest(body).encode() + b" " + body + b"\n"


def read_lines(data: bytes) -> Read:
    found = Read()
    *lines, tail = data.split(b"\n")
    at = 0
    is_checked = False
    waiting: list[tuple[int, bytes]] = []  # bad lines, until it is known what follows them
    for number, line in enumerate(lines, 1):
        start, at = at, at + len(line) + 1
        if not line:
            continue
        if line == GIVEN_UP:
            found.breaks.append(len(found.entries))
            found.whole = at
            continue
        value, has_check = _value(line, is_checked)
        if value is _NONE:
            if not is_checked and line.startswith(b'{"') and not line.endswith(b"}"):
                continue
            waiting.append((number, line))
            found.breaks.append(len(found.entries))
            continue
        if has_check and not is_checked:
            is_checked, found.checked_from = True, len(found.entries)
        _report(found, waiting, value)
        found.entries.append(value)
        found.ends.append(start + len(line))
        found.whole = at
    if tail:
        # Only the byte of the newline can be behind a whole line: it was not written, or it has changed.
        for text in (tail, tail[:-1]):
            value, has_check = _value(text, is_checked)
            if value is not _NONE and (has_check or text is tail):
                _report(found, waiting, value)
                found.entries.append(value)
                found.ends.append(at + len(text))
                found.whole, found.needs_newline = at + len(text), True
                break
    _report(found, waiting, None)
    if not is_checked:
        found.checked_from = len(found.entries)
    return found


def gap_in(found: Read, number: Callable[[Any], int], before: int | None = None) -> Gap | None:
    """The first gap in the numbers of the checked entries. One that says `skipped` says how many it leaves out."""
    last = before
    for at, entry in enumerate(found.entries):
        n = number(entry)
        if last is not None and at >= found.checked_from and at not in found.breaks and n > last + 1:
            skipped = entry.get("skipped", 0) if isinstance(entry, dict) else 0
            if skipped != n - last:
                return Gap(last + 1, n - 1)
        last = n
    return None


class _None:
    """No value: None is one."""


_NONE = _None()


def _value(line: bytes, is_checked: bool) -> tuple[Any, bool]:
    """The value of a line and whether it had a check word; `_NONE` if it is not what was written."""
    if line[:1] not in (b"{", b"["):
        body = line[_CHECK + 1 :]
        if line[: _CHECK + 1] != xxhash.xxh32_hexdigest(body).encode() + b" ":
            return _NONE, False
    elif is_checked:
        return _NONE, False
    else:
        body = line
    try:
        return json.loads(body), body is not line
    except ValueError:
        return _NONE, False


def _report(found: Read, waiting: list[tuple[int, bytes]], after: Any) -> None:
    """What follows the bad lines is known now."""
    before = found.entries[-1] if found.entries else None
    for number, line in waiting:
        found.bad.append(Bad(number, after is None, before, after, line[:_SHOWN].decode(errors="replace")))
    waiting.clear()
