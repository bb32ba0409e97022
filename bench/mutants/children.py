"""Work in forked children with a limit of processor time and of memory: what hangs or grows ends, and is named so.

The limits are the kernel's, so they hold in the middle of a loop; processor time and not hours, so a busy machine
judges as an idle one does.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

__all__ = ["Verdict", "in_children"]

MEMORY_MORE = 3 << 30
# For a machine that gives a child no time at all, or a child that waits: this many times its processor time.
WALL_FACTOR = 30


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by` is empty for a survivor, else "tests", "simulator", "import", "hang", "memory"; `where` names the test or seed."""

    by: str
    where: str = ""
    what: str = ""
    cpu_s: float = 0.0


class _Child:
    def __init__(self, work: Callable[[], Verdict], cpu_s: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mutant-")
        self._answer = Path(self._folder.name) / "answer"
        self._cpu_s = cpu_s
        self._until = time.monotonic() + WALL_FACTOR * cpu_s
        self.verdict: Verdict | None = None
        self._pid = os.fork()
        if self._pid == 0:
            _serve(work, cpu_s, self._answer)

    def look(self) -> bool:
        """Whether it has ended."""
        if self.verdict is not None:
            return True
        ended, status, used = os.wait4(self._pid, os.WNOHANG)
        if not ended:
            if time.monotonic() > self._until:
                os.kill(self._pid, signal.SIGKILL)
            return False
        self.verdict = replace(self._judge(status), cpu_s=round(used.ru_utime + used.ru_stime, 2))
        self._folder.cleanup()
        return True

    def _judge(self, status: int) -> Verdict:
        if self._answer.exists():
            return Verdict(**json.loads(self._answer.read_text()))
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
            return Verdict("hang", "", f"not at its end after {self._cpu_s:.0f} s of processor time")
        raise RuntimeError(f"a child ended with status {status} and gave no answer")


def in_children(jobs: Iterable[Callable[[], Verdict]], cpu_s: float, workers: int) -> Iterator[Verdict]:
    """The verdicts in the order of the jobs; so many children at a time."""
    todo = iter(jobs)
    running = deque(_Child(job, cpu_s) for job in islice(todo, workers))
    pause = 0.005
    while running:
        busy = sum(not child.look() for child in running)
        while running and running[0].look():
            yield running.popleft().verdict
            pause = 0.005
        # One that is done early waits for its turn to be told; a few of those do no harm.
        for job in islice(todo, max(0, min(workers - busy, 8 * workers - len(running)))):
            running.append(_Child(job, cpu_s))
        time.sleep(pause)
        pause = min(pause * 1.3, 0.1)


def _serve(work: Callable[[], Verdict], cpu_s: float, answer: Path) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 5))
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_MORE, size + MEMORY_MORE))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            verdict = work()
        except MemoryError as failure:
            # What it has filled is held by the frames of the traceback.
            traceback.clear_frames(failure.__traceback__)
            verdict = Verdict("memory", "", "more memory than a child may have")
        except BaseException as failure:  # a module that cannot be imported, a schedule that cannot be made
            last = traceback.extract_tb(failure.__traceback__)[-1]
            verdict = Verdict("import", "", f"{type(failure).__name__}: {failure} in {last.name}")
        whole = answer.with_suffix(".part")
        whole.write_text(json.dumps(asdict(verdict)))
        whole.rename(answer)
    finally:
        os._exit(0)
