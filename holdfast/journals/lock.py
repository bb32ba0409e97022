"""The lock of a state folder, for a reader that does not want to take it."""

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
        os.ftruncate(handle, 0)  # of a killed run: it is not running, whichever process has its number now
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
