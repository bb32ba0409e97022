"""Input for a verified run out of the source log of the process itself: `--input log`, `--input log:last-5m`.

What a live source gave cannot be had twice, but its sealed frames can, as far as `keep=`
holds them. They are linked aside first, so a running original may forget them meanwhile.
Both runs begin with empty state before the first of these frames; a process that reads a
frame before over a feedback edge has none there, so it is verified from frame 1 or not at all.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.engine.run.replay import as_kept, frames_of, seed_folder
from holdfast.errors import HoldfastError, UsageError
from holdfast.graph.durations import duration_ms
from holdfast.graph.model import Graph, Source
from holdfast.records.kept import Kept

__all__ = ["LogInput", "from_log", "log_input"]


@dataclass(frozen=True)
class LogInput:
    """Frames `first` to `last` of every source that is not read from files."""

    root: Path
    t0_us: int
    first: int
    last: int
    sources: tuple[Source, ...]
    frames: dict[str, dict[int, dict]]  # source -> frame -> its seal

    def take(self, folder: Path) -> None:
        """Put the frames aside; what is there already stays."""
        for source in self.sources:
            as_kept(source, self.frames[source.name], folder / source.name).reader.take()
        said = {"root": str(self.root), "t0_us": self.t0_us, "first": self.first, "frames": self.frames}
        (folder / "input.json").write_text(json.dumps(said))


def log_input(words: str, graph: Graph, root: Path) -> LogInput:
    """Decide which frames; everything is looked at before anything starts."""
    kept = Kept(root)
    live = tuple(_typed(source, kept) for source in graph.sources if not source.reader.reliable)
    if not live:
        raise _not_understood(words, "every source is read from files, which are read again", "leave --input out")
    t0_us = kept.deployment.get("t0_us")
    newest = min((max(kept.seals(source.name), default=0) for source in live), default=0)
    if t0_us is None or not newest:
        raise _not_understood(words, "the original has sealed no frame yet", "run it first")
    first = max(_first_kept(kept, source) for source in live)
    if words != "log":
        first = max(first, newest - _frames_back(words, graph.frame_ms) + 1)
    feedback = next((edge for operator in graph.operators for edge in operator.inputs if edge.is_feedback), None)
    if first > 1 and feedback is not None:
        raise _not_understood(
            words, f"edge {feedback} reads frames before frame {first:,}, which would not be there",
            "keep the log from frame 1 on (keep=), and say --input log",
        )  # fmt: skip
    frames = {source.name: frames_of(kept, source, first, newest) for source in live}
    return LogInput(kept.root.absolute(), t0_us, first, newest, live, frames)


def from_log(graph: Graph, folder: Path, state: Path) -> tuple[Graph, int]:
    """The process reading what was put aside, its state folder seeded if this is the first start; and the first frame."""
    said = json.loads((folder / "input.json").read_text())
    kept = Kept(Path(said["root"]))
    sources = []
    for source in graph.sources:
        if source.name in said["frames"]:
            frames = {int(n): seal for n, seal in said["frames"][source.name].items()}
            source = as_kept(_typed(source, kept), frames, folder / source.name)
        sources.append(source)
    graph = replace(graph, sources=tuple(sources))
    if not (state / "deployment.json").exists():
        seed_folder(graph, kept, state, said["first"], said["t0_us"])
    return graph, said["first"]


def _typed(source: Source, kept: Kept) -> Source:
    return source if source.schema is not None else replace(source, schema=kept.schema(source.name))


def _first_kept(kept: Kept, source: Source) -> int:
    """The first frame from which on all are there."""
    seals, first = kept.seals(source.name), 1
    for n, seal in seals.items():
        if any("scattered" in each or not os.path.exists(each["path"]) for each in seal["references"]):
            first = max(first, n + 1)
    return max(first, min(seals, default=1))


def _frames_back(words: str, frame_ms: int) -> int:
    head, _, length = words.partition("log:last-")
    try:
        if not head and length:
            return max(1, -(-duration_ms(length, what="--input") // frame_ms))
    except HoldfastError:
        pass  # answered below, like anything else that is not understood
    raise _not_understood(words, "it does not say how much of the log", "write --input log, or --input log:last-5m")


def _not_understood(words: str, why: str, do: str) -> UsageError:
    return UsageError(
        "HF-E052", "NoSuchInput", f"--input {words} gives no input.", why=why, effect="nothing was started", do=do
    )
