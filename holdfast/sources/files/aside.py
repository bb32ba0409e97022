"""Bad rows of growing files, kept apart: one file for those of a block, named by file number and byte.

They are synced before the position behind them is. After a crash, rows behind the
position that was written down are read again and set aside again; what an earlier try
left of them is removed first, so each is there once.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from holdfast import atomic
from holdfast.sources.files.grown import Watched
from holdfast.sources.files.stretches import Stretch

__all__ = ["clear_behind", "set_aside"]

_PER_FILE = 10**12  # bytes a file may have; the number of the file stands before


def set_aside(folder: Path, known: Watched, base: int, found: list[Stretch]) -> None:
    """Durable on return. `base`: the byte of the file where the block begins."""
    bad = [each for each in found if each.bad is not None]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    records = [
        {"at": at, "frame": None, "reason": each.bad.reason, "raw": each.bad.raw, "byte": base + each.start}
        for each in bad
    ]
    atomic.make_folder(folder, sync=True)
    _write(_path(folder, known.no, base + bad[0].start), records)


def clear_behind(folder: Path, files: dict[int, Watched], next_no: int) -> None:
    """Remove what was set aside and is not behind us: it is read again."""
    for path in folder.glob("bad-*.jsonl"):
        no, _ = divmod(int(path.stem.removeprefix("bad-")), _PER_FILE)
        if no < next_no and no not in files:
            continue  # a file that was used up and is forgotten
        pos = files[no].pos if no in files else 0
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        kept = [each for each in records if each["byte"] < pos]
        if not kept:
            path.unlink()
        elif len(kept) < len(records):
            _write(path, kept)


def _path(folder: Path, no: int, byte: int) -> Path:
    return folder / f"bad-{no * _PER_FILE + byte:012d}.jsonl"


def _write(path: Path, records: list[dict]) -> None:
    atomic.write_whole(path, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records), sync=True)
