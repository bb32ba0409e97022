"""What a state folder holds, part by part: bytes, files, and why they are kept.

Hard links count once (Spark's checkpoints of two epochs share their state files),
so the sum is what removing the folder would give back.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.records.kept import Kept

__all__ = ["Part", "Usage", "human_bytes", "size_of", "usage", "usage_lines"]

# Folder inside sources/NAME or units/NAME -> (part, why). Journals are the files beside them.
_OF_SOURCE = {
    "log": ("source log", "elements that cannot be read again; trimmed after keep="),
    "quarantine": ("quarantine", "rows set aside; yours to put back or remove"),
    "put-back": ("put back", "rows on their way into the next frames"),
}
_OF_UNIT = {
    "runs": ("state", "state of keyed operators and built-ins after the newest frames"),
    "spark": ("Spark checkpoint", "offsets, commits and Spark's state of this epoch"),
    "notes": ("notes", "what tasks of the frame in work did to the state"),
    "quarantine": ("quarantine", "rows set aside; yours to put back or remove"),
}
_AT_TOP = {
    "config": ("parameters", "every change, so that a replay takes the same values"),
    "records": ("incidents", "what went wrong, the newest 1,000 or so"),
    "logs": ("logs", "bounded; the newest are the first to read"),
    "spark": ("scratch", "Spark's temporary files, gone when the run ends"),
    "staging": ("staging", "frames being sealed; nothing here is needed after a crash"),
    "reports": ("reports", "yours to remove"),
    "ingest": ("ingest checkpoint", "where Spark's own sources go on"),
}


@dataclass(frozen=True, slots=True)
class Part:
    part: str
    of: str  # source, stream or unit; "" for the whole process
    bytes: int
    files: int
    why: str


@dataclass(frozen=True)
class Usage:
    process: str
    folder: str
    running: bool
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"bytes": self.bytes, "files": sum(part.files for part in self.parts)}


def usage(root: Path) -> Usage:
    kept = Kept(root)
    parts: list[Part] = []
    seen: set[tuple[int, int]] = set()

    def add(part: str, of: str, why: str, *paths: Path) -> None:
        size, files = _measure(paths, seen)
        if files:
            parts.append(Part(part, of, size, files, why))

    for kind, known, journal in (
        ("sources", _OF_SOURCE, "files and rows of the newest frames, for trace; index of files cut"),
        ("units", _OF_UNIT, "permits and commits of the newest frames: where to go on"),
    ):
        for folder in _folders(root / kind):
            inside = _folders(folder)
            for each in inside:
                part, why = known.get(each.name, (each.name, ""))
                add(part, folder.name, why, each)
            add("journal", folder.name, journal, *(each for each in folder.iterdir() if each not in inside))
    for folder in _folders(root / "streams"):
        add("queue", folder.name, "sealed frames that a consumer has not acknowledged", folder)
    top = _folders(root)
    for each in top:
        if each.name not in ("sources", "units", "streams"):
            part, why = _AT_TOP.get(each.name, (each.name, ""))
            add(part, "", why, each)
    add("deployment", "", "what runs here, lock and epoch", *(each for each in root.iterdir() if each not in top))
    for sink, target in kept.deployment.get("targets", {}).items():
        if target.get("kind") == "parquet" and (own := Path(target["path"]) / "_holdfast").is_dir():
            add("ledger", sink, f"which frames {target['path']} has", own)
    return Usage(kept.process, str(root), kept.in_use, tuple(parts))


def _folders(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir()) if path.is_dir() else []


def _measure(paths: tuple[Path, ...], seen: set[tuple[int, int]]) -> tuple[int, int]:
    size = files = 0
    todo = [str(path) for path in paths]
    while todo:
        path = todo.pop()
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                todo += [entry.path for entry in os.scandir(path)]
                continue
            found = os.lstat(path)
        except OSError:
            continue  # a run is active: what was there a moment ago may be gone
        files += 1
        if (found.st_dev, found.st_ino) not in seen:
            seen.add((found.st_dev, found.st_ino))
            size += found.st_size
    return size, files


def size_of(*paths: Path) -> int:
    """Bytes of files and folders; hard links count once."""
    return _measure(paths, set())[0]


def human_bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def usage_lines(found: Usage) -> list[str]:
    state = "running" if found.running else "not running"
    lines = [f"{found.process}  {human_bytes(found.bytes)} in {found.folder} ({state})"]
    for part in sorted(found.parts, key=lambda part: -part.bytes):
        files = f"{part.files:,} file{'' if part.files == 1 else 's'}"
        lines.append(f"  {human_bytes(part.bytes):>10}  {files:>13}  {part.part:<17} {part.of:<14} {part.why}".rstrip())
    return lines
