"""Whether the machine went down since the last run, and the torn ends of journals that leaves.

The kernel's boot id, kept in the state folder, says so; without a reboot what was written is
there. Journals are cut at the first line that is not whole: nothing behind it was relied on.
What becomes of frames and state is `engine.recover.torn`'s.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import xxhash

from holdfast.atomic import sync_file, write_whole

__all__ = ["boot_id", "cut_torn", "mark_booted", "may_be_torn"]

_BOOT = "boot"
# Synced at every line: only the last one can be torn.
_SYNCED = ("changes", "put-back")
_SEALS = "seals.jsonl"


def boot_id() -> str:
    """Another one after every start of the machine; "" where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def may_be_torn(root: Path) -> bool:
    """Whether the machine went down since the last run. A folder that says nothing is new, or older than the mark.

    Where the system has no id, nobody can tell: it may have.
    """
    now = boot_id()
    try:
        marked = (root / _BOOT).read_text().strip()
    except OSError:
        return False
    return not now or marked != now


def mark_booted(root: Path) -> None:
    """All that lies here was looked at, and is synced."""
    if not (root / _BOOT).exists() or may_be_torn(root):
        write_whole(root / _BOOT, boot_id() + "\n", sync=True)


def cut_torn(folders: Iterable[Path]) -> None:
    """Cut the journals of these folders where the first line is not whole."""
    for folder in folders:
        for path in sorted(folder.glob("*.jsonl")):
            _cut(path, only_last=path.name.startswith(_SYNCED), groups=path.name == _SEALS)


def _cut(path: Path, *, only_last: bool, groups: bool) -> None:
    data = path.read_bytes()
    whole, bad = 0, 0
    lines = data.split(b"\n")
    for at, line in enumerate(lines):
        if at == len(lines) - 1 and not line:
            break
        if at == len(lines) - 1 or not _is_line(line):
            rest = lines[at:]
            # Of seals, the lines of one call go together; the last of them says so.
            bad = sum(map(_ends_group, rest)) if groups else len([each for each in rest if each])
            break
        whole += len(line) + 1
    if whole == len(data) or ((only_last or groups) and bad > 1):
        return
    if whole == 0:
        path.unlink()
        return
    os.truncate(path, whole)
    sync_file(path)


def _ends_group(line: bytes) -> bool:
    return _is_line(line) and b'"state":' in line


def _is_line(line: bytes) -> bool:
    check, _, body = line.partition(b" ")
    if len(check) == 8 and xxhash.xxh32_hexdigest(body).encode() == check:
        return True
    if not line.startswith((b"{", b"[")):
        return not line or line.startswith(b"# ")
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
