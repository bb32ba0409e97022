"""Small deliveries on their way into the source log: appended to one file and synced, so that senders do not wait.

A sensor that is heard message by message would otherwise leave a file for each.
Records gather here for a fraction of a frame, then become one chunk. Each names
the chunk it will be part of: if that is there already, the record is history. A
torn record at the end, as a crash leaves it, was never acknowledged and is cut off.
Any other record that is not what was written is an error: it and those after it were
acknowledged.

    b"HFstage2" | bytes of the body | their hash | hash of the head so far | body | b"HFstaged"

The end tells a body that rotted from one whose last pages a power cut never let onto the
disk: those come back as zeros, and the end with them.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from holdfast.atomic import sync_folder
from holdfast.errors import SourceError

__all__ = ["Staged", "StagedRecord"]

_BEFORE = struct.Struct("<QQ")  # of the version before: bytes of the record, and their check word
_HEAD = struct.Struct("<8sQQQ")
_MARK, _END = b"HFstage2", b"HFstaged"
# More bits than ever flip in eight bytes; a length, as that version began with, is further from the mark.
_BITS_MAX = 8


@dataclass(frozen=True, slots=True)
class StagedRecord:
    batch: int
    table: pa.Table
    mark: dict[str, Any] | None
    note: dict[str, Any]


class Staged:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self.records: list[StagedRecord] = []

    @property
    def rows(self) -> int:
        return sum(record.table.num_rows for record in self.records)

    def add(self, batch: int, table: pa.Table, mark: dict[str, Any] | None, note: dict[str, Any]) -> None:
        """Durable on return."""
        about = {"batch": str(batch), "mark": json.dumps(mark), "note": json.dumps(note)}
        out = pa.BufferOutputStream()
        kept = table.replace_schema_metadata(about)
        with pa.ipc.new_stream(out, kept.schema) as writer:
            writer.write_table(kept)
        body = out.getvalue().to_pybytes()
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            sync_folder(self._path.parent)  # a file without a name is none
        view = memoryview(_head(body) + body + _END)
        while view:
            view = view[os.write(self._file, view) :]
        os.fsync(self._file)
        self.records.append(StagedRecord(batch, table.replace_schema_metadata(None), mark, note))

    def clear(self) -> None:
        """They are in a chunk. If this is lost in a crash, their batch number says so."""
        self.records.clear()
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def recover(self) -> None:
        self.records.clear()
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        at = 0
        for end, body in _bodies(self._path, data):
            table = pa.ipc.open_stream(body).read_all()
            about = table.schema.metadata
            self.records.append(
                StagedRecord(
                    int(about[b"batch"]),
                    table.replace_schema_metadata(None),
                    json.loads(about[b"mark"]),
                    json.loads(about[b"note"]),
                )
            )
            at = end
        if at < len(data):
            os.truncate(self._path, at)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _head(body: bytes) -> bytes:
    begin = _HEAD.pack(_MARK, len(body), xxhash.xxh3_64_intdigest(body), 0)[:24]
    return begin + struct.pack("<Q", xxhash.xxh3_64_intdigest(begin))


def _bodies(path: Path, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Whole records up to a torn one, each with the byte behind it."""
    if _differ(data[:8], _MARK) > _BITS_MAX and not data.startswith(bytes(8)) and not _MARK.startswith(data[:8]):
        yield from _bodies_before(data)
        return
    at, number = 0, 0
    while at + _HEAD.size <= len(data):
        number += 1
        head = data[at : at + _HEAD.size]
        mark, size, check, own = _HEAD.unpack(head)
        if mark != _MARK or xxhash.xxh3_64_intdigest(head[:24]) != own:
            if not any(data[at:]):
                return
            raise _damaged(path, number, at)
        body = data[at + _HEAD.size : at + _HEAD.size + size]
        end = at + _HEAD.size + size + len(_END)
        if end > len(data):
            return
        if xxhash.xxh3_64_intdigest(body) != check:
            if end == len(data) and not any(data[end - len(_END) : end]):
                return
            raise _damaged(path, number, at)
        yield end, body
        at = end


def _bodies_before(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _BEFORE.size <= len(data):
        size, check = _BEFORE.unpack_from(data, at)
        body = data[at + _BEFORE.size : at + _BEFORE.size + size]
        if len(body) < size or xxhash.xxh3_64_intdigest(body) != check:
            return
        at += _BEFORE.size + size
        yield at, body


def _differ(one: bytes, other: bytes) -> int:
    """Bits in which they differ."""
    return sum((a ^ b).bit_count() for a, b in zip(one, other, strict=False)) + 8 * abs(len(one) - len(other))


def _damaged(path: Path, number: int, at: int) -> SourceError:
    return SourceError(
        "HF-S009",
        "LogDamaged",
        "deliveries that were acknowledged cannot be read.",
        where=f"{path}, record {number}, byte {at}",
        why="the record does not fit its check word, and it is not the torn end that a crash leaves",
        effect="nothing was read or deleted; sealed frames stand",
        do="restore the file from a copy; without one delete it, which gives up what is staged: less than a second of elements",
    )
