"""A frame becomes fact: what was written to staging is renamed into the queue.

A frame that exists already is not sealed again: the new content must have the old
checksum, or the run stops; but for frames that other code made before (`settled`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.engine.flow.queues import Permit, Sealed
from holdfast.errors import FrameDiffers
from holdfast.frames.content import canonical, checksum
from holdfast.frames.files import frame_name, publish, read_record, write_frame
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.protocols.taint import Mark, mark_of

__all__ = ["Sealer"]


class Sealer:
    def __init__(
        self,
        outputs: tuple[str, ...],
        streams: Mapping[str, Path],
        schemas: Mapping[str, Schema],
        staging: Path,
        epoch: int,
    ) -> None:
        self._outputs, self._streams, self._schemas = outputs, streams, schemas
        self._staging, self._epoch = staging, epoch

    def seal(
        self, permit: Permit, found: Mapping[tuple[int, int], Any], settled: int, marks: Mapping[str, Mark]
    ) -> dict[str, Sealed]:
        """Rename what was written to staging; a frame that exists already must be the same."""
        sealed = {}
        for out, stream in enumerate(self._outputs):
            row = found.get((permit.n, out))
            path, rows, size, total = (
                (Path(row["file"]), row["rows"], row["bytes"], row["checksum"])
                if row is not None
                else self._empty(stream, permit, marks.get(stream))
            )
            final = self._streams[stream] / frame_name(permit.n, Kind.STABLE)
            try:
                there = publish(path, final)  # a frame that is there already must have the same content
            except FrameDiffers:
                if permit.n > settled:
                    raise
                there = read_record(final)
                rows, size, total = there.rows, there.bytes, there.checksum
            sealed[stream] = Sealed(
                permit.n,
                permit.boundary_us,
                rows,
                size,
                total,
                self._epoch,
                Kind.STABLE,
                str(final),
                mark=mark_of(there),
            )
        return sealed

    def _empty(self, stream: str, permit: Permit, mark: Mark | None) -> tuple[Path, int, int, str]:
        """Spark may plan an empty result as no task at all; the number is sealed all the same."""
        schema = self._schemas[stream]
        table = canonical(schema.arrow.empty_table(), schema, None)
        total = checksum(table, n=permit.n, boundary_us=permit.boundary_us, kind=Kind.STABLE)
        path = write_frame(
            self._staging,
            table,
            stream=stream,
            n=permit.n,
            kind=Kind.STABLE,
            epoch=self._epoch,
            boundary_us=permit.boundary_us,
            checksum=total,
            **Mark.fields(None if mark is None else mark.to_json()),
        )
        return path, 0, path.stat().st_size, total
