"""Small deliveries on their way into the source log: appended to one file and synced, so that senders do not wait.

A sensor that is heard message by message would otherwise leave a file for each.
Records gather here for a fraction of a frame, then become one chunk. Each names
the chunk it will be part of: if that is there already, the record is history. A
torn record at the end, as a crash leaves it, was never acknowledged and is cut off.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

__all__ = ["Staged", "StagedRecord"]

_HEAD = struct.Struct("<QQ")  # bytes of the record, and their check word


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
        record = _HEAD.pack(len(body), xxhash.xxh3_64_intdigest(body)) + body
        view = memoryview(record)
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
        while at + _HEAD.size <= len(data):
            size, check = _HEAD.unpack_from(data, at)
            body = data[at + _HEAD.size : at + _HEAD.size + size]
            if len(body) < size or xxhash.xxh3_64_intdigest(body) != check:
                break
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
            at += _HEAD.size + size
        if at < len(data):
            os.truncate(self._path, at)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
