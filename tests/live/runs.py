"""Run a process file as its user does, watch it from outside, and kill what it is made of.

A run is `holdfast run` in a process of its own. It dies by its own hand at a named
point (HOLDFAST_FAULTS) or by ours at a moment tied to its progress; whatever happens
then, the next run is started at once, while the Java process and the workers of the
last one may still live. What came of it is read from the sinks' tables and ledgers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.failpoints import victims

__all__ = ["Bench", "Fault", "LiveRun", "content"]

ROOT = Path(__file__).resolve().parents[2]
# A run takes seconds; a minute under load. One that takes this long hangs.
HANGS_S = 240
LOOK_S = 0.01


@dataclass(frozen=True)
class Fault:
    """SIGKILL for `victim` when `unit` is at `point` of `frame`."""

    point: str
    victim: str
    frame: int
    unit: str

    def __str__(self) -> str:
        return f"{self.victim} killed: {self.unit} frame {self.frame}, {self.point}"


@dataclass
class LiveRun:
    """One `holdfast run`, from its start to its end."""

    os_process: subprocess.Popen
    log: Path
    marks: dict[Fault, Path] = field(default_factory=dict)
    started_ns: int = field(default_factory=time.time_ns)

    def wrote(self, folder: Path, pattern: str) -> bool:
        """Whether such a file is there and not from an earlier run."""
        for path in folder.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime_ns > self.started_ns:
                    return True
        return False

    def reaches(self, what: Callable[[], bool]) -> bool:
        """Look until it is so; False if the run ended before."""
        while not what():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.os_process.wait(LOOK_S)
                return what()
        return True

    def kill(self, victim: str) -> list[int]:
        """SIGKILL from outside; the process ids that were there to be killed."""
        found = victims(victim, self.os_process.pid)
        for pid in found:
            send(signal.SIGKILL, pid)
        return found

    def ended(self) -> int:
        """The exit code, however long it takes (but not for ever)."""
        try:
            return self.os_process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            send(signal.SIGKILL, *victims("jvm", self.os_process.pid), self.os_process.pid)
            raise AssertionError(f"the run hangs\n{self.said()}") from None

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@dataclass
class Bench:
    """A folder with a process file, run as often as a test wants."""

    folder: Path
    file: str
    db: str = "rises.db"
    runs: list[LiveRun] = field(default_factory=list)

    @property
    def state(self) -> Path:
        return self.folder / ".holdfast" / Path(self.file).stem

    def start(self, *options: str, faults: tuple[Fault, ...] = ()) -> LiveRun:
        number = len(self.runs) + 1
        marks = {fault: self.folder / f"mark-{number}-{at}" for at, fault in enumerate(faults)}
        planned = [{**vars(fault), "mark": str(mark)} for fault, mark in marks.items()]
        log = self.folder / f"run-{number}.log"
        with open(log, "wb") as output:
            os_process = subprocess.Popen(
                [sys.executable, "-c", "from holdfast.cli.main import main; main()", "run", self.file, *options],
                cwd=self.folder,
                env={**environ(), "HOLDFAST_FAULTS": json.dumps(planned)},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        run = LiveRun(os_process, log, marks)
        self.runs.append(run)
        return run

    def finish(self, *options: str, faults: tuple[Fault, ...] = ()) -> LiveRun:
        """A run to the end of the input, which must be fine."""
        run = self.start(*options, faults=faults)
        assert run.ended() == 0, run.said()
        for fault, mark in run.marks.items():
            assert mark.exists(), f"never happened: {fault}"
        return run

    def last_written(self) -> int:
        """The highest frame in the sink's ledger; 0 while there is none."""
        try:
            with reading(self.folder / self.db) as connection:
                return connection.execute("select max(frame) from _holdfast_epoch").fetchone()[0] or 0
        except sqlite3.OperationalError:
            return 0

    def last_sealed(self, stream: str) -> int:
        """The highest frame any run has made, whether a sink has it or not."""
        waiting = [int(path.name.split(".")[0]) for path in (self.state / "streams" / stream).glob("*.arrow")]
        return max([self.last_written(), *waiting])

    def javas(self) -> list[int]:
        """Java processes that work in this folder, whoever their parent is."""
        name = os.fsencode(self.folder)
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and name in (entry / "cmdline").read_bytes() and not is_dead(entry):
                    found.append(int(entry.name))
        return [pid for pid in found if pid not in {run.os_process.pid for run in self.runs}]

    def clear_away(self) -> None:
        """Nothing of a failed test goes on running."""
        for run in self.runs:
            if run.os_process.poll() is None:
                send(signal.SIGKILL, run.os_process.pid)
                run.os_process.wait()
        send(signal.SIGCONT, *self.javas())
        send(signal.SIGKILL, *self.javas())


def environ() -> dict[str, str]:
    """Ours, with a JVM that compiles little: a run here lives for seconds."""
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": quick}


def send(number: int, *pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_dead(entry: Path) -> bool:
    return (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"


@contextlib.contextmanager
def reading(db: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(f"{db.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
        yield connection


def content(folder: Path) -> dict[str, dict[str, list[tuple]]]:
    """Every row of every sink, and what the ledger says of every frame (not which run wrote it)."""
    found = {}
    for db in sorted(folder.glob("*.db")):
        table = db.stem
        with reading(db) as connection:
            found[table] = {
                "rows": connection.execute(f"select * from {table} order by _frame, _i").fetchall(),
                "ledger": connection.execute(
                    "select process, sink, frame, kind, checksum, rows from _holdfast_ledger order by 1, 2, 3"
                ).fetchall(),
            }
    return found
