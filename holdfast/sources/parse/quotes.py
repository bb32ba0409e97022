"""Where rows of CSV end: at a newline that does not stand in quotes.

A quote opens only where a field begins; elsewhere (`5" pipe`) it is a sign like any other.
That is how Arrow's parser sees it, and what is cut here must be what is parsed there: a row
that is cut inside of quotes would be two other rows.

`limit` bounds how far a quote reaches. One that is not closed within it closes nothing: its
line ends where lines end, and is a bad row by itself (`is_open`).

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

__all__ = [
    "BOM_INSIDE",
    "first_row_end",
    "has_bare_return",
    "is_open",
    "last_row_end",
    "mark_of",
    "row_ends",
    "row_with_bom",
    "split_rows",
]

BOM_INSIDE = "a byte order mark stands in front of it, and not at the beginning of the file"
_BOM = b"\xef\xbb\xbf"


_SIGNS: dict[re.Pattern[bytes], tuple[int, int]] = {}  # quote and delimiter


@lru_cache(maxsize=64)
def mark_of(quote: str | None, delimiter: str = ",") -> re.Pattern[bytes] | None:
    """What finds text in quotes; None: quotes mean nothing."""
    if not quote:
        return None
    mark, between = re.escape(quote.encode()), re.escape(delimiter.encode())
    begins = rb"(?:(?<=[%b\r\n]%b)|(?<=\A%b)|(?<=\A\xef\xbb\xbf%b))" % (between, mark, mark, mark)
    made = re.compile(rb"%b%b[^%b]*+(?:%b%b[^%b]*+)*+(%b|\Z)" % (mark, begins, mark, mark, mark, mark, mark))
    _SIGNS[made] = (ord(quote), ord(delimiter))
    return made


def _quoted(
    block: bytes, mark: re.Pattern[bytes] | None, limit: int | None, at: int = 0
) -> Iterator[tuple[int, int, bool]]:
    """(first byte, byte behind, whether it was closed) of every text in quotes, from `at` on, where no quote is open."""
    while mark is not None and (found := mark.search(block, at)) is not None:
        start, at = found.span()
        if limit is not None and at - start > limit:
            at = block.find(b"\n", start) + 1
            if not at:
                return
            continue
        yield start, at, bool(found[1])


def _quotes_in_pairs(block: bytes, mark: re.Pattern[bytes], limit: int | None) -> np.ndarray | None:
    """Where quotes are, if every second one opens or is doubled and none reaches beyond the limit: what is in quotes can then
    be told by counting them, which is many times quicker. None: it cannot.
    """
    quote, between = _SIGNS[mark]
    signs = np.frombuffer(block, np.uint8)
    at = np.flatnonzero(signs == quote)
    if not len(at):
        return at
    opens = at[::2]
    doubled = np.zeros(len(opens), bool)
    doubled[1:] = opens[1:] == at[1:-1:2] + 1 if len(at) % 2 == 0 else opens[1:] == at[1::2] + 1
    before = signs[opens - 1]  # of the first byte: the last one, which is not looked at
    if not (doubled | (before == between) | (before == 10) | (before == 13) | (opens == 0)).all():
        return None
    if limit is not None and len(block) > limit:
        first = np.flatnonzero(~doubled)
        closes = at[1::2] if len(at) % 2 == 0 else np.append(at[1::2], len(block))
        if (closes[np.append(first[1:], len(opens)) - 1] + 1 - opens[first] > limit).any():
            return None
    return at


def last_row_end(block: bytes, mark: re.Pattern[bytes] | None, limit: int | None = None) -> int:
    """Behind the last newline that ends a row; 0: there is none."""
    if mark is not None and (quotes := _quotes_in_pairs(block, mark, limit)) is not None:
        at = block.rfind(b"\n")
        while at >= 0 and np.searchsorted(quotes, at) % 2:
            at = block.rfind(b"\n", 0, at)
        return at + 1
    stop = len(block)
    for start, end, _ in reversed(list(_quoted(block, mark, limit))):
        at = block.rfind(b"\n", end, stop)
        if at >= 0:
            return at + 1
        stop = start
    return block.rfind(b"\n", 0, stop) + 1


def first_row_end(block: bytes, mark: re.Pattern[bytes] | None, start: int = 0) -> int:
    """Where the row ends that begins at `start`."""
    at = start
    for first, behind, _ in _quoted(block, mark, None, start):
        end = block.find(b"\n", at, first)
        if end >= 0:
            return end + 1
        at = behind
    end = block.find(b"\n", at)
    return end + 1 if end >= 0 else len(block)


def row_ends(block: bytes, mark: re.Pattern[bytes] | None, limit: int | None = None) -> list[int]:
    """0, and where each row ends."""
    ends, at = [0], 0
    for first, behind in (*((a, b) for a, b, _ in _quoted(block, mark, limit)), (len(block), len(block))):
        while (at := block.find(b"\n", at, first) + 1) > 0:
            ends.append(at)
        at = behind
    if ends[-1] < len(block):
        ends.append(len(block))
    return ends


def split_rows(block: bytes, mark: re.Pattern[bytes] | None) -> list[int]:
    """Where each row begins that Arrow reads, which takes a carriage return alone for the end of one too."""
    starts, at = [0], 0
    for first, behind in (*((a, b) for a, b, _ in _quoted(block, mark, None)), (len(block), len(block))):
        starts += [found.end() + at for found in re.finditer(rb"\r\n|\r|\n", block[at:first])]
        at = behind
    stops = (*starts[1:], len(block))
    return [start for start, stop in zip(starts, stops, strict=True) if block[start:stop].strip(b"\r\n")]


def has_bare_return(row: bytes, mark: re.Pattern[bytes] | None) -> bool:
    """Whether a carriage return ends a line inside of it: not in quotes, and no newline behind it."""
    at = 0
    for first, behind in (*((a, b) for a, b, _ in _quoted(row, mark, None)), (len(row), len(row))):
        if re.search(rb"\r(?!\n)", row[at:first]):
            return True
        at = behind
    return False


def is_open(block: bytes, mark: re.Pattern[bytes] | None, limit: int | None = None) -> bool:
    """Whether it ends inside of quotes, where Arrow would close them and take rows for text; or has some beyond the limit."""
    if mark is not None and (quotes := _quotes_in_pairs(block, mark, limit)) is not None:
        return len(quotes) % 2 == 1
    last = None
    for last in _quoted(block, mark, None):
        if limit is not None and last[1] - last[0] > limit:
            return True
    return last is not None and not last[2]


def row_with_bom(block: bytes, mark: re.Pattern[bytes] | None, byte: int, limit: int | None = None) -> int | None:
    """Where the first row begins that has a byte order mark in front, and is not the first of its file.

    Arrow passes over one where a text begins, so what such a row says would depend on where blocks are cut.
    """
    if _BOM not in block:
        return None
    return next((at for at in row_ends(block, mark, limit) if byte + at and block.startswith(_BOM, at)), None)
