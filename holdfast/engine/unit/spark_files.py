"""What of a unit's Spark checkpoint outlasts a loss of power: synced, and listed.

Spark syncs nothing it writes. Its files come whole, by rename, and are never changed
under one name, so it is enough to sync each once, then the folders, and to write down
which they are:

    spark/3/            the checkpoint of epoch 3
    spark/3.synced      {"frame": 41, "files": [...]}: with these the state of frame 41 is whole

After a loss of power nobody can tell a torn snapshot from a whole one by looking at it:
what is not in the newest list goes (`keep_listed`), and the unit takes the frames after
that again.

No Spark: only its files.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from holdfast.atomic import sync_file, sync_folder, write_whole
from holdfast.hosts.spark_checkpoint import FRAMES_BEHIND_MAX

__all__ = ["SparkFiles", "keep_listed"]

_LIST = ".synced"


class SparkFiles:
    def __init__(self, folder: Path, position: Callable[[], tuple[int | None, int]]) -> None:
        """`position`: the last batch that Spark began, and the last frame that was worked on."""
        self._folder, self._list, self._position = folder, folder.with_name(folder.name + _LIST), position
        self._for_good = 0
        self.durable = 0  # the frame whose state outlasts a loss of power
        self._synced: set[Path] = set()
        self._folders: set[Path] = set()

    def committed(self) -> int:
        """The last frame that Spark has committed too; an earlier one if it begins another just now."""
        batch, _ = self._position()
        if batch is not None and (self._folder / "commits" / str(batch)).exists():
            now, at = self._position()
            self._for_good = at if now == batch else self._for_good
        return self._for_good

    def behind_max(self, committed: int) -> int:
        """How far Spark's state may stand behind our journal: as far as the newest list says, at least two frames."""
        listed = _newest(self._folder.parent)
        return max(FRAMES_BEHIND_MAX, 0 if listed is None else committed - listed[1])

    def make_durable(self, frame: int) -> int:
        """The state after this frame, which Spark has committed. Returns how many syncs it took."""
        there, folders = _files(self._folder)
        fresh, touched = there - self._synced, folders - self._folders
        for path in fresh:
            with contextlib.suppress(FileNotFoundError):  # Spark tidied it away: it is not needed any more
                sync_file(path)
                touched.add(path.parent)
        for folder in touched | {self._folder.parent, self._folder.parent.parent}:
            with contextlib.suppress(FileNotFoundError):
                sync_folder(folder)
        self._synced, self._folders = there, folders
        names = sorted(str(path.relative_to(self._folder)) for path in there)
        write_whole(self._list, json.dumps({"frame": frame, "files": names}), sync=True)
        self.durable = frame
        return len(fresh) + len(touched) + 4


def keep_listed(root: Path) -> int | None:
    """After a loss of power: leave of the checkpoints what is listed. The frame of the list; None: there is none."""
    found = _newest(root)
    if found is None:
        return None  # it ran without: what is there may do
    kept, frame, names = found
    for entry in root.glob("*"):
        number = entry.name.partition(".")[0]
        if number != kept and number.isdigit():
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
    folder = root / kept
    folder.mkdir(exist_ok=True)
    for path in _files(folder, every=True)[0]:
        if str(path.relative_to(folder)) not in names:
            path.unlink(missing_ok=True)
    (root / f"{kept}.ready").touch()
    return frame


def _newest(root: Path) -> tuple[str, int, set[str]] | None:
    """Epoch, frame and files of the newest list that is whole."""
    lists = sorted(root.glob(f"*{_LIST}"), key=lambda path: int(path.name.removesuffix(_LIST)), reverse=True)
    for path in lists:
        with contextlib.suppress(ValueError, KeyError, OSError):
            found = json.loads(path.read_text())
            return path.name.removesuffix(_LIST), found["frame"], {*found["files"]}
    return None


def _files(folder: Path, *, every: bool = False) -> tuple[set[Path], set[Path]]:
    """Files and folders below; without those that are being written, unless `every`."""
    files, folders = set(), set()
    for here, _, names in os.walk(folder):
        folders.add(Path(here))
        files |= {Path(here) / name for name in names if every or ".tmp" not in name}
    return files, folders
