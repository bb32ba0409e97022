"""Let a state folder go on in a target that another one wrote: `holdfast adopt-table`.

Nobody but a person can tell that the other folder is gone for good. What is in the
target stays; frames of this folder get numbers above those that are there, so that no
row is ambiguous (docs/decisions/0011-a-ledger-belongs-to-one-folder.md). The same
command accepts rows that others deleted or added.

Holds the folder's lock meanwhile; opens the target, nothing else, and no Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.profile import load_profile
from holdfast.engine.state_folder import StateFolder, state_folder
from holdfast.errors import UsageError
from holdfast.graph.model import Graph, Sink
from holdfast.graph.schemas import Schema
from holdfast.records.kept import Kept
from holdfast.sinks.owners import Taken, Taking
from holdfast.sinks.writer import SinkContext

if TYPE_CHECKING:
    from holdfast.graph.model import Declares

__all__ = ["adopt_table"]


def adopt_table(process: Declares, sink: str, *, state: str | Path | None = None, renumber: bool = False) -> Taken:
    """`renumber`: although the target was written by this folder, as it was before an older copy was put back."""
    graph = process.graph()
    chosen = load_profile(None, beside=graph.base)
    graph = chosen.applied_to(graph)
    wanted = _sink(graph, sink)
    folder = StateFolder(state_folder(graph, state if state is not None else chosen.state).absolute())
    epoch = folder.acquire(graph.name)
    try:
        context = SinkContext(
            graph.name, wanted.name, Schema(()), None, Path(graph.base), epoch,
            owner=folder.owner(), taking=Taking(_common(folder, wanted.stream), renumber),
        )  # fmt: skip
        opened = wanted.writer.open(context)
        try:
            return opened.taken
        finally:
            opened.close()
    finally:
        folder.release()


def _sink(graph: Graph, name: str) -> Sink:
    found = next((each for each in graph.sinks if each.name == name), None)
    if found is not None and found.writer.idempotent and hasattr(found.writer, "shared"):
        return found
    why = f"sinks are: {', '.join(each.name for each in graph.sinks)}"
    if found is not None:
        why = f"it is a {found.writer.describe()}, which has no ledger of ours"
    raise UsageError(
        "HF-K039",
        "NotAdoptable",
        f"sink {name!r} of {graph.name!r} has no target that could be taken over.",
        why=why,
        effect="nothing was changed",
        do="name a sink that writes to a table or a Parquet folder: holdfast show FILE lists them",
    )


def _common(folder: StateFolder, stream: str) -> Callable[[Callable[[int], str | None]], int]:
    """The last frame of the folder whose content is in the target, by the checksums of the frames it still keeps."""

    def common(checksum: Callable[[int], str | None]) -> int:
        if folder.deployment() is None:
            return 0
        kept = Kept(folder.root)
        queued = sorted(kept.queued(stream))
        if not queued:
            return max((each["n"] for each in kept.commits(kept.unit_of(stream))), default=0)
        last = queued[0] - 1
        for n in queued:
            record = kept.record(stream, n)
            if n != last + 1 or record is None or record.checksum != checksum(n):
                break
            last = n
        return last

    return common
