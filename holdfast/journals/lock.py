"""The lock of a state folder, as somebody finds it who does not want it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["is_held"]


def is_held(lock: Path) -> bool:
    """Whether a run holds it now."""
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)  # of one that was killed: it is not running, whatever has its number now
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
