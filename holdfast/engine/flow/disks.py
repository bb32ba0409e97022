"""Disks that fill up: watched where a run writes, by bytes and by inodes, and met as a hold and not as an end.

Below a reserve sources are held and no frame is begun: Spark must still be able to commit what is in
work. If a disk is full all the same (another program took the rest, a quota is reached), whoever meets it waits:
a unit is started again when there is room, without a try being counted; a source is opened again where it
stopped; a sink counts as away; checkpoints and permits are tried again.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.errors import EnvironmentRefused, UnitError, UsageError

__all__ = ["FULL", "DiskWatch", "full_at_start", "full_while_running", "is_full"]

# The code of a unit, source or permit that met a full disk.
FULL = "HF-U081"
# Below this much free space sources are held: Spark must still be able to commit what is in work.
_RESERVE_BYTES = 256 * 1024 * 1024
# A frame makes a dozen files, a checkpoint of Spark's some dozens.
_RESERVE_INODES = 1024
# On the disk of a host or of the temporary folder no more than this share is asked for: it may be a small one.
_SHARE = 8
# After a disk was full though it looked as if it had room (a quota, blocks kept for root): the next try comes then.
_MET_S = 2.0
_WORDS = ("no space left on device", "disk quota exceeded", "database or disk is full", "not enough space on the disk")


def is_full(error: object) -> bool:
    """Whether a disk or a quota is the reason, however deep: an exception, what caused it, or the text of either."""
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or _says_full(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return isinstance(error, str) and _says_full(error)


def _says_full(text: str) -> bool:
    return any(word in text.lower() for word in _WORDS)


class DiskWatch:
    """Room on the disks a run writes to; HOLDFAST_DISK_RESERVE (bytes) says how much must stay free."""

    def __init__(self, root: Path, others: Iterable[Path] = (), now: Callable[[], float] = time.monotonic) -> None:
        self._root, self._others, self._now = root, tuple(others), now
        self.reserve_bytes = _reserve()
        self.reserve_inodes = _RESERVE_INODES
        self._met: tuple[float, str] | None = None

    def held(self) -> str:
        """Why sources are held, or nothing."""
        for place in (self._root, *self._others):
            if sentence := self._short_at(place, whole=place == self._root):
                return sentence
        if self._met is not None and self._now() - self._met[0] < _MET_S:
            return f"held: a disk is full ({self._met[1]}); nothing is lost, free some space and it goes on"
        return ""

    def met(self, error: BaseException) -> None:
        """It was full, whatever the numbers say."""
        place = getattr(error, "filename", None)
        self._met = (self._now(), f"{error}" if place is None else f"{os.strerror(errno.ENOSPC)}: {place}")

    def _short_at(self, place: Path, *, whole: bool) -> str:
        try:
            found = os.statvfs(place)
        except OSError:
            return ""  # it is not there: a lost host, or one that is about to be made
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        inodes, count = found.f_favail, found.f_files
        bytes_wanted = self.reserve_bytes if whole else min(self.reserve_bytes, size // _SHARE)
        inodes_wanted = min(self.reserve_inodes, count // _SHARE)  # file systems without a number of inodes say 0
        if free < bytes_wanted:
            room = f"{free // 1_000_000} MB free, {bytes_wanted // 1_000_000} MB reserved"
        elif inodes < inodes_wanted:
            room = f"{inodes} inodes free, {inodes_wanted} reserved"
        else:
            return ""
        return f"held: disk nearly full ({room}, {place}); nothing is lost, free some space and it goes on"


def _reserve() -> int:
    text = os.environ.get("HOLDFAST_DISK_RESERVE", "")
    if not text:
        return _RESERVE_BYTES
    if not text.isdigit():
        raise UsageError(
            "HF-E006",
            "NotAReserve",
            f"HOLDFAST_DISK_RESERVE={text!r} is no number of bytes.",
            effect="nothing was started, nothing was read",
            do="give bytes, e.g. 268435456, or unset it",
        )
    return int(text)


def full_while_running(where: str, error: object, effect: str) -> UnitError:
    place = getattr(error, "filename", None)
    return UnitError(
        "HF-U081",
        "DiskFull",
        "a disk is full.",
        where=where if place is None else f"{where}; {place}",
        why=next((line.strip() for line in str(error).splitlines() if _says_full(line)), str(error))[:300],
        effect=effect,
        do="free some space (bytes or inodes: df -h, df -i): it goes on by itself",
    )


def full_at_start(process: str, error: BaseException) -> EnvironmentRefused:
    place = getattr(error, "filename", None)
    return EnvironmentRefused(
        "HF-E062",
        "DiskFullAtStart",
        f"stream process {process!r} cannot be started: a disk is full.",
        where="" if place is None else str(place),
        why=str(error).strip().splitlines()[0][:300] if str(error).strip() else "",
        effect="nothing was started; sealed frames and sinks are as they were",
        do="free some space (bytes or inodes: df -h, df -i) and run again",
    )
