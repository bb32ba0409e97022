"""What a backup store answers: a copy of a checkpoint, what it knows of a unit, or that it is not the one it was."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.hosts.places import StoreAway
from holdfast.protocols.messages import Manifest

__all__ = ["Fetched", "StoreLost", "Trace"]


class StoreLost(StoreAway):
    """The folder is not the one that was opened, or what it must not forget is damaged: `reopen` and `join`."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A copy of a checkpoint. `passed`: nothing was read, as the register holds this higher epoch."""

    good: bool
    held: Manifest | None
    contents: dict[str, bytes] = field(default_factory=dict)
    passed: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """What a store knows of a unit. `joined`: it lost nothing, or has learnt it again."""

    joined: bool
    epoch: int
    manifest: Manifest | None
