"""Whether a file is still the one that was read: by what the file system says, and by its bytes.

Size, time of modification and time of change (ctime) settle it at the price of one
stat: nobody can set a ctime. Two things they do not settle. File systems stamp in
ticks, so a file that was written within the last moments may be written again under
the same stamps; what is so fresh is never trusted by its stamps alone. And a file that
was copied, touched or linked has new stamps and the old bytes; then the bytes decide.

xxh3 finds change; it does not fend off forgers.
"""

from __future__ import annotations

import gzip
import os
import time
import zlib
from dataclasses import dataclass, replace

import xxhash

from holdfast.errors import SourceError

__all__ = [
    "UNTRUSTED",
    "Identity",
    "digest_of",
    "identity_of",
    "is_fresh",
    "prefix_digest",
    "same_bytes",
    "stat_of",
    "trusted",
]

# Stamps are exact to some milliseconds on local disks, to a second or two on old and remote ones.
FRESH_NS = 2_000_000_000
UNTRUSTED = -1  # a ctime that no file has
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    size: int
    mtime_ns: int
    ctime_ns: int  # UNTRUSTED: the file was too fresh when it was looked at
    ino: int = 0

    def matches(self, now: Identity) -> bool:
        """By the stamps. False says nothing: the bytes may be the same all the same."""
        return (self.size, self.mtime_ns, self.ctime_ns) == (now.size, now.mtime_ns, now.ctime_ns)


def identity_of(path: str) -> Identity:
    """As it is now, or HF-S001."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise SourceError(
            "HF-S001",
            "SourceMissing",
            "a file of this source cannot be opened.",
            where=path,
            why=error.strerror or str(error),
            effect="its rows are not read; frames sealed before stand",
            do="put the file back, or run from a fresh state folder without it",
        ) from error
    return Identity(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def stat_of(path: str) -> tuple[int, int]:
    """(size, mtime_ns), or HF-S001."""
    found = identity_of(path)
    return found.size, found.mtime_ns


def is_fresh(identity: Identity) -> bool:
    return time.time_ns() - max(identity.ctime_ns, identity.mtime_ns) < FRESH_NS


def trusted(identity: Identity) -> Identity:
    """What may be compared later: without its ctime if that may stand for two contents."""
    return replace(identity, ctime_ns=UNTRUSTED) if is_fresh(identity) else identity


def digest_of(path: str) -> str:
    """Of all bytes, as they lie on disk."""
    seen = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        buffer = memoryview(bytearray(_READ_BYTES))
        while count := file.readinto(buffer):
            seen.update(buffer[:count])
    return seen.hexdigest()


def prefix_digest(path: str, stop: int) -> str | None:
    """Of the first `stop` bytes of the text (of a .gz file: of what it inflates to); None if there are fewer."""
    seen, left = xxhash.xxh3_128(), stop
    try:
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb", buffering=0) as file:
            while left and (more := file.read(min(left, _READ_BYTES))):
                seen.update(more)
                left -= len(more)
    except (OSError, EOFError, zlib.error):
        return None
    return None if left else seen.hexdigest()


_digests: dict[tuple[str, Identity], str] = {}


def same_bytes(path: str, recorded: Identity, digest: str, now: Identity) -> bool:
    """By the stamps if they settle it, else by the bytes; a digest is kept while the stamps stand for it."""
    if recorded.matches(now):
        return True
    if recorded.size != now.size:
        return False
    found = _digests.get((path, now))
    if found is None:
        fresh = is_fresh(now)
        found = digest_of(path)
        if not fresh:
            if len(_digests) > 10_000:
                _digests.clear()
            _digests[(path, now)] = found
    return found == digest
