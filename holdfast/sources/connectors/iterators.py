"""A Python iterator as a source: logged before use, for it cannot be read again.

Here is the declaration; `pulling` and `ingest` do the work. It imports no Arrow, so that
`check` stays quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.sources.live.logged_source import OpenFeed
    from holdfast.sources.reader import SourceContext

__all__ = ["IteratorReader"]


class IteratorReader:
    """Made by `hf.read.iterator`. Declares; runs nothing."""

    reliable = False

    def __init__(self, function: Callable[..., Iterable[object]], *, bounded: bool = True) -> None:
        self.function, self.bounded = function, bounded
        self.takes_count = _takes_count(function)

    def describe(self) -> str:
        return f"iterator {getattr(self.function, '__name__', repr(self.function))}"

    def open(self, context: SourceContext) -> OpenFeed:
        from holdfast.sources.connectors.pulling import IteratorFeed
        from holdfast.sources.live.logged_source import OpenFeed

        return OpenFeed(IteratorFeed(self, context.name), context, bounded=self.bounded)


def _takes_count(function: Callable[..., object]) -> bool:
    """Whether the first parameter must be given: it is then the number of elements logged."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except ValueError:  # a builtin that does not say
        return False
    return (
        first is not None
        and first.default is first.empty
        and first.kind
        in (
            first.POSITIONAL_ONLY,
            first.POSITIONAL_OR_KEYWORD,
        )
    )
