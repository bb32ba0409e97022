"""How small facts lie in a backup store: JSON with a format number and a digest of itself.

A register with one flipped bit would promise another epoch; so what does not fit its
digest counts as damaged, and what has a higher format number as not ours to read.

A digest keeps out accidents, not people. With a key (`hf.backup(key=...)`) every fact
carries a keyed hash over itself, its place, its store and the process, and the name of every
file ends in the keyed hash of its content: whoever has not the key can take copies
away or bring old ones back, and make none.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import xxhash

from holdfast.protocols.messages import Manifest

__all__ = [
    "FORMAT", "PLAIN", "Damaged", "NewerFormat", "Seal", "file_name", "from_json", "in_one_line", "is_whole", "quoted", "sealed", "to_json", "unsealed",
]  # fmt: skip

FORMAT = 1
# File systems allow 255 bytes; a temporary name adds some.
_LENGTH_MAX = 200


class Damaged(ValueError):
    """The bytes are not those that were written."""


class NewerFormat(ValueError):
    """It is not ours to read: a later version of Holdfast wrote this, or somebody with a key."""


@dataclass(frozen=True, repr=False)
class Seal:
    """How one process seals what it gives to its stores. `key`: None = digests only; `of`: the process's identity."""

    key: bytes | None = None
    of: str = ""

    @classmethod
    def keyed(cls, secret: str, of: str) -> Seal:
        return cls(blake2b(secret.encode(), digest_size=32, person=b"holdfast backup").digest(), of)

    def sealed(self, body: dict[str, Any] | list, about: str = "") -> bytes:
        """`about`: the fact's store and place; it is none at another one."""
        text = json.dumps(body, sort_keys=True, ensure_ascii=True)
        whole = {"format": FORMAT, "xxh3_128": _digest(text.encode()), "body": body}
        if self.key is not None:
            whole["mac"] = self._mac(about, text)
        return json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()

    def unsealed(self, content: bytes, about: str = "") -> Any:
        try:
            whole = json.loads(content)
            number, digest, body = whole["format"], whole["xxh3_128"], whole["body"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Damaged(f"it is not what was written: {type(error).__name__}") from None
        if isinstance(number, int) and number > FORMAT:
            raise NewerFormat(f"format {number} was written by a later version; this one reads up to {FORMAT}")
        text = json.dumps(body, sort_keys=True, ensure_ascii=True)
        if number != FORMAT or digest != _digest(text.encode()):
            raise Damaged("it does not fit its digest")
        mac = whole.get("mac")
        if self.key is None:
            if mac is not None:
                raise NewerFormat("it was written with a key, and none is declared: hf.backup(key=...)")
        elif not isinstance(mac, str) or not hmac.compare_digest(mac.encode(), self._mac(about, text).encode()):
            why = "it carries no key" if mac is None else "nobody with our key wrote it here"
            raise Damaged(in_one_line("HF-R061", "NotAuthentic", why))
        return body

    def _mac(self, about: str, text: str) -> str:
        return self._hash(json.dumps([self.of, about, text]).encode())

    def _hash(self, content: bytes) -> str:
        return blake2b(content, key=self.key or b"", digest_size=16, person=b"holdfast seal").hexdigest()

    def to_json(self, manifest: Manifest, about: str = "") -> bytes:
        """Without names of its fields: there is one with every checkpoint."""
        queues = [list(queue) for queue in manifest.queues]
        body = [manifest.unit, manifest.epoch, manifest.serial, manifest.frame, queues, list(manifest.files)]
        return self.sealed(body, about)

    def from_json(self, content: bytes, about: str = "") -> Manifest:
        body = self.unsealed(content, about)
        try:
            if isinstance(body, dict):  # as it was written before
                body = [body[name] for name in ("unit", "epoch", "serial", "frame", "queues", "files")]
            unit, epoch, serial, frame, queues, files = body
            manifest = Manifest(
                unit, epoch, serial, frame, tuple((edge, after) for edge, after in queues), tuple(files)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"it is no manifest: {type(error).__name__}") from None
        numbers = [epoch, serial, frame, *(after for _, after in manifest.queues)]
        texts = [unit, *manifest.files, *(edge for edge, _ in manifest.queues)]
        if not all(type(each) is int for each in numbers) or not all(isinstance(each, str) for each in texts):
            raise Damaged("it is no manifest")
        return manifest

    def file_name(self, prefix: str, content: bytes) -> str:
        """The name of a file with this content; `is_whole` recomputes the digest at its end."""
        return f"{prefix}-{self._content(content)}"

    def is_whole(self, name: str, content: bytes) -> bool:
        return hmac.compare_digest(name.rpartition("-")[2].encode(), self._content(content).encode())

    def _content(self, content: bytes) -> str:
        return _digest(content) if self.key is None else f"k{self._hash(content)}"


def in_one_line(code: str, name: str, why: str) -> str:
    """For what is told of one store among several: an error of its own would end what the others can still do."""
    return f"{code} {name}: {why}"


PLAIN = Seal()
sealed, unsealed, to_json, from_json = PLAIN.sealed, PLAIN.unsealed, PLAIN.to_json, PLAIN.from_json
file_name, is_whole = PLAIN.file_name, PLAIN.is_whole


def quoted(name: str, *, dots: bool = False) -> str:
    """A name as one part of a path. Without dots it cannot meet the store's own files, which have one."""
    text = quote(name, safe="") or "+"
    if not dots:
        text = text.replace(".", "%2E")
    return text if len(text) <= _LENGTH_MAX else f"{text[: _LENGTH_MAX - 33]}+{_digest(name.encode())}"


def _digest(content: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(content)
