"""What each source has sealed, frame by frame, and where its rows came from.

A source frame has no file of ours: it is a list of references. They are written
down here when the frame is sealed, so that a frame can be traced back to file and
row long after its queue has forgotten it, and read again while the files are there.
Nothing depends on this journal: it may be lost, and a restart adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from holdfast.journals.journal import Journal

__all__ = ["SealJournal", "seals_of"]

# About 400 bytes each: some MB per source, and hours of frames of a second.
KEPT_FRAMES = 8192
# A frame whose rows lie scattered over more places than this is summed up: its line would be long.
RANGES_MAX = 64


class Refers(Protocol):
    """What is wanted of a `sources.reference.Reference`."""

    @property
    def path(self) -> str: ...

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]: ...

    def to_json(self) -> dict[str, Any]: ...


class SealJournal:
    """One per source in operation; the thread of the source writes it."""

    def __init__(self, directory: Path) -> None:
        self._journal = Journal(directory, "sealed", keep=KEPT_FRAMES, gapless=False, vital=False)

    def note(
        self,
        n: int,
        *,
        epoch: int,
        boundary_us: int,
        rows: int,
        size: int,
        checksum: str,
        late: int,
        references: Sequence[Refers],
        at: float,
    ) -> None:
        self._journal.append(
            {
                "n": n,
                "epoch": epoch,
                "boundary_us": boundary_us,
                "rows": rows,
                "bytes": size,
                "checksum": checksum,
                "late": late,
                "references": [_brief(reference) for reference in references],
                "at": at,
            }
        )

    def last_n(self) -> int:
        """The newest frame noted here, as far as it can be read; 0 if there is none."""
        last = self._journal.last()
        return 0 if last is None else last["n"]

    def close(self) -> None:
        self._journal.close()


def _brief(reference: Refers) -> dict[str, Any]:
    fields = reference.to_json()
    if len(reference.ranges) > RANGES_MAX:
        fields["scattered"] = len(reference.ranges)
        fields["ranges"] = [[reference.ranges[0][0], reference.ranges[-1][1]]]
        fields["blocks"] = []
    return fields


def seals_of(directory: Path) -> list[dict[str, Any]]:
    """The newest entry of each frame, in order; `first_at` is when it was sealed first."""
    if not directory.is_dir():
        return []
    found: dict[int, dict[str, Any]] = {}
    for entry in Journal(directory, "sealed", gapless=False).entries():
        before = found.get(entry["n"])
        epochs = [*before["epochs"], entry["epoch"]] if before else [entry["epoch"]]
        first_at = min(before["first_at"], entry["at"]) if before else entry["at"]
        if before and before["epoch"] > entry["epoch"]:
            entry = before
        found[entry["n"]] = entry | {"first_at": first_at, "epochs": epochs}
    return [found[n] for n in sorted(found)]
