"""Sealed frames as files: Arrow IPC, uncompressed, read in place.

A frame is written beside its place and renamed into it, so a name that can be
seen is a whole frame. Behind it stands the hash of all its bytes (`sums`), which is
compared before any of them is parsed, whoever reads it. The file carries its own
record, and what lies under a frame's name must be that frame. A number sealed again
must have the same checksum: anything else is an error and the first one stays,
unless it is damaged.

Touches only the folder it is given. No clock, randomness or Spark.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from holdfast.atomic import sync_file, sync_folder
from holdfast.errors import Broken, FrameDiffers, UnitError, UsageError
from holdfast.frames.content import canonical, checksum
from holdfast.frames.identity import FrameRecord, Kind
from holdfast.frames.sums import checked_bytes, write_arrow
from holdfast.graph.schemas import Schema

__all__ = [
    "frame_name",
    "list_frames",
    "publish",
    "read_frame",
    "read_record",
    "seal_frame",
    "sweep",
    "write_frame",
]

_RECORD, _SEAL = b"holdfast.frame", b"holdfast.seal"
_SUMMED = b"holdfast.summed"  # there is a hash behind the file, or its end is missing
_NAME = re.compile(r"(\d{8,})\.(stable|tentative|lost)\.arrow")
_attempts = itertools.count()


def frame_name(n: int, kind: Kind) -> str:
    """'00000012.stable.arrow': names sort as numbers do, for the first 99,999,999."""
    return f"{n:08d}.{Kind(kind).value}.arrow"


def list_frames(directory: Path | str) -> list[tuple[int, Kind, Path]]:
    """The sealed frames in a folder by number; other files are passed over."""
    found = []
    for entry in os.scandir(directory):
        name = _NAME.fullmatch(entry.name)
        if name is not None:
            found.append((int(name[1]), Kind(name[2]), Path(entry.path)))
    return sorted(found)


def write_frame(
    directory: Path | str,
    table: pa.Table,
    *,
    stream: str,
    n: int,
    kind: Kind,
    epoch: int,
    boundary_us: int,
    checksum: str,
    reason: str = "",
    sync: bool = False,
    mark: str = "",
    mark_us: int = 0,
) -> Path:
    """Write canonical content under a name of its own; `publish` makes it a frame."""
    name = frame_name(n, kind)
    record = FrameRecord(
        stream, n, Kind(kind), epoch, boundary_us, table.num_rows, table.nbytes, checksum, name,
        reason, mark, mark_us,
    )  # fmt: skip
    # Two attempts at one frame never share a file: process id, then a count inside it.
    tmp = Path(directory) / f"{name}.{os.getpid()}-{next(_attempts)}.tmp"
    text = json.dumps(record.to_json(), sort_keys=True).encode()
    schema = table.schema.with_metadata({_RECORD: text, _SEAL: _seal(text), _SUMMED: b"1"})
    write_arrow(tmp, table.replace_schema_metadata(schema.metadata))
    if sync:
        sync_file(tmp)
    return tmp


def publish(tmp: Path | str, final: Path | str, *, sync: bool = False) -> FrameRecord:
    """Rename a written frame into its place and return its record.

    A frame that is there already stays, whoever sealed it, if the content is the
    same; other content is refused. One that is damaged is replaced.
    """
    fresh = read_record(tmp)
    try:
        there = read_frame(final)[0]
    except (UnitError, FrameDiffers):
        there = None
    if there is not None:
        os.unlink(tmp)
        if there.checksum != fresh.checksum:
            raise _sealed_otherwise(fresh, there)
        return there
    os.replace(tmp, final)
    if sync:
        sync_folder(Path(final).parent)
    return fresh


def seal_frame(
    directory: Path | str,
    table: pa.Table,
    schema: Schema,
    time: str | None,
    *,
    stream: str,
    n: int,
    kind: Kind,
    epoch: int,
    boundary_us: int,
    reason: str = "",
    sync: bool = False,
) -> FrameRecord:
    """Rows as an operator gave them -> canonical, hashed, written, published."""
    rows = canonical(table, schema, time)
    digest = checksum(rows, n=n, boundary_us=boundary_us, kind=kind)
    tmp = write_frame(
        directory,
        rows,
        stream=stream,
        n=n,
        kind=kind,
        epoch=epoch,
        boundary_us=boundary_us,
        checksum=digest,
        reason=reason,
        sync=sync,
    )
    return publish(tmp, Path(directory) / frame_name(n, kind), sync=sync)


def read_record(path: Path | str) -> FrameRecord:
    """The record of a frame, without its rows; the bytes of both are checked."""
    return _open(path)[0]


def read_frame(path: Path | str, *, verify: bool = False) -> tuple[FrameRecord, pa.Table]:
    """A frame, mapped into memory after its bytes were checked. `verify` recomputes the checksum of its rows as well."""
    record, reader, has_sum = _open(path)
    try:
        table = reader.read_all().replace_schema_metadata(None)
        if table.num_rows != record.rows:
            raise _damaged(path, f"it holds {table.num_rows} rows, its record says {record.rows}")
        if verify or not has_sum:
            table.validate(full=True)
            digest = checksum(table, n=record.n, boundary_us=record.boundary_us, kind=record.kind)
            if digest != record.checksum:
                raise _damaged(path, f"its rows hash to {digest}, its record says {record.checksum}")
    except (pa.ArrowException, OSError, ValueError, UsageError, Broken) as error:
        # UsageError, Broken: damage to the schema made a type we never write.
        raise _damaged(path, str(error)) from error
    return record, table


def sweep(directory: Path | str) -> int:
    """Remove what attempts that died left behind; only while nobody writes there."""
    left = [path for path in Path(directory).glob("*.arrow.*-*.tmp") if path.is_file()]
    for path in left:
        path.unlink()
    return len(left)


def _open(path: Path | str) -> tuple[FrameRecord, Any, bool]:
    """Record, rows to be read, and whether all bytes were compared with a hash: not those of the version before."""
    try:
        content, has_sum = checked_bytes(path)
        reader = pa.ipc.open_file(content)
        metadata = reader.schema.metadata or {}
        text = metadata.get(_RECORD, b"")
        if metadata.get(_SEAL) != _seal(text):
            raise _damaged(path, "its record is not the one that was written")
        if not has_sum and _SUMMED in metadata:
            raise _damaged(path, "its end is missing")
        record = FrameRecord.from_json(json.loads(text))
        if _NAME.fullmatch(Path(path).name) and Path(path).name != record.path:
            raise _damaged(path, f"it is the frame {record.path} of stream {record.stream!r}")
        return record, reader, has_sum
    except FileNotFoundError as error:
        raise UnitError(
            "HF-F005",
            "FrameMissing",
            f"the frame {Path(path).name} is not there.",
            where=str(path),
            effect="nothing was read; a frame leaves its queue only after all consumers have it",
            do="was the state folder moved or cleaned by hand? Restore it, or start from empty state; under hf.ecoc or "
            "hf.uncoordinated a unit makes such a frame again by itself",
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error


def _seal(text: bytes) -> bytes:
    return xxhash.xxh3_128(text).hexdigest().encode()


def _sealed_otherwise(fresh: FrameRecord, there: FrameRecord) -> FrameDiffers:
    return FrameDiffers(
        "HF-F001",
        "FrameDiffers",
        f"frame {fresh.n} of stream {fresh.stream!r} was sealed again with other content.",
        where=f"{fresh.kind}, epoch {there.epoch} first, epoch {fresh.epoch} now",
        why=f"checksum {there.checksum} ({there.rows} rows) became {fresh.checksum} ({fresh.rows} rows)",
        effect="the first one stays; the second was thrown away and nobody has read it",
        do="the operator is not a function of its inputs and state: run `holdfast check`, "
        "look for clocks, random numbers and the order of rows",
    )


def _damaged(path: Path | str, why: str) -> FrameDiffers:
    return FrameDiffers(
        "HF-F002",
        "FrameDamaged",
        f"the frame {Path(path).name} is not what was sealed.",
        where=str(path),
        why=why,
        effect="none of its rows was used",
        do="check the disk; put the file back from a copy, or start from empty state; under hf.ecoc or hf.uncoordinated "
        "a unit makes such a frame again by itself",
    )
