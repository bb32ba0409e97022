"""Words that calls take: an old one is answered with its new name, a misspelt one with the nearest.

A word that was renamed stays known here, so that a program written for an earlier version is told
what to write, on its own line, before anything is declared or started (decision 23).

Pure. Wraps functions; what they return and how they are called stays theirs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from holdfast.errors import UsageError
from holdfast.graph.declared import caller, did_you_mean, refuse

__all__ = ["old_word", "renamed_value", "worded"]

Takes = ParamSpec("Takes")
Gives = TypeVar("Gives")


def worded(
    *, more: Mapping[str, Any] | None = None, **renamed: str
) -> Callable[[Callable[Takes, Gives]], Callable[Takes, Gives]]:
    """Of a function whose keywords are checked. `renamed`: old word -> new one, or a sentence that says what to write.

    `more`: the words its **settings stand for, with their defaults; they become part of its signature.
    """

    def wrap(function: Callable[Takes, Gives]) -> Callable[Takes, Gives]:
        signature = _whole(inspect.signature(function), more or {})
        known = [
            name for name, each in signature.parameters.items() if name != "self" and each.kind is not each.VAR_KEYWORD
        ]
        is_open = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
        called = function.__name__ if function.__name__ != "__init__" else function.__qualname__.partition(".")[0]

        @functools.wraps(function)
        def checked(*args: Takes.args, **words: Takes.kwargs) -> Gives:
            for word in words:
                if word in renamed:
                    raise old_word(f"{called}({word}=...)", _instead(word, renamed[word], words[word]))
                if word not in known and not is_open:
                    raise refuse(
                        "HF-C003",
                        "UnknownWord",
                        f"{called}() takes no {word!r}.",
                        why="there is: " + ", ".join(known),
                        do=did_you_mean(word, known, otherwise=f"drop {word}="),
                    )
            return function(*args, **words)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        return checked

    return wrap


def renamed_value(value: object, renamed: Mapping[str, str], *, what: str) -> None:
    """Refuses a value that has a new name: on_error="stop"."""
    if isinstance(value, str) and value in renamed:
        raise old_word(f"{what}={value!r}", f"write {what}={renamed[value]!r}: it means the same")


_WHY = "one thing has one word now (docs/decisions/0023-words.md)"


def old_word(what: str, do: str, why: str = _WHY, *, where: str | None = None) -> UsageError:
    """A word of an earlier version; `do` says the one of today. `where`: the user's line, unless it is said."""
    return UsageError(
        "HF-C060",
        "OldWord",
        f"{what} is a word of an earlier version.",
        where=caller()[0] if where is None else where,
        why=why,
        effect="nothing was declared or started",
        do=do,
    )


def _instead(word: str, new: str, value: object) -> str:
    if " " in new:
        return new
    shown = repr(value) if isinstance(value, str | int | float | list | tuple | dict) else "..."
    return f"write {new}={shown if len(shown) <= 60 else '...'}: it means what {word}= meant"


def _whole(signature: inspect.Signature, more: Mapping[str, Any]) -> inspect.Signature:
    if not more:
        return signature
    kept = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in more.items()]
    return signature.replace(parameters=[*kept, *added])
