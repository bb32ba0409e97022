"""One run of a process that is to be verified, as an os process of its own.

    python -m holdfast.faults.trial FOLDER

FOLDER/trial.json says what to run. State and outputs lie in FOLDER: the user's state
folder and sinks are not touched, nobody is alerted, no port is opened. It may die at any
moment and is then started again with the same words (`verify.verifying`). It ends when its
standard input does: whoever started it is gone.

At a pace, its first frame began when the first start was ready, and that moment stays: a run that
is started again has to catch up, as behind a live source.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from holdfast.declare.loading import load
from holdfast.engine.profile import load_profile
from holdfast.engine.run.run import start_graph
from holdfast.errors import HoldfastError
from holdfast.faults.inputs import from_log
from holdfast.faults.keeping import FrameFolder
from holdfast.graph.model import Graph, Sink
from holdfast.graph.units import cut
from holdfast.sources.pace import PacedSince

__all__ = ["began_us", "end_with_who_asked", "kept_folders", "main", "redirected", "sink_folder", "with_all_kept"]


def sink_folder(folder: Path, sink: str) -> Path:
    return folder / "sinks" / sink


def redirected(graph: Graph, folder: Path) -> Graph:
    """The process with all its outputs, hosts and backups kept in the folder, and nobody to be woken up."""
    sinks = tuple(
        replace(sink, writer=FrameFolder(sink_folder(folder, sink.name), sink.writer.idempotent), on_error="fail")
        for sink in graph.sinks
    )
    hosts = tuple(replace(host, folder=None) for host in graph.hosts)
    backup = graph.backup
    if backup is not None:
        backup = replace(backup, urls=tuple(str(folder / "stores" / str(at)) for at in range(1, len(backup.urls) + 1)))
    return replace(graph, sinks=sinks, state=None, on_degraded=None, hosts=hosts, backup=backup)


def with_all_kept(graph: Graph, folder: Path) -> Graph:
    """The process with what goes from one unit to another kept as well: the oracle computes frames from it.

    Such a stream leaves its unit anyway, so the cut into units stays as it was.
    """
    seen = {sink.stream for sink in graph.sinks}
    between = [stream for unit in cut(graph) for stream in unit.outputs if stream not in seen]
    kept = tuple(
        Sink(_beside(stream), FrameFolder(sink_folder(folder, _beside(stream)), True), stream) for stream in between
    )
    return replace(graph, sinks=graph.sinks + kept)


def kept_folders(graph: Graph, folder: Path) -> dict[str, dict[str, Path]]:
    """After a run that kept all: stream that leaves a unit -> sink ("" for one between units) -> where its frames are."""
    return {
        stream: {sink.name: sink_folder(folder, sink.name) for sink in graph.sinks_of(stream)}
        or {"": sink_folder(folder, _beside(stream))}
        for unit in cut(graph)
        for stream in unit.outputs
    }


def _beside(stream: str) -> str:
    return f"between units {stream}"  # no sink of a user's has a name with a space


def began_us(folder: Path) -> int:
    """When the first frame began, on the wall clock; decided by the first who asks."""
    note = folder / "began"
    with contextlib.suppress(FileExistsError):
        mine = folder / f"began.{os.getpid()}.{time.monotonic_ns()}"
        mine.write_text(str(time.time_ns() // 1000))
        os.link(mine, note)  # whole or not at all, and only once
    return int(note.read_text())


def _began_s(folder: Path) -> float:
    return time.monotonic() - (time.time() - began_us(folder) / 1e6)


def end_with_who_asked() -> None:
    """A run nobody waits for any more would go on for ever."""
    os.read(0, 1)  # not by a file object, whose lock an interpreter that ends would wait for
    os._exit(1)


def main(folder: Path) -> int:
    threading.Thread(target=end_with_who_asked, daemon=True).start()
    said = json.loads((folder / "trial.json").read_text())
    graph = load(said["file"]).graph()
    chosen = replace(load_profile(None, beside=graph.base), metrics=None, metrics_open=None, state=None)
    graph, first = redirected(chosen.applied_to(graph), folder), 1
    if said["keep_all"]:
        graph = with_all_kept(graph, folder)
    if said["input"] is not None:
        graph, first = from_log(graph, Path(said["input"]), folder / "state")
    try:
        with start_graph(
            graph,
            state=folder / "state",
            until_frame=said["until"],
            rate=PacedSince(said["rate"], lambda: _began_s(folder), first) if said["rate"] != "fast" else "fast",
            profile=chosen,
        ) as run:
            run.wait()
    except HoldfastError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
