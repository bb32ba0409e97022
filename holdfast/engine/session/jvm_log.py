"""The file that the JVM writes its log to, kept short."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["cut_log"]

# The JVM's own output: the newest part is kept.
JVM_LOG_BYTES_MAX = 10_000_000
JVM_LOG_KEPT = 1_000_000


def cut_log(path: Path, bytes_max: int = JVM_LOG_BYTES_MAX, kept: int = JVM_LOG_KEPT) -> bool:
    """Keep the end of a file that another process appends to, as `path.old`, and empty the file.

    It is emptied in place: the writer holds it open and appends. What it writes between
    the copy and the cut is lost.
    """
    try:
        if path.stat().st_size <= bytes_max:
            return False
        with open(path, "rb") as file, open(path.with_name(path.name + ".old"), "wb") as old:
            file.seek(-min(kept, path.stat().st_size), os.SEEK_END)
            shutil.copyfileobj(file, old)
        os.truncate(path, 0)
    except OSError:
        return False
    return True
