"""Which names of a checkpoint may become files, and where: what comes from a backup store is not believed.

Whoever can write to a store chooses the names in its containers. Only three kinds are
known, none leads out of the unit's folder, and streams are the unit's own:

    runs/OPERATOR/FILE      state runs of an operator
    spark/offsets|commits|state/...   Spark's checkpoint
    streams/STREAM/N.KIND.arrow       sealed frames of the unit's outputs

Pure but for `refuse_links`, which looks whether a folder on the way is a symbolic link.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Unfit", "checked_record", "is_part", "path_parts", "refuse_links"]

_SPARK_PARTS = ("offsets", "commits", "state")
# Names as graphs, runs, frames, Spark and containers have them: letters of any language, digits and a few signs.
_PART = re.compile(r"\w[\w.=+@%~ -]*")
_FRAME = re.compile(r"\d{8,}\.(stable|tentative|lost)\.arrow")
_LENGTH_MAX = 255


class Unfit(ValueError):
    """It is no checkpoint of this unit; the text says why."""


def is_part(name: object) -> bool:
    """Whether this is one part of a path that stays where it is put: no separator, nothing hidden, nothing odd."""
    return isinstance(name, str) and _PART.fullmatch(name) is not None and len(name.encode()) <= _LENGTH_MAX


def path_parts(name: object, streams: Collection[str]) -> tuple[str, ...]:
    """The parts of the name of a file in a checkpoint of a unit that makes these streams."""
    parts = tuple(name.split("/")) if isinstance(name, str) else ()
    if not parts or not all(map(is_part, parts)):
        raise Unfit(f"it names a file {name!r}")
    kind = parts[0]
    if kind == "runs" and len(parts) == 3:
        return parts
    if kind == "spark" and len(parts) >= 3 and parts[1] in _SPARK_PARTS:
        return parts
    if kind == "streams" and len(parts) == 3 and parts[1] in streams and _FRAME.fullmatch(parts[2]):
        return parts
    raise Unfit(f"it names a file {name!r}, which is none of this unit's")


def checked_record(record: Any, frame: int) -> None:
    """The commit record of a checkpoint: of this frame, and naming runs that are files in their folder."""
    if not isinstance(record, Mapping) or record.get("n") != frame:
        raise Unfit(f"its record is not that of frame {frame}")
    try:
        named = [
            (op, run[0]) for op, shards in record.get("state", {}).items() for runs in shards.values() for run in runs
        ]
    except (AttributeError, IndexError, KeyError, TypeError):
        raise Unfit("its record names its state in no form we know") from None
    for operator in record.get("state", {}):
        if not is_part(operator):
            raise Unfit(f"its record names an operator {operator!r}")
    for operator, run in named:
        if not is_part(run):
            raise Unfit(f"its record names a state run {operator!r}/{run!r}")


def refuse_links(base: Path, path: Path) -> None:
    """A symbolic link between the folder and the file would lead what is written elsewhere."""
    at = base
    for part in path.relative_to(base).parts[:-1]:
        at = at / part
        if os.path.islink(at):
            raise Unfit(f"{at} is a symbolic link")
