"""What users do with a process: check, show, start, run, replay, status, trace, search, reset, verify, chaos.

The same verbs as in the shell, with the same words; what the shell prints is here a typed object.
Whatever a call needs is imported when it is made: declaring a process needs neither Spark nor pandas.

`declare.process.StreamProcess` has these methods.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import Finding, ProcessRefused
from holdfast.graph.model import Declares, Graph
from holdfast.graph.words import worded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.engine.observe.status import Status
    from holdfast.engine.run.frame_or_time import FrameOrTime
    from holdfast.engine.run.reset import Reset
    from holdfast.engine.run.run import Run
    from holdfast.records.search import Found
    from holdfast.records.trace import FrameTrace
    from holdfast.verify.asking import Faults
    from holdfast.verify.verifying import Verified

__all__ = ["Verbs"]

Folder = str | os.PathLike[str]


class Verbs(Declares):
    """The part of a stream process that does something with it."""

    _file: str

    @property
    def file(self) -> str:
        """FILE:name, as the shell takes it; empty where no file declares the process (a prompt, a notebook)."""
        if not self._file:
            return ""
        here = Path.cwd()
        path = Path(self._file)
        return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{self.name}"

    def graph(self) -> Graph:
        """The pure graph, well-formed or not."""
        raise NotImplementedError

    # -- before it runs ----------------------------------------------------------

    def check(self, *, types: bool = False) -> list[Finding]:
        """All findings; raises ProcessRefused if one of them is an error.

        `types`: also what takes a Spark session to know, as `holdfast check` does.
        """
        from holdfast.graph.rules import check_structure

        graph = self.graph()
        findings = check_structure(graph)
        if types and all(finding.warning for finding in findings):
            from holdfast.engine.check.types import check_types

            findings = findings + list(check_types(graph))
        if not all(finding.warning for finding in findings):
            raise ProcessRefused(sorted(findings, key=lambda finding: finding.warning))
        return findings

    def show(self, *, svg: Folder | None = None) -> str:
        """The graph as text: its units, and why it is cut so. `svg`: a file for the drawing."""
        from holdfast.graph.drawing import as_svg, as_text
        from holdfast.graph.units import cut

        graph = self.graph()
        units = cut(graph)
        if svg is not None:
            Path(svg).write_text(as_svg(graph, units), encoding="utf-8")
        return as_text(graph, units)

    # -- running -----------------------------------------------------------------

    @worded(until_frame="until")
    def start(
        self,
        *,
        state: Folder | None = None,
        until: FrameOrTime | None = None,
        rate: str | float | None = None,
        spark: SparkSession | None = None,
        fresh: Sequence[str] = (),
        keep: Sequence[str] = (),
        accept_versions: bool = False,
        on_progress: Callable[[Status], None] | None = None,
        profile: str | None = None,
        master: str | None = None,
        heap: str | None = None,
        metrics: str | None = None,
        metrics_open: bool | None = None,
        values: str | None = None,
        alerts: str | None = None,
    ) -> Run:
        """Begin to run and return once it runs; `with process.start() as run:` stops it at the end.

        `state`: the state folder; left out, the declared one or .holdfast/NAME here.
        `until`: stop after this frame, or after the frame that covers a time ("2026-01-05T06:00:12Z").
        `rate`: pace of recorded sources: "as recorded", "10x", "fast", or elements a second.
        `spark`: a session of yours, as `hf.session()` gives it; it stays open. Left out, the run has its own.
        `fresh`, `keep`: operators with state whose code has changed, and that begin with empty state or keep theirs.
        `accept_versions`: go on although Python, Spark or a library is another version than before (HF-R066).
        `on_progress`: called with a Status twice a second.
        `profile`: settings of [profile.NAME] in holdfast.toml. The others are settings too, and win over it:
        `master` and `heap` of Spark, `metrics` ("127.0.0.1:9464") and whether others may reach it (`metrics_open`),
        `values="hide"`, and `alerts`: a command or an address that is told when the run degrades.
        """
        from holdfast.engine.run.starting import start

        return start(
            self,
            state=state,
            until=until,
            rate=rate,
            spark=spark,
            fresh=fresh,
            keep=keep,
            accept_versions=accept_versions,
            on_progress=on_progress,
            profile=profile,
            master=master,
            heap=heap,
            metrics=metrics,
            metrics_open=metrics_open,
            values=values,
            alerts=alerts,
        )

    @worded(until_frame="until")
    def run(
        self,
        *,
        state: Folder | None = None,
        until: FrameOrTime | None = None,
        rate: str | float | None = None,
        spark: SparkSession | None = None,
        fresh: Sequence[str] = (),
        keep: Sequence[str] = (),
        accept_versions: bool = False,
        on_progress: Callable[[Status], None] | None = None,
        profile: str | None = None,
        master: str | None = None,
        heap: str | None = None,
        metrics: str | None = None,
        metrics_open: bool | None = None,
        values: str | None = None,
        alerts: str | None = None,
    ) -> Run:
        """Run until a bounded input ends, or until stopped; the words are those of `start`."""
        said: dict[str, Any] = {
            "state": state, "until": until, "rate": rate, "spark": spark, "fresh": fresh, "keep": keep,
            "accept_versions": accept_versions, "on_progress": on_progress, "profile": profile, "master": master, "heap": heap, "metrics": metrics,
            "metrics_open": metrics_open, "values": values, "alerts": alerts,
        }  # fmt: skip
        with self.start(**said) as run:
            run.wait()
        return run

    @worded(from_frame="first", from_time="first", until_frame="until")
    def replay(
        self,
        into: str,
        *,
        first: FrameOrTime | None = None,
        until: FrameOrTime | None = None,
        state: Folder | None = None,
        rate: str | float | None = None,
        spark: SparkSession | None = None,
        accept_versions: bool = False,
        on_progress: Callable[[Status], None] | None = None,
        profile: str | None = None,
    ) -> Run:
        """Run frames again that were run before, into another table or a folder of Parquet files ("replayed/").

        `first`, `until`: frames or times; left out, from the beginning to the end. `state`: the state folder of
        the original, which stays as it is. The other words are those of `start`.
        """
        from holdfast.engine.run.replay import start_replay

        with start_replay(
            self,
            into=into,
            first=first,
            until=until,
            state=state,
            rate=rate,
            spark=spark,
            accept_versions=accept_versions,
            on_progress=on_progress,
            profile=profile,
        ) as run:
            run.wait()
        return run

    # -- looking at it -----------------------------------------------------------

    @worded()
    def status(self, *, state: Folder | None = None) -> Status:
        """What it does now; where no run holds its state folder, what the last one left."""
        from holdfast.engine.observe.folder_status import folder_status

        return folder_status(self._root(state))

    @worded()
    def trace(self, stream: str, frame: int, *, state: Folder | None = None) -> FrameTrace:
        """What became of a frame: when sealed, made of what, who has it. `stream` may be the unit that seals it."""
        from holdfast.records.kept import Kept
        from holdfast.records.trace import trace_frame

        return trace_frame(Kept(self._root(state)), stream, frame)

    @worded()
    def search(self, stream: str, where: str, *, limit: int = 100, state: Folder | None = None) -> Found:
        """Rows of a stream that are still kept and meet an SQL condition: "zone = 3 and celsius > 90"."""
        from holdfast.records.kept import Kept
        from holdfast.records.search import find_rows

        return find_rows(Kept(self._root(state)), stream, where, limit=limit)

    @worded()
    def reset(self, *, state: Folder | None = None, remove: bool = False) -> Reset:
        """Start over: without `remove` says what would go and what stays, with it removes the state folder.

        Tables keep all their rows; frames of the next run get numbers above those that are there.
        """
        from holdfast.engine.run.reset import reset

        return reset(self, state=None if state is None else Path(state), remove=remove)

    def _root(self, state: Folder | None) -> Path:
        """As `run` would take it: said, in the profile, declared, or .holdfast/NAME."""
        from holdfast.engine.profile import load_profile
        from holdfast.engine.state_folder import state_folder

        graph = self.graph()
        return state_folder(graph, state if state is not None else load_profile(beside=graph.base).state)

    # -- breaking it on purpose --------------------------------------------------

    @worded()
    def verify(
        self,
        faults: Faults,
        *,
        seed: int = 0,
        input: str | None = None,
        state: Folder | None = None,
        frames: int | None = None,
        rate: str | None = None,
        oracle: str | int = 8,
        keep: Folder | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> Verified:
        """Run it undisturbed and through a fault plan, and compare what the sinks got: see docs/howto/verify.md.

        `faults`: a TOML file with [[fault]] tables, or a list of such tables as dicts; `seed` draws what they leave open.
        `input`: "log" or "log:last-5m" takes the input from the source log of the state folder. `frames`: only so many.
        `oracle`: how many frames of each output are computed a second time, another way ("all", "none").
        `keep`: a folder for states, outputs and logs of the runs. `say`: is told how far it is.
        Both runs are os processes that load the file again, so the process has to be declared in one.
        """
        from holdfast.verify.asking import verify

        return verify(
            self,
            faults,
            seed=seed,
            input=input,
            state=state,
            frames=frames,
            rate=rate,
            oracle=oracle,
            keep=keep,
            say=say,
        )

    @worded()
    def chaos(
        self,
        *,
        seed: int = 0,
        plans: int = 5,
        only: int | None = None,
        input: str | None = None,
        state: Folder | None = None,
        frames: int | None = None,
        rate: str | None = None,
        keep: Folder | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> Iterator[Verified]:
        """Run it through random fault plans of one to three faults each; every answer as soon as it is known.

        `only`: plan number so much of this seed. The other words are those of `verify`.
        """
        from holdfast.verify.asking import chaos

        return chaos(
            self,
            seed=seed,
            plans=plans,
            only=only,
            input=input,
            state=state,
            frames=frames,
            rate=rate,
            keep=keep,
            say=say,
        )
