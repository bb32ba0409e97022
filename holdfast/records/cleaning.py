"""What may be removed from a state folder without harm, and removing it.

Only what no run reads again: leftovers of killed attempts, Spark checkpoints of
older epochs, rotated logs, folders of units and streams the process no longer has.
Rows set aside and reports are a person's to decide on, so they are named apart.
Queues, state and source logs are never touched: a run trims those itself.

The folder's lock is held meanwhile, so no run can begin in between.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import StateRefused
from holdfast.records.kept import Kept
from holdfast.records.usage import human_bytes

__all__ = ["Cleaned", "Spare", "clean_folder", "clean_lines", "held_still"]


@dataclass(frozen=True, slots=True)
class Spare:
    path: str  # from the state folder
    bytes: int
    why: str


@dataclass(frozen=True)
class Cleaned:
    process: str
    folder: str
    removed: bool  # False: only looked at
    spare: tuple[Spare, ...]

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.spare)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"bytes": self.bytes}


@contextlib.contextmanager
def held_still(root: Path, process: str, doing: str) -> Iterator[None]:
    """No run uses the folder, and none begins while this is held."""
    handle = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
            raise StateRefused(
                "HF-R007",
                "RunGoesOn",
                f"process {process!r} is running: {doing} now could take away what it uses.",
                where=f"{root}, process id {holder}",
                effect="nothing was changed",
                do="holdfast stop, then again; a run trims its queues and logs by itself",
            ) from None
        yield
    finally:
        os.close(handle)


def clean_folder(root: Path, *, remove: bool = False, quarantine: bool = False, reports: bool = False) -> Cleaned:
    kept = Kept(root)
    with held_still(root, kept.process, "cleaning"):
        found = list(_spare(kept))
        if quarantine:
            found += [(each, "rows set aside") for each in _quarantined(root)]
        if reports:
            found += [(each, "report") for each in root.glob("reports/*")]
        spare = tuple(Spare(str(path.relative_to(root)), _size(path), why) for path, why in found)
        if remove:
            for path, _ in found:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
    return Cleaned(kept.process, str(root), remove, spare)


def _quarantined(root: Path) -> list[Path]:
    """Rows and records. Not the notes of a unit: which rows a frame is taken without is part of its input."""
    return [*root.glob("sources/*/quarantine/*"), *root.glob("units/*/quarantine/*.parquet")]


def _spare(kept: Kept) -> Iterator[tuple[Path, str]]:
    root = kept.root
    for each in _inside(root / "staging"):
        yield each, "frames that were being sealed when a run ended"
    for each in _inside(root / "spark"):
        yield each, "Spark's temporary files of a run that was killed"
    for each in _inside(root / "logs"):
        if re.search(r"\.\d+(\.log)?$|\.old$|^hs_err|-crash\.log$", each.name):
            yield each, "older log"
    units = set(kept.deployment.get("start", kept.deployment["units"]))
    for folder in _inside(root / "units"):
        if folder.name not in units:
            # Rows set aside are somebody's, and notes tell how many were left out.
            has_rows = (folder / "quarantine").is_dir()
            for each in _inside(folder) if has_rows else [folder]:
                if each.name != "quarantine":
                    yield each, "of a unit the process no longer has"
        else:
            yield from _spare_of_unit(kept, folder)
    for folder in _inside(root / "streams"):
        if folder.name not in kept.streams:
            yield folder, "of a stream nobody seals any more"
        else:
            for each in folder.glob("*.tmp"):
                yield each, "a frame that was never sealed"
    for each in root.glob("sources/*/log/*.tmp"):
        yield each, "a batch that was never logged"
    for each in [*root.glob("*.tmp"), *root.glob("sources/*/*.tmp"), *root.glob("units/*/*.tmp")]:
        yield each, "half-written when a run was killed"
    if (note := root / "control.json").exists():
        yield note, "address of a run that is gone"


def _spare_of_unit(kept: Kept, folder: Path) -> Iterator[tuple[Path, str]]:
    checkpoints = folder / "spark"
    ready = [int(mark.stem) for mark in checkpoints.glob("*.ready") if mark.stem.isdigit()]
    needed = max((number for number in ready if (checkpoints / str(number)).is_dir()), default=None)
    for each in _inside(checkpoints):
        number = each.name.removesuffix(".ready")
        # Without state in Spark no epoch is marked ready: the unit's journal says where to go on.
        if number.isdigit() and int(number) != needed:
            yield each, "Spark checkpoint of an older epoch" if each.is_dir() else "mark of an older epoch"
    for each in folder.glob("notes/*/*"):
        yield each, "notes of tasks whose frame is done"
    named = {
        run[0]
        for record in kept.commits(
            folder.name
        )  # all: a run drops those that no restart, remake or loss of power goes back to
        for shards in record["state"].values()
        for runs in shards.values()
        for run in runs
    }
    for each in folder.glob("runs/*/*"):
        if each.name not in named:
            yield each, "state that no commit names"


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(path: Path) -> int:
    files = [path] if not path.is_dir() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.lstat().st_size for each in files)


def clean_lines(found: Cleaned) -> list[str]:
    if not found.spare:
        return [f"{found.process}  nothing to remove in {found.folder}"]
    verb = "removed" if found.removed else "may be removed"
    lines = [f"{found.process}  {human_bytes(found.bytes)} {verb} in {found.folder}"]
    lines += [f"  {human_bytes(each.bytes):>10}  {each.path:<44} {each.why}" for each in found.spare]
    return lines if found.removed else [*lines, "nothing was removed; --yes removes it"]
