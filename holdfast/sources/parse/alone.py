"""Which records stand alone: exactly one JSON object each, or at most one line of CSV.

Records of many senders are parsed as one text, a record a line, because a parser that
is called for each of them costs a hundred times as much. That is right only if no
record can reach into the next: half an object, or an open quote, would swallow what
another sender sent. So each is looked at first, all of them at once.

JSON: a string cannot hold a line end, so the parser enters every record outside of
strings or has given up. If the record's first byte is the brace that opens an object
and its last byte the one that closes it, the parser ends it there or gives up. It is
enough to look at braces outside of strings; where there are none but the first and
the last, not even strings matter.

CSV: a row ends at a line end and nowhere else. If the only line ends are those between
records, there are as many rows as records only if each is one.

Arrow's JSON parser ends the whole program (SIGSEGV) at a bare `null` beside objects;
what is not one object never gets there.

Pure: bytes in, truth out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

__all__ = ["cleaned", "lines_alone", "objects_alone", "why_not_one_object"]

_BOM = b"\xef\xbb\xbf"
_ALL_BUT_BRACES = bytes(set(range(256)) - set(b'{}"\n'))


def cleaned(raw: bytes, format: str) -> bytes:
    """Without byte order marks and, around an object, blanks: neither is part of a value.

    Arrow passes over a byte order mark where a text begins and takes it for a sign
    elsewhere, so what a record says would depend on its place.
    """
    if format == "json":
        return raw.strip().removeprefix(_BOM).strip()
    raw = raw.removesuffix(b"\r")
    while raw.startswith(_BOM):
        raw = raw.removeprefix(_BOM)
    return raw


def lines_alone(raws: Sequence[bytes]) -> list[bool] | None:
    """Per record whether it holds no line end; None: none does."""
    block = b"\n".join(raws)
    if block.count(b"\n") == len(raws) - 1 and b"\r" not in block and _BOM not in block:
        return None
    return [b"\n" not in raw and b"\r" not in raw and not raw.startswith(_BOM) for raw in raws]


def objects_alone(raws: Sequence[bytes]) -> list[bool] | None:
    """Per record whether it is one JSON object from its first byte to its last; None: each is.

    What is true of a record may still be no JSON: the parser will say so.
    """
    block, joints = b"\n".join(raws), len(raws) - 1
    if (
        block[:1] == b"{"
        and block[-1:] == b"}"
        and block.count(b"\n") == joints == block.count(b"}\n{")
        and (block.count(b"{") == len(raws) == block.count(b"}") or _each_closes_at_its_end(block))
    ):
        return None
    return [_is_one_object(raw) for raw in raws]


def _each_closes_at_its_end(block: bytes) -> bool:
    """Of lines in braces: that the first brace of each is closed by its last. False: it cannot be told so quickly."""
    if b"\\" in block:  # a quote behind an odd number of backslashes ends no string
        block = block.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Strings without braces in them are pairs of quotes now; a quote that is left stands for a brace in a string.
    shapes = block.translate(None, _ALL_BUT_BRACES).replace(b'""', b"")
    return b'"' not in shapes and all(map(_closes_at_its_end, set(shapes.split(b"\n"))))


def _closes_at_its_end(braces: bytes) -> bool:
    depth = 0
    for brace in braces[:-1]:
        depth += 1 if brace == ord("{") else -1
        if depth <= 0:
            return False
    return depth == 1 and braces[-1:] == b"}"


def _is_one_object(raw: bytes) -> bool:
    if raw[:1] != b"{" or raw[-1:] != b"}":
        return False
    if raw.count(b"{") == raw.count(b"}") == 1 and b"\n" not in raw:
        return True
    try:
        return isinstance(json.loads(raw.decode()), dict)
    except (ValueError, RecursionError):
        return False


def why_not_one_object(raw: bytes) -> str:
    if not raw:
        return "it is empty"
    try:
        found = json.loads(raw.decode())
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return "it holds more than one value"
        return f"it is no JSON object: {error.msg}, at its sign {error.pos + 1}"
    except (ValueError, RecursionError) as error:
        return f"it is no JSON object: {str(error).splitlines()[0]}"
    return f"it is no JSON object but {'null' if found is None else type(found).__name__}"
