"""The script that brings the tests' servers: it finds what is there, wherever Debian puts it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("install.sh")


def run(root: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """With Debian's shell and nothing else on PATH: whoever is not found would have to be installed."""
    tools = root / "tools"
    tools.mkdir()
    (tools / "id").symlink_to("/usr/bin/id")
    environment = {"PATH": str(tools), "ROOT": str(root)}
    return subprocess.run(["/bin/sh", str(SCRIPT), str(into)], env=environment, capture_output=True, text=True)


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    os.chmod(path, 0o755)


@pytest.mark.parametrize("where", ["root", "into"])
def test_servers_that_are_there_are_not_installed(tmp_path, where):
    """PostgreSQL in its usual place counted as absent, because nothing was unpacked beside it: `make test` failed."""
    folder = tmp_path / where
    program(folder / "usr/sbin/mosquitto")
    program(folder / "usr/lib/postgresql/15/bin/postgres")
    (tmp_path / "root").mkdir(exist_ok=True)

    done = run(tmp_path / "root", tmp_path / "into")

    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_missing_is_named_where_it_cannot_be_installed(tmp_path):
    program(tmp_path / "usr/sbin/mosquitto")

    done = run(tmp_path, tmp_path / "into")

    assert done.returncode == 2
    assert "postgresql" in done.stderr and "mosquitto" not in done.stderr
