"""Run frames again that a process has run before, into other tables, beside the state that stays as it is.

A replay has a state folder of its own, named after where it writes. Its clock is the
original's, so its frames have the original's numbers and boundaries. Sources that read
files are read again; the frames of others are taken from the original's source log, by
hard link, so that a running original may trim its own. Parameters hold from the frames
they held from. Sinks that are tables write to another table, or all of them to Parquet
folders; a callback is left out, since it would act a second time.

An operator with state, or one that reads a frame before over a feedback edge, needs
what came before: then a replay begins at frame 1 or is refused.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.atomic import write_whole
from holdfast.engine.profile import load_profile
from holdfast.engine.run import deployment as deployed
from holdfast.engine.run.run import Run, start_graph
from holdfast.engine.state_folder import StateFolder, state_folder
from holdfast.errors import StateRefused, UsageError
from holdfast.frames.clock import FrameClock
from holdfast.graph.model import Graph, Sink, Source
from holdfast.graph.units import cut
from holdfast.journals.journal import Journal
from holdfast.records.kept import Kept
from holdfast.sources.reader import SourceContext, SourceFrame
from holdfast.sources.reference import Reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.engine.observe.status import Status
    from holdfast.graph.model import Declares

__all__ = ["Replay", "as_kept", "frames_of", "planned", "seed_folder", "start_replay"]


@dataclass(frozen=True)
class Replay:
    """What will be run, decided before anything is written."""

    graph: Graph
    folder: Path
    first: int
    until: int | None  # None: to the end of the input
    left_out: tuple[str, ...]  # sinks that are not written
    notes: tuple[str, ...]


def start_replay(
    process: Declares,
    *,
    into: str,
    first: str | int | None = None,
    until: str | int | None = None,
    state: str | Path | None = None,
    rate: object = None,
    profile: str | None = None,
    on_progress: Callable[[Status], None] | None = None,
    spark: SparkSession | None = None,
    **said: Any,
) -> Run:
    """`first` and `until`: numbers of frames, or times as text; `state`: the original's folder."""
    graph = process.graph()
    chosen = load_profile(profile, beside=graph.base).with_said(said)
    graph = chosen.applied_to(graph)
    root = state_folder(graph, state if state is not None else chosen.state)
    replay = planned(graph, Kept(root), into=into, first=first, until=until)
    run = start_graph(
        replay.graph,
        state=replay.folder,
        until_frame=replay.until,
        rate=rate or "fast",
        spark=spark,
        on_progress=on_progress,
        profile=chosen,
    )
    run.parts.notes += replay.notes
    return run


def planned(graph: Graph, kept: Kept, *, into: str, first: str | int | None, until: str | int | None) -> Replay:
    """Check everything, then make the folder the replay runs in."""
    t0_us = kept.deployment.get("t0_us")
    if t0_us is None:
        why = "it has not seen an element"
        raise _refused(
            "HF-R008", "ReplayRefused", "the original has no clock yet.", str(kept.root), why, "run it first"
        )
    clock = FrameClock(t0_us, graph.frame_ms * 1000)
    begin = 1 if first is None else _frame(first, clock)
    last = None if until is None else _frame(until, clock)
    if begin < 1 or (last is not None and last < begin):
        raise _refused(
            "HF-R008", "ReplayRefused", f"frames {begin:,} to {last or begin:,} are none.", str(kept.root),
            f"frame 1 begins at {_time(clock.start_us(1))}", "give a first frame of 1 or more, and an end after it",
        )  # fmt: skip
    _refuse_state(graph, begin)
    root = kept.root.absolute()  # workers run elsewhere
    folder = root.with_name(f"{root.name}.replay-{re.sub(r'[^A-Za-z0-9]+', '-', into).strip('-') or 'out'}")
    sources, newest = [], []
    for source in graph.sources:
        source = source if source.schema is not None else replace(source, schema=kept.schema(source.name))
        if source.reader.reliable:
            sources.append(source)
            continue
        frames = frames_of(kept, source, begin, last)
        newest.append(max(frames, default=begin - 1))
        sources.append(as_kept(source, frames, folder / "sources" / source.name / "kept"))
    is_open = bool(newest) and last is None
    if newest:  # an input that has no end is replayed as far as it is sealed, and no window is closed for it
        last = min([*newest, *([last] if last is not None else [])])
    sinks, left_out = _retargeted(graph, into)
    name = f"{graph.name}_replay_{re.sub(r'[^A-Za-z0-9]+', '_', into).strip('_') or 'out'}"
    # Nobody is woken up for a replay.
    replayed = replace(graph, name=name, sources=tuple(sources), sinks=sinks, state=None, on_degraded=None)
    asked = {"of": str(kept.root.absolute()), "first": begin, "until": last, "into": into} | (
        {"open": True} if is_open else {}
    )
    last = _seed(replayed, kept, folder, begin, t0_us, asked)
    for source in sources:
        if isinstance(source.reader, KeptReader):
            source.reader.take()
    notes = [f"replay of {graph.name} from frame {begin:,}" + (f" to {last:,}" if last else "") + f" into {into}"]
    notes += [f"sink {sink} is left out: it would act a second time" for sink in left_out]
    return Replay(replayed, folder, begin, last, left_out, tuple(notes))


# ---- what is asked for ----


def _frame(said: str | int, clock: FrameClock) -> int:
    """A number of a frame, or the frame that covers a time."""
    if isinstance(said, int) or str(said).replace(",", "").isdigit():
        return int(str(said).replace(",", ""))
    try:
        at = datetime.fromisoformat(str(said))
    except ValueError:
        raise UsageError(
            "HF-E026",
            "NotAFrameOrTime",
            f"{said!r} is neither a frame nor a time.",
            effect="nothing was started",
            do="write a number, or a time as 2026-01-05T06:00:12Z (UTC unless it says otherwise)",
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return clock.frame_at(round(at.timestamp() * 1_000_000))


def _refuse_state(graph: Graph, begin: int) -> None:
    if begin == 1:
        return
    for operator in graph.operators:
        feedback = next((edge for edge in operator.inputs if edge.is_feedback), None)
        if operator.is_stateful or feedback is not None:
            why = f"its state ({operator.kind}) grew in the frames before"
            if feedback is not None:
                why = f"it reads frames before over feedback edge {feedback}"
            raise _refused(
                "HF-R009", "StateFromBefore", f"operator {operator.name!r} needs what came before frame {begin:,}.",
                operator.line, f"{why}, and that state is not kept", "replay from the beginning: --from-frame 1",
            )  # fmt: skip


def _retargeted(graph: Graph, into: str) -> tuple[tuple[Sink, ...], tuple[str, ...]]:
    """The sinks with other targets, and the names of those that have none."""
    from holdfast.sinks.parquet import ParquetWriter

    is_folder = "/" in into or into in (".", "..")
    made: list[Sink] = []
    left_out: list[str] = []
    several = sum(_is_table(sink.writer) or is_folder for sink in graph.sinks) > 1
    for sink in graph.sinks:
        table = f"{into}_{sink.name}" if several else into
        if is_folder:
            # From where the user stands, as for any other path on a command line.
            made.append(replace(sink, writer=ParquetWriter(Path(into).absolute() / sink.name), on_error="fail"))
        elif _is_table(sink.writer):
            made.append(replace(sink, writer=replace(sink.writer, table=table)))
        else:
            left_out.append(sink.name)
    if not made:
        raise _refused(
            "HF-R008", "ReplayRefused", f"no sink of {graph.name!r} can write to a table {into!r}.", "",
            "none of them is a table", "name a folder for Parquet files: --into replayed/",
        )  # fmt: skip
    return tuple(made), tuple(left_out)


def _is_table(writer: Any) -> bool:
    return isinstance(getattr(writer, "table", None), str)


# ---- frames that are kept ----


def frames_of(kept: Kept, source: Source, begin: int, last: int | None) -> dict[int, dict]:
    seals = kept.seals(source.name)
    newest = max(seals, default=0) if last is None else min(last, max(seals, default=0))
    found = {n: seals[n] for n in range(begin, newest + 1) if n in seals}
    gone = next(
        (
            n
            for n in range(begin, newest + 1)
            if n not in found
            or any("scattered" in each or not os.path.exists(each["path"]) for each in found[n]["references"])
        ),
        None,
    )
    if gone is not None or begin > newest:
        words = f"source {source.name!r} has sealed up to frame {newest:,}."
        if gone is not None:
            words = f"frame {gone:,} of source {source.name!r} is not kept any more."
        there = [n for n in sorted(seals) if all(os.path.exists(each["path"]) for each in seals[n]["references"])]
        raise _refused(
            "HF-R010", "FramesGone", words, str(kept.root / "sources" / source.name),
            f"kept are frames {there[0]:,} to {there[-1]:,}" if there else "none is kept",
            "begin later, or keep more from now on: source(..., keep='1 day')",
        )  # fmt: skip
    return found


def as_kept(source: Source, frames: dict[int, dict], folder: Path) -> Source:
    reader = KeptReader(source.reader.describe(), frames, folder)
    return replace(source, reader=reader, late="admit", boundary=None, bad="fail", keep_ms=None)


class KeptReader:
    """Hands out frames another run has sealed, as they were sealed."""

    bounded = True
    reliable = True

    def __init__(self, origin: str, frames: dict[int, dict], folder: Path) -> None:
        self._origin, self._frames, self._folder = origin, frames, folder
        self.rate = None

    def describe(self) -> str:
        return f"kept frames of {self._origin}"

    def take(self) -> None:
        """Links to the files of the log that frames lie in: the original may forget them meanwhile.

        Files that grow are the user's: nobody forgets them, and each block has its digest.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        logged = [each for frame in self._frames.values() for each in frame["references"] if not each.get("ino")]
        for path in {each["path"] for each in logged}:
            ours = self._folder / Path(path).name
            if not ours.exists():
                try:
                    os.link(path, ours)
                except OSError:
                    shutil.copy2(path, ours)  # another file system

    def open(self, context: SourceContext) -> OpenKept:
        return OpenKept(self._frames, self._folder, context)


class OpenKept:
    def __init__(self, frames: dict[int, dict], folder: Path, context: SourceContext) -> None:
        self._frames, self._folder, self._context = frames, folder, context

    def first_time_us(self, wait_s: float | None = None) -> int | None:
        return None  # the clock is the original's

    def set_clock(self, clock: FrameClock) -> None:
        """It is the original's."""

    def frames(self, stop: threading.Event) -> Iterator[SourceFrame]:
        for n in sorted(self._frames):
            if stop.is_set():
                return
            if n >= self._context.from_n:
                seal = self._frames[n]
                references = tuple(self._ours(Reference.from_json(each)) for each in seal["references"])
                yield SourceFrame(n, references, seal["rows"], seal["bytes"], seal["checksum"], seal["late"])

    def _ours(self, reference: Reference) -> Reference:
        if reference.ino:
            return reference
        return replace(reference, path=str(self._folder / Path(reference.path).name))

    def seen_until(self) -> int:
        return 0

    def extent(self) -> int:
        return len(self._frames)

    def trim(self, before_n: int) -> None:
        """They were kept for this."""

    def close(self) -> None:
        """Nothing is held open."""


# ---- the folder ----


def _seed(graph: Graph, kept: Kept, folder: Path, begin: int, t0_us: int, asked: dict[str, Any]) -> int | None:
    """A folder that says: deployed, every unit stands before the first frame. A replay that broke off goes on.

    Returns the last frame: of an input without an end, what was sealed when the replay was first asked for.
    """
    note = folder / "replay.json"
    if note.exists():
        before = json.loads(note.read_text())
        if before == asked or ("open" in asked and before == asked | {"until": before["until"]}):
            _take_changes(kept, folder, asked["into"])
            return before["until"]
        raise _refused(
            "HF-R011", "ReplayExists", f"another replay into {asked['into']!r} was begun before.", str(folder),
            f"it was of frames {before['first']} to {before['until'] or 'the end'}",
            "name another target; or remove that folder, and the table or folder it wrote to",
        )  # fmt: skip
    seed_folder(graph, kept, folder, begin, t0_us)
    write_whole(note, json.dumps(asked))
    return asked["until"]


def _take_changes(kept: Kept, folder: Path, into: str) -> None:
    """Parameters that were changed in the original since the replay was begun hold from the same frames here."""
    ours, theirs = (
        list(Journal(root / "config", "changes", keep=None, counted=True).entries())
        if (root / "config").is_dir()
        else []
        for root in (folder, kept.root)
    )
    if not (more := theirs[len(ours) :]):
        return
    first = min(each["frame"] for each in more)
    done = max((each["n"] for path in folder.glob("units/*") for each in Journal(path, "permits").tail(1)), default=0)
    if first <= done:
        raise _refused(
            "HF-R011", "ReplayExists", f"the replay into {into!r} has done frame {done:,}, and the original was changed from frame {first:,} on.",
            str(folder), f"parameter {more[0]['name']!r} was set there after the replay had been begun, which was ahead of it",
            "name another target; or remove that folder, and the table or folder it wrote to",
        )  # fmt: skip
    shutil.copytree(kept.root / "config", folder / "config", dirs_exist_ok=True)


def seed_folder(graph: Graph, kept: Kept, folder: Path, begin: int, t0_us: int) -> None:
    """Parameters as they were changed, rows as they were left out, the original's clock, and every unit empty
    before frame `begin`."""
    state = StateFolder(folder)
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    if (changes := kept.root / "config").is_dir():
        shutil.copytree(changes, state.config, dirs_exist_ok=True)
    units = [unit for unit in cut(graph) if unit.outputs]
    described = deployed.describe(graph, units, t0_us)
    # Rows are left out by their place: in what operators made, that holds as long as all of them are the same.
    same_code = described["operators"] == kept.deployment["operators"]
    for unit in units:
        for note in (kept.root / "units" / unit.name / "quarantine").glob("*.json"):
            if same_code or {*json.loads(note.read_text())["ports"]} <= {*kept.sources}:
                (target := state.unit(unit.name) / "quarantine").mkdir(exist_ok=True, mode=0o700)
                shutil.copyfile(note, target / note.name)
    state.deploy(
        described | {"schemas": {}, "start": {unit.name: begin - 1 for unit in units}, "settled": {}, "sinks": {}}
    )


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat().replace("+00:00", "Z")


def _refused(code: str, name: str, what: str, where: str, why: str, do: str) -> StateRefused:
    return StateRefused(
        code, name, what, where=where, why=why, effect="nothing was started; the original is untouched", do=do
    )
