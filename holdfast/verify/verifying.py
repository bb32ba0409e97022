"""Run a process undisturbed, run it again through a fault plan, and compare what the sinks got.

Of the undisturbed run some frames are computed again by another way (`holdfast.oracle`): what is
wrong in both runs alike no comparison of the two can show.

Both runs are os processes of their own in fresh folders. A run that dies is started again
until it finishes; it is given up when it died twice without a new fault having struck,
and what its sinks lack then is lost. Pace: as recorded where a delay is promised (at full
speed a delay says nothing), else as fast as it goes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from holdfast.errors import UnitError, UsageError
from holdfast.faults.inputs import LogInput
from holdfast.faults.keeping import output_of
from holdfast.faults.plans import Fault, Victims, drawn, environment, homes_of
from holdfast.faults.trial import began_us, redirected, sink_folder
from holdfast.graph.model import Graph
from holdfast.graph.promises import Within
from holdfast.journals.incidents import incidents_of
from holdfast.journals.journal import Journal
from holdfast.levels.arrivals import Output
from holdfast.levels.judging import Verdict, is_broken, judge, judge_recomputed
from holdfast.levels.measuring import Measured, measure
from holdfast.levels.recomputed import Recomputed
from holdfast.oracle.asking import Asked, did_not_end, told
from holdfast.sources.pace import Pace

__all__ = ["SURVIVES", "Bench", "Ran", "Verified"]

#: What this version lives through, and what it does not; `verify` says so with every answer.
SURVIVES = (
    "deaths of Python workers, units, the JVM and the driver at any commit point, a lost last commit entry, "
    "silent sources; with a protection also lost hosts, deleted frames, damaged state and damaged copies, slow and "
    "failing stores; "
    "not the loss of the state folder, nor of a unit's host and all copies at once"
)
# Deaths without a new fault after which a run is given up: the second shows that it does not pass.
_FRUITLESS_MAX = 2


@dataclass(frozen=True)
class Ran:
    """How a run went, over all its starts."""

    folder: Path
    outputs: tuple[Output, ...]
    seconds: float
    starts: int
    exit_code: int  # of the last start; 0: it finished
    hit: tuple[bool, ...]  # by fault
    deaths: int  # of units, mended inside a run
    said: str  # the end of what it printed
    began_us: int = 0  # when frame 1 began, at a pace

    @property
    def last(self) -> int:
        return max((arrival.n for output in self.outputs for arrival in output.arrivals), default=0)

    @property
    def frames(self) -> int:
        return len({arrival.n for output in self.outputs for arrival in output.arrivals})


@dataclass(frozen=True)
class Verified:
    plan: tuple[Fault, ...]
    ideal: Ran
    faulty: Ran
    measured: tuple[Measured, ...]
    verdicts: tuple[Verdict, ...]
    pace: str
    recomputed: tuple[Recomputed, ...] = ()  # none of a plan of `chaos`: it is not asked there
    oracle_s: float = 0.0

    @property
    def is_broken(self) -> bool:
        """A promise is broken, or a frame is not what its inputs give."""
        return is_broken(self.verdicts) or self.is_wrong_alike

    @property
    def is_wrong_alike(self) -> bool:
        return any(line.differs for line in self.recomputed)

    @property
    def is_promised(self) -> bool:
        return any(verdict.promised for verdict in self.verdicts)

    @property
    def differs(self) -> bool:
        """The faulty run gave something else than the ideal one."""
        return any(each.lost or each.wrong or each.duplicates or each.missing for each in self.measured)

    @property
    def is_fine(self) -> bool:
        """Nothing was found wrong. Where nothing was promised, both runs have to be the same for that."""
        return not self.is_broken and (self.is_promised or not self.differs)

    @property
    def answer(self) -> str:
        """In one sentence, and no more than was shown."""
        said = ["the oracle computes other frames than the run made"] if self.is_wrong_alike else []
        promised = [verdict for verdict in self.verdicts if verdict.promised]
        unmeasured = sorted({verdict.what for verdict in promised if verdict.state == "not measured"})
        if not promised:
            gave = "differs from the ideal one" if self.differs else "gave the same as the ideal one"
            said.append(f"nothing was promised, so nothing was asked of it; the faulty run {gave}")
        elif is_broken(promised):
            said.append("a promise is broken")
        elif unmeasured:
            said.append(f"no promise is broken; not measured: {', '.join(unmeasured)}")
        else:
            said.append("all promises are kept")
        return "; ".join(said)

    def to_json(self) -> dict[str, Any]:
        return {
            "kept": (not is_broken(verdict for verdict in self.verdicts if verdict.promised))
            if self.is_promised
            else None,
            "answer": self.answer,
            "pace": self.pace,
            "frames": self.ideal.frames,
            "faults": [{**fault.to_json(), "hit": hit} for fault, hit in zip(self.plan, self.faulty.hit, strict=True)],
            "runs": {
                name: {
                    "seconds": round(ran.seconds, 1),
                    "starts": ran.starts,
                    "unit_deaths": ran.deaths,
                    "exit": ran.exit_code,
                }
                for name, ran in (("ideal", self.ideal), ("faulty", self.faulty))
            }
            | {"oracle": {"seconds": round(self.oracle_s, 1)}},
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "oracle": [line.to_json() for line in self.recomputed],
            "errors": [str(error) for error in told(self.recomputed)],
            "survives": SURVIVES,
        }


class Bench:
    """A folder in which one process is run as often as is asked, always from the beginning."""

    def __init__(
        self, graph: Graph, file: str, folder: Path, *, until: int | None = None, rate: str | None = None,
        log: LogInput | None = None, say: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        self.graph, self._file, self._folder, self._until, self._say = graph, file, folder, until, say
        self._log, self._first = log, 1 if log is None else log.first
        if log is not None:
            self._until = log.last if until is None else min(log.last, log.first + until - 1)
        is_timed = any(isinstance(promise, Within) for sink in graph.sinks for promise in sink.promises)
        self.rate = rate or ("as recorded" if is_timed else "fast")
        self._pace = Pace.of(self.rate)
        live = [source.name for source in graph.sources if not (source.reader.reliable and source.reader.bounded)]
        if live and log is None:
            raise _refused(
                f"source {live[0]!r} cannot be run twice over the same input.", "it is live: what it gave is gone, or has no end",
                "take what the source log has kept: --input log, or --input log:last-5m",
            )  # fmt: skip
        if not graph.sinks:
            raise _refused("the process has no sink.", "there is nothing to compare", "declare a sink for what matters")
        self.victims = Victims.of(graph)
        self._oracle_s = 0.0

    @property
    def first(self) -> int:
        """The first frame of the input: 1 unless it comes out of the middle of a log."""
        return self._first

    @property
    def pace(self) -> str:
        return (
            "as fast as it goes"
            if self.rate == "fast"
            else "at recorded pace"
            if self.rate == "as recorded"
            else f"at {self.rate}"
        )

    def ideal(self, *, keep_all: bool = False) -> Ran:
        """The undisturbed run. It has to finish: everything else is measured by it. `keep_all`: for `recompute`."""
        ran = self._run("ideal", (), keep_all)
        if ran.exit_code:
            raise UnitError(
                "HF-U060", "IdealRunFailed", f"the undisturbed run ended with exit {ran.exit_code}.", where=self._file,
                why=ran.said, effect="nothing was compared; your sinks and your state folder were not touched",
                do="mend what stops it; `holdfast check` and `holdfast run` show the same error",
            )  # fmt: skip
        return ran

    def last_with_input(self, ideal: Ran) -> int:
        """The last frame that is not a closing one."""
        ends = [
            json.loads(path.read_text())["last"] for path in (ideal.folder / "state" / "sources").glob("*/end.json")
        ]
        return min([ideal.last, *([max(ends)] if ends else [])])

    def settled(self, plan: Sequence[Fault], ideal: Ran, seed: int) -> list[Fault]:
        return drawn(plan, self.victims, self.first, self.last_with_input(ideal), Random(seed))

    def recompute(self, ideal: Ran, asked: Asked, seed: int) -> tuple[Recomputed, ...]:
        """Some frames of a run that kept all, computed again by an os process that shares no plan with it."""
        folder = self._folder / "oracle"
        folder.mkdir(mode=0o700)
        said = {**self._said(), "ran": str(ideal.folder), "count": asked.count, "seed": seed}
        (folder / "oracle.json").write_text(json.dumps(said))
        self._say("oracle ...")
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="holdfast-oracle-", ignore_cleanup_errors=True) as temporary:
            pids: list[int] = []
            try:
                # What functions put where files for a while belong is not found there again.
                code = self._start("holdfast.oracle", folder, {"HOLDFAST_FAULTS": "[]", "TMPDIR": temporary}, pids)
            finally:
                _clear_away(pids, folder)
        self._oracle_s = time.monotonic() - began
        answer = folder / "answer.json"
        if code or not answer.exists():
            raise did_not_end(self._file, code, _tail(folder / "log"))
        return tuple(Recomputed.from_json(each) for each in json.loads(answer.read_text()))

    def compare(
        self, ideal: Ran, plan: Sequence[Fault], name: str = "faulty", recomputed: Sequence[Recomputed] = ()
    ) -> Verified:
        """The same through the faults, and what came of it."""
        faulty = self._run(name, plan)
        measured = measure(ideal.outputs, faulty.outputs)
        promises = {sink.name: sink.promises for sink in self.graph.sinks}
        verdicts = []
        for each in measured:
            verdicts += judge(promises[each.output], each)
            verdicts += [judge_recomputed(line) for line in recomputed if line.output == each.output]
        recomputed = tuple(recomputed)
        return Verified(
            tuple(plan), ideal, faulty, tuple(measured), tuple(verdicts), self.pace, recomputed, self._oracle_s
        )

    # ---- one run, over all its starts ----

    def _said(self) -> dict[str, Any]:
        taken = None if self._log is None else str(self._folder / "input")
        return {"file": self._file, "until": self._until, "rate": self.rate, "input": taken}

    def _run(self, name: str, plan: Sequence[Fault], keep_all: bool = False) -> Ran:
        folder = self._folder / name
        folder.mkdir(parents=True, mode=0o700)
        if self._log is not None:
            self._log.take(self._folder / "input")
        (folder / "trial.json").write_text(json.dumps({**self._said(), "keep_all": keep_all}))
        marks = [folder / f"hit-{at}" for at in range(len(plan))]
        homes = homes_of(redirected(self.graph, folder), folder / "state")
        armed = environment(plan, marks, homes)
        began, starts, fruitless, code = time.monotonic(), 0, 0, 1
        pids: list[int] = []
        try:
            while code and fruitless < _FRUITLESS_MAX:
                before = [mark.exists() for mark in marks]
                starts += 1
                self._say(f"{name} run, start {starts} ...")
                code = self._start("holdfast.faults.trial", folder, {"HOLDFAST_FAULTS": json.dumps(armed)}, pids)
                struck = [
                    fault for fault, mark, was in zip(plan, marks, before, strict=True) if mark.exists() and not was
                ]
                fruitless = 0 if struck else fruitless + 1
                for fault in struck:
                    if fault.do == "delete last commit":
                        _forget_last_commit(homes.unit_folder(fault.whom))
                if code and not plan:
                    break
        finally:
            _clear_away(pids, folder)
        return Ran(
            folder,
            tuple(self._output(folder, sink.name) for sink in self.graph.sinks),
            time.monotonic() - began,
            starts,
            code,
            tuple(mark.exists() for mark in marks),
            sum(incident.what == "died" for incident in incidents_of(folder / "state")),
            _tail(folder / "log"),
            began_us(folder) if self._pace.speed is not None and (folder / "began").exists() else 0,
        )

    def _start(self, module: str, folder: Path, environ: dict[str, str], pids: list[int]) -> int:
        with open(folder / "log", "wb") as log:
            os_process = subprocess.Popen(
                [sys.executable, "-m", module, str(folder)],
                env={**os.environ, **environ},
                stdin=subprocess.PIPE,  # nobody writes: it ends when we do, however we end, and the trial with it
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        pids.append(os_process.pid)
        try:
            return os_process.wait()
        finally:
            if os_process.poll() is None:  # we were told to stop
                os_process.kill()
                os_process.wait()

    def _output(self, folder: Path, sink: str) -> Output:
        due: dict[int, int] = {}
        if self._pace.speed is not None and (folder / "began").exists():
            first, frame_us = began_us(folder), self.graph.frame_ms * 1000
            ends = [json.loads(path.read_text())["last"] for path in (folder / "state" / "sources").glob("*/end.json")]
            for path in sink_folder(folder, sink).glob("*.frame"):
                n = int(path.name.split(".")[0])
                # Closing frames are due with the last of the input: nothing more is waited for.
                frames = min([n, *([max(ends)] if ends else [])])
                due[n] = first + round(self._pace.due_s(frames - self._first + 1, frame_us, 0) * 1e6)
        return output_of(sink, sink_folder(folder, sink), due)


def _forget_last_commit(unit: Path) -> None:
    journal = Journal(unit, "commits")
    last = journal.last()
    if last is not None:
        journal.cut_after(last["n"] - 1)


def _clear_away(sessions: Sequence[int], folder: Path) -> None:
    """What killed drivers left running ends with the run it belonged to: their sessions, and Java that works in the folder."""
    name = os.fsencode(folder)
    for entry in Path("/proc").iterdir() if sessions else ():
        try:
            if not entry.name.isdigit():
                continue
            command = (entry / "cmdline").read_bytes()
            is_java = command.split(b"\0")[0].endswith(b"java") and name in command
            if is_java or int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3]) in sessions:
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join(lines[-12:])


def _refused(what: str, why: str, do: str) -> UsageError:
    return UsageError("HF-E053", "CannotVerify", what, why=why, effect="nothing was started", do=do)
