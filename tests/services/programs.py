"""Where a server's programs are: installed, or unpacked by `install.sh` for a user who may not install.

Debian keeps PostgreSQL's off the PATH, and Mosquitto's in a folder that an ordinary user's PATH lacks.
What was unpacked finds its libraries by LD_LIBRARY_PATH.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["UNPACKED", "mosquitto", "postgres_folder"]

UNPACKED = Path(__file__).resolve().parents[2] / ".venv" / "services"


def mosquitto() -> tuple[str, dict[str, str]]:
    """The program, and the environment it needs."""
    for found in (shutil.which("mosquitto"), "/usr/sbin/mosquitto"):
        if found and os.access(found, os.X_OK):
            return found, dict(os.environ)
    unpacked = UNPACKED / "usr" / "sbin" / "mosquitto"
    if unpacked.exists():
        return str(unpacked), _with_libraries()
    raise FileNotFoundError("no mosquitto here: sh tests/services/install.sh")


def postgres_folder() -> tuple[Path, dict[str, str]]:
    """The folder of initdb and postgres, and the environment they need."""
    for root, environment in ((Path("/"), dict(os.environ)), (UNPACKED, None)):
        found = sorted(root.glob("usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        if found:
            return found[-1].parent, environment if environment is not None else _with_libraries()
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent, dict(os.environ)
    raise FileNotFoundError("no PostgreSQL server here: sh tests/services/install.sh")


def _with_libraries() -> dict[str, str]:
    folders = sorted({str(path.parent) for path in UNPACKED.rglob("*.so*")})
    return os.environ | {"LD_LIBRARY_PATH": ":".join(folders)}
