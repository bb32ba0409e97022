"""What must not be read: values of secrets, and, where a process hides them, values of rows.

A secret's value is remembered when it is opened. From then on every error of ours is
searched for it when it is made, and every line of the log when it is written, so it
does not matter which driver put it into its message.

`hide_values` is for data of people: errors about rows keep their code, their place and
the user's lines of code, and lose what a driver or an exception says about the data.
It holds for the whole os_process, as an error does not know whose row it quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

__all__ = ["forget_all", "hidden", "hide_values", "redacted", "remember"]

# Replacing shorter ones would garble every text and hide nothing that a guess does not give.
LENGTH_MIN = 4

_secrets: dict[str, str] = {}  # value -> what is shown instead
_names: set[str] | None = None  # None: values may be shown

# Sources, operators, sinks, frames and units speak of rows; the other codes speak of declarations and folders.
_ABOUT_ROWS = re.compile(r"HF-[SOKFU]\d{3}")
_EXCEPTION = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit))\b:.*", re.DOTALL)
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_COUNTED = re.compile(
    r"(?P<kept>\b(?:frames?|rows?|lines?|epoch|batch|column|up to|to|of|try|tries|in)\s+)?(?P<number>-?\d[\d,.eE+:-]*)"
)
_PLACE = re.compile(r"^\S.*:\d+ in \S+$")


def remember(value: str, shown: str) -> None:
    """Never show this value, nor the password inside it if it is an address."""
    found = {value, value.strip()}
    try:
        password = urlsplit(value.strip()).password
    except ValueError:
        password = None
    if password:
        found |= {password, unquote(password)}
    found |= {part[1] or part[2] for part in re.finditer(r"password\s*=\s*(?:'([^']*)'|(\S+))", value)}
    for each in found:
        if len(each) >= LENGTH_MIN:
            _secrets[each] = shown


def redacted(text: str) -> str:
    """The text without values of secrets opened so far; the longest first, as one may hold another."""
    for value in sorted(_secrets, key=len, reverse=True):
        if value in text:
            text = text.replace(value, _secrets[value])
    return text


def hide_values(names: Iterable[str]) -> None:
    """From now on, errors about rows quote these names and nothing else."""
    global _names
    _names = (_names or set()) | set(names)


def hidden(code: str, what: str, why: str) -> tuple[str, str]:
    """`what` and `why` of an error, as they may be shown."""
    if _names is None or not _ABOUT_ROWS.fullmatch(code):
        return what, why
    return _without_values(what), _code_only(why)


def forget_all() -> None:
    """For tests: a process that starts anew."""
    global _names
    _secrets.clear()
    _names = None


def _without_values(text: str) -> str:
    text = _EXCEPTION.sub(r"\1 (its text is hidden)", text)
    text = _QUOTED.sub(lambda found: found[0] if (found[1] or found[2] or "") in _names else "'...'", text)
    return _COUNTED.sub(lambda found: found[0] if found["kept"] else "...", text)


def _code_only(text: str) -> str:
    """The user's lines of code from a traceback; everything else may quote a row."""
    kept, code_follows = [], False
    for line in text.splitlines():
        if _PLACE.match(line):
            kept.append(line)
            code_follows = True
        elif code_follows and line.startswith("    "):
            kept.append(line)
            code_follows = False
        else:
            code_follows = False
            raised = re.match(r"([A-Z]\w*(?:Error|Exception)): ", line)
            if raised and kept:
                kept.append(f"{raised[1]} (its text is hidden)")
    return "\n".join(kept) or ("hidden: this process has values='hide'" if text else "")
