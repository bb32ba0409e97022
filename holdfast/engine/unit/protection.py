"""What a unit asks of those that protect it, and what it tells them.

`engine.protect.checkpointer` keeps checkpoints of it, `engine.protect.durable` syncs what it wrote;
a unit knows them by what is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import StateRefused

if TYPE_CHECKING:
    from holdfast.engine.unit.query import UnitQuery
    from holdfast.engine.unit.state_files import StateFiles

__all__ = ["Done", "Protector", "Syncer", "damaged_state"]


@dataclass(frozen=True, slots=True)
class Done:
    """A frame a unit has processed, as its protection wants to know it."""

    n: int
    rows: int
    input_bytes: tuple[int, ...]
    state_bytes: int


class Protector(Protocol):
    def safe(self, unit: str, committed: int) -> int:
        """What no restart of a unit that stands at `committed` will need again."""

    def join(self, query: UnitQuery, at: int, epoch: int) -> None:
        """A new attempt of a unit begins after frame `at`."""

    def processed(self, unit: str, done: Done) -> None: ...


class Syncer(Protocol):
    def taken_over(self, unit: str, files: StateFiles) -> int:
        """A new attempt of a unit goes on: how many commit records it keeps."""

    def wait_for_room(self, unit: str, n: int) -> None:
        """Frame `n` may not be taken before what is far behind it is synced."""


def damaged_state(folder: Path, error: OSError) -> StateRefused:
    return StateRefused(
        "HF-O010",
        "StateDamaged",
        f"a state file of unit {folder.name!r} is missing or damaged.",
        where=str(folder),
        why=str(error),
        effect="the frame was not processed; sealed frames and sink tables are as they were",
        do="restore the state folder from a copy, or run with --fresh OPERATOR to start it empty",
    )
