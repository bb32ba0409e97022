"""The workers' daemon: what it must not import, and that it freezes once."""

from __future__ import annotations

import subprocess
import sys


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_daemon_is_light():
    """pandas and pyarrow start threads; a fork with threads may hang. Workers import them after the fork."""
    loaded = run_python(
        "import sys, holdfast.engine.session.worker_daemon; print([m for m in ('pandas', 'pyarrow', 'duckdb') if m in sys.modules])"
    )

    assert loaded.strip() == "[]"


def test_the_collector_freezes_after_the_third_collection():
    counts = run_python(
        "import gc\n"
        "from holdfast.engine.session.worker_daemon import freeze_after_warm_up\n"
        "freeze_after_warm_up()\n"
        "for _ in range(4): gc.collect(); print(gc.get_freeze_count() > 0)"
    )

    assert counts.split() == ["False", "False", "True", "True"]
