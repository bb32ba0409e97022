"""Spark's state changelogs: what of them must travel, and how they are made whole again.

Spark keeps a state store as snapshots (N_ID.zip with files of SSTs/) and one changelog a
version (N_ID.changelog). A changelog begins with its lineage: the versions and ids back to
the last snapshot, which is all Spark goes by when it loads that version. After a snapshot
lineages begin there, so an older snapshot with all changelogs since holds the same state,
but Spark would not find it. In a backup it stays the base nevertheless: a changelog travels
without Spark's compression and with its parent only; at a restore every lineage is written
out again, back to the base that is there.

Format (Spark 4, checkpoint format 2, changelogs v3 and v4): two strings, `vN` and the
lineage as JSON, then records, in blocks of lz4-java ("LZ4Block"). What is not of this
form is left as it is.

Pure: bytes and names.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import xxhash

__all__ = ["base_of", "lineage", "put_together", "snapshot_files", "store_of", "stripped", "version_of"]

Item = tuple[int, str]  # version, id

_NAME = re.compile(r"(?P<store>.*/)(?P<version>\d+)_(?P<id>[^./]+)\.(?P<kind>changelog|zip)")
_BLOCK = b"LZ4Block"
_HEADER = struct.Struct("<8sBiiI")
_RAW, _LZ4 = 0x10, 0x20
_SEED, _MASK = 0x9747B28C, 0x0FFFFFFF
_BLOCK_MAX = 1 << 16
# Before the raw content of a changelog that was stripped.
_MARK = b"holdfast changelog 1\n"


def store_of(name: str) -> str | None:
    """The folder of a state store, if this is one of its versioned files."""
    match = _NAME.fullmatch(name)
    return None if match is None else match["store"]


def version_of(name: str) -> tuple[int, str, str]:
    """Version, id and kind (changelog or zip) of a versioned file."""
    match = _NAME.fullmatch(name)
    assert match is not None, name
    return int(match["version"]), match["id"], match["kind"]


def lineage(content: bytes) -> list[Item] | None:
    """The versions a changelog names as those before it; None if it is of another form."""
    raw = _raw(content)
    return None if raw is None else _split(raw)[1]


def stripped(content: bytes) -> bytes:
    """A changelog as it travels."""
    raw = _raw(content)
    if raw is None or content.startswith(_MARK):
        return content
    version, before, records = _split(raw)
    return _MARK + _joined(version, before[-1:], records)


def base_of(
    version: int, identity: str, before: Callable[[Item], list[Item] | None], zips: Iterable[Item]
) -> list[Item] | None:
    """From a base that is there up to this version: the way back through the lineages of changelogs.

    The first item is a snapshot among `zips` or version 1, which needs none. None: there
    is no way, as a changelog is missing or of another form.
    """
    zips = {*zips}
    way = [(version, identity)]
    while way[0] not in zips:
        items = before(way[0])
        if items is None:
            return None
        if not items:
            return way if way[0][0] == 1 else None
        # The last snapshot that is there is near enough.
        found = next((at for at in reversed(range(len(items))) if items[at] in zips), 0)
        way = items[found:] + way
    return way


def put_together(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Stripped changelogs as Spark reads them, each with its lineage back to a base among the files."""
    whole = dict(files)
    stores: dict[str, dict[Item, str]] = defaultdict(dict)
    zips: dict[str, set[Item]] = defaultdict(set)
    for name, content in files.items():
        store = store_of(name)
        if store is not None:
            version, identity, kind = version_of(name)
            if kind == "zip":
                zips[store].add((version, identity))
            elif content.startswith(_MARK):
                stores[store][version, identity] = name
    for store, names in stores.items():
        ways: dict[Item, list[Item]] = {}
        for item in sorted(names):
            head, before, records = _split(_raw(files[names[item]]))
            parent = before[-1] if before else None
            if parent is None:
                way = []
            elif parent in zips[store]:
                way = [parent]
            else:
                way = [*ways.get(parent, []), parent]
            ways[item] = way
            whole[names[item]] = _compressed(_joined(head, way, records))
    return whole


def snapshot_files(content: bytes) -> frozenset[str] | None:
    """Names of the files beside a snapshot that belong to it; None if it does not say."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            said = json.loads(archive.read("metadata").partition(b"\n")[2])
        files = [*said["sstFiles"], *said.get("logFiles", ())]
        return frozenset(
            each.get("dfsSstFileName") or each.get("dfsLogFileName") or each["dfsFileName"] for each in files
        )
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return None


# ---- the form of a changelog ----


def _raw(content: bytes) -> bytes | None:
    if content.startswith(_MARK):
        return content[len(_MARK) :]
    if not content.startswith(_BLOCK):
        return None
    raw = _decompressed(content)
    return raw if raw is not None and raw[2:4] in (b"v3", b"v4") else None


def _split(raw: bytes) -> tuple[bytes, list[Item], bytes]:
    size = struct.unpack_from(">H", raw, 4)[0]
    said = json.loads(raw[6 : 6 + size])
    return raw[2:4], [(item["version"], item["checkpointUniqueId"]) for item in said], raw[6 + size :]


def _joined(version: bytes, before: list[Item], records: bytes) -> bytes:
    said = json.dumps([{"version": n, "checkpointUniqueId": own} for n, own in before], separators=(",", ":")).encode()
    return struct.pack(">H", 2) + version + struct.pack(">H", len(said)) + said + records


def _decompressed(content: bytes) -> bytes | None:
    codec, parts, at = pa.Codec("lz4_raw"), [], 0
    view = memoryview(content)
    while at < len(content):
        magic, token, packed, size, check = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        if magic != _BLOCK:
            return None
        if size == 0:
            break
        block = view[at : at + packed]
        at += packed
        part = bytes(block) if token & 0xF0 == _RAW else codec.decompress(block, size, asbytes=True)
        if xxhash.xxh32_intdigest(part, _SEED) & _MASK != check:
            return None
        parts.append(part)
    return b"".join(parts)


def _compressed(raw: bytes) -> bytes:
    """As blocks that are not compressed: Spark reads it once."""
    parts = []
    level = _BLOCK_MAX.bit_length() - 1 - 10
    for at in range(0, len(raw), _BLOCK_MAX):
        part = raw[at : at + _BLOCK_MAX]
        check = xxhash.xxh32_intdigest(part, _SEED) & _MASK
        parts += [_HEADER.pack(_BLOCK, _RAW | level, len(part), len(part), check), part]
    return b"".join([*parts, _HEADER.pack(_BLOCK, _RAW | level, 0, 0, 0)])
