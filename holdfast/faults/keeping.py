"""The sink a verified run writes to in place of the user's: a folder that keeps every frame it is handed.

It answers as the user's own sink would. One that recognises a frame it has leaves it out,
and the frame is noted as come again; one that cannot (a callback) has it twice. A frame
appears by a rename, so a run that is killed leaves whole frames only; when it appeared is
the file's own time. Nothing of the user's is opened, called or written.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from holdfast.errors import Finding
from holdfast.frames.identity import FrameRecord
from holdfast.graph.schemas import Schema
from holdfast.levels.arrivals import Arrival, Output
from holdfast.sinks.writer import SinkContext

__all__ = ["FrameFolder", "KeptFrame", "frames_in", "output_of", "rows_in"]


@dataclass(frozen=True)
class FrameFolder:
    """`idempotent`: as the sink it stands for."""

    folder: Path
    idempotent: bool

    def describe(self) -> str:
        return "kept apart to be compared"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        return []

    def open(self, context: SinkContext) -> FrameFolder:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self

    def last(self) -> int:
        return max((_number(path) for path in self.folder.glob("*.frame")), default=0) if self.idempotent else 0

    def write(self, batch: Sequence[tuple[FrameRecord, pa.Table]]) -> list[bool]:
        return [self._put(record, table) for record, table in batch]

    def close(self) -> None:
        """Nothing is held open."""

    def _put(self, record: FrameRecord, table: pa.Table) -> bool:
        copies = len(list(self.folder.glob(f"{record.n:08d}.*.frame")))
        if copies and self.idempotent:
            with open(self.folder / "again", "a") as again:
                again.write(f"{record.n}\n")
            return False
        final = self.folder / f"{record.n:08d}.{copies}.frame"
        whole = final.with_suffix(".tmp")
        with pa.OSFile(str(whole), "wb") as file:
            said = {
                "checksum": record.checksum,
                "rows": str(record.rows),
                "kind": str(record.kind),
                "mark": record.mark,
            }
            schema = table.schema.with_metadata({name.encode(): value.encode() for name, value in said.items()})
            with pyarrow.ipc.new_file(file, schema) as writer:
                writer.write_table(table)
        os.replace(whole, final)
        return True


def output_of(name: str, folder: Path, due_us: dict[int, int] | None = None) -> Output:
    """What the sink of a finished run holds."""
    arrivals = [_arrival(path, due_us or {}) for path in sorted(folder.glob("*.frame"))]
    again = folder / "again"
    came = sorted({int(line) for line in again.read_text().split()}) if again.exists() else []
    return Output(name, tuple(arrivals), tuple(came))


def _arrival(path: Path, due_us: dict[int, int]) -> Arrival:
    with pa.memory_map(str(path)) as file:
        said = pyarrow.ipc.open_file(file).schema.metadata
    n = _number(path)
    return Arrival(
        n, int(said[b"rows"]), said[b"checksum"].decode(), partial(_payloads, path), path.stat().st_mtime_ns // 1000, due_us.get(n),
        said[b"mark"].decode(), said[b"kind"] == b"lost",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeptFrame:
    path: Path
    rows: int
    is_whole: bool  # neither LOST nor marked as made from something missing


def frames_in(folder: Path) -> dict[int, KeptFrame]:
    """By number, the frames a finished run has put there; of one that came twice the first."""
    found = {}
    for path in sorted(folder.glob("*.0.frame")):
        with pa.memory_map(str(path)) as file:
            said = pyarrow.ipc.open_file(file).schema.metadata
        found[_number(path)] = KeptFrame(path, int(said[b"rows"]), said[b"kind"] != b"lost" and not said[b"mark"])
    return found


def rows_in(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pyarrow.ipc.open_file(file).read_all().replace_schema_metadata()


def _payloads(path: Path) -> Iterable[Hashable]:
    """Rows as values that can be compared and counted; a list or map inside is taken by its text."""
    with pa.memory_map(str(path)) as file:
        table = pyarrow.ipc.open_file(file).read_all()
    columns = [
        [value if isinstance(value, Hashable) else repr(value) for value in column.to_pylist()]
        for column in table.columns
    ]
    return list(zip(*columns, strict=True))


def _number(path: Path) -> int:
    return int(path.name.split(".")[0])
