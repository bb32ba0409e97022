"""Sealed frames of a stream that lie on disk, as a queue wants them."""

from __future__ import annotations

from pathlib import Path

from holdfast.engine.board import Sealed
from holdfast.frames.files import list_frames, read_frame

__all__ = ["frames_on_disk"]


def frames_on_disk(folder: Path, upto: int) -> dict[int, Sealed]:
    """The frames up to this one that lie here without a gap; those below a gap are needed by nobody, and go."""
    found: dict[int, Sealed] = {}
    for n, _, path in reversed(list_frames(folder)):
        if n == upto - len(found):
            record, _ = read_frame(path)
            found[n] = Sealed(
                n, record.boundary_us, record.rows, record.bytes, record.checksum, record.epoch, record.kind, str(path)
            )
        elif n < upto:  # its deletion came to nothing
            path.unlink(missing_ok=True)
    return found
