"""How small facts lie in a backup store: JSON with a format number and a digest of itself.

A register with one flipped bit would promise another epoch; so what does not fit its
digest counts as damaged, and what has a higher format number as not ours to read.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import xxhash

from holdfast.protocols.messages import Manifest

__all__ = ["FORMAT", "Damaged", "NewerFormat", "file_name", "from_json", "is_whole", "quoted", "sealed", "to_json", "unsealed"]

FORMAT = 1
# File systems allow 255 bytes; a temporary name adds some.
_LENGTH_MAX = 200


class Damaged(ValueError):
    """The bytes are not those that were written."""


class NewerFormat(ValueError):
    """A later version of Holdfast wrote this."""


def sealed(body: dict[str, Any] | list) -> bytes:
    text = json.dumps(body, sort_keys=True, ensure_ascii=True)
    whole = {"format": FORMAT, "xxh3_128": _digest(text.encode()), "body": body}
    return json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()


def unsealed(content: bytes) -> Any:
    try:
        whole = json.loads(content)
        number, digest, body = whole["format"], whole["xxh3_128"], whole["body"]
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"it is not what was written: {type(error).__name__}") from None
    if isinstance(number, int) and number > FORMAT:
        raise NewerFormat(f"format {number} was written by a later version; this one reads up to {FORMAT}")
    if number != FORMAT or digest != _digest(json.dumps(body, sort_keys=True, ensure_ascii=True).encode()):
        raise Damaged("it does not fit its digest")
    return body


def to_json(manifest: Manifest) -> bytes:
    """Without names of its fields: there is one with every checkpoint."""
    queues = [list(queue) for queue in manifest.queues]
    return sealed([manifest.unit, manifest.epoch, manifest.serial, manifest.frame, queues, list(manifest.files)])


def from_json(content: bytes) -> Manifest:
    body = unsealed(content)
    try:
        if isinstance(body, dict):  # as it was written before
            body = [body[name] for name in ("unit", "epoch", "serial", "frame", "queues", "files")]
        unit, epoch, serial, frame, queues, files = body
        return Manifest(unit, epoch, serial, frame, tuple((edge, after) for edge, after in queues), tuple(files))
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"it is no manifest: {type(error).__name__}") from None


def file_name(prefix: str, content: bytes) -> str:
    """The name of a file with this content; `is_whole` recomputes the digest at its end."""
    return f"{prefix}-{_digest(content)}"


def is_whole(name: str, content: bytes) -> bool:
    return name.rpartition("-")[2] == _digest(content)


def quoted(name: str, *, dots: bool = False) -> str:
    """A name as one part of a path. Without dots it cannot meet the store's own files, which have one."""
    text = quote(name, safe="") or "+"
    if not dots:
        text = text.replace(".", "%2E")
    return text if len(text) <= _LENGTH_MAX else f"{text[: _LENGTH_MAX - 33]}+{_digest(name.encode())}"


def _digest(content: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(content)
