"""Start over: remove what a process keeps, and let its sinks take frames that begin with 1 again.

The state folder goes, and what its units have on hosts elsewhere. Tables and folders of sinks
stay with all their rows; their ledgers are handed to the folder that comes next, as
`holdfast adopt-table` would do it, so its frames get numbers above those that are there
(docs/decisions/0011-a-ledger-belongs-to-one-folder.md). What is in the folder and not ours stays too.

Whenever this is broken off, a run is refused until it is asked for again: what says which
folder it is goes first, the commits that forbid to take it for a new one go last.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.engine.profile import load_profile
from holdfast.engine.state_folder import StateFolder, state_folder
from holdfast.errors import HoldfastError, StateRefused
from holdfast.graph.model import Declares, Graph, Sink
from holdfast.graph.schemas import Schema
from holdfast.hosts.hosts import identity_of
from holdfast.journals.lock import is_held
from holdfast.journals.notes import read_note
from holdfast.records.cleaning import held_still
from holdfast.records.usage import human_bytes, size_of
from holdfast.sinks.ledger_reader import target_of
from holdfast.sinks.owners import NothingToTake, Taking
from holdfast.sinks.writer import SinkContext

__all__ = ["Reset", "reset", "reset_lines"]

# In this order; `lock` is held meanwhile and goes with the folder.
_FIRST = ("deployment.json", "identity", "starts", "epoch", "boot", "control.json", "replay.json", "hosts.json")
_THEN = ("sources", "streams", "sinks", "config", "records", "logs", "reports", "staging", "spark", "ingest", "hosts")
_LAST = ("units",)
_OF_HOST = ("host.json", "claim", "streams", "staging", "backups", "units")


@dataclass(frozen=True)
class Reset:
    """What is removed, and what stays."""

    process: str
    folder: str
    removed: bool  # False: only looked at
    goes: tuple[str, ...]
    stays: tuple[str, ...]
    failed: tuple[str, ...] = ()  # sinks whose ledger could not be handed over

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return asdict(self)


def reset(process: Declares, *, state: str | Path | None = None, remove: bool = False) -> Reset:
    """`remove`: do it; otherwise only say what would go and what stays."""
    graph = process.graph()
    root = state_folder(graph, state if state is not None else load_profile(None, beside=graph.base).state).absolute()
    _refuse_strangers(root, graph)
    identity = identity_of(root) if (root / "identity").is_file() else ""
    goes, stays = tuple(_goes(root, graph, identity)), tuple(_stays(root, graph))
    if not remove:
        if is_held(root / "lock"):
            with held_still(root, graph.name, "starting over"):
                pass
        return Reset(graph.name, str(root), False, goes, stays)
    if root.is_dir():
        with held_still(root, graph.name, "starting over"):
            _remove(root, graph, identity)
    return Reset(graph.name, str(root), True, goes, stays, tuple(_hand_over(root, graph)))


def reset_lines(found: Reset, again: str) -> list[str]:
    head = f"{found.process}: {'started over' if found.removed else 'to start over'}"
    verb = "went" if found.removed else "goes"
    lines = [head, *(f"  {verb:<7} {each}" for each in found.goes), *(f"  stays   {each}" for each in found.stays)]
    if not found.goes:
        lines.insert(1, "  nothing is kept of it")
    lines += [f"  FAILED  {each}" for each in found.failed]
    return lines + ([f"  again   {again}"] if found.failed else [])


# ---- what it is ----


def _refuse_strangers(root: Path, graph: Graph) -> None:
    there = {entry.name for entry in root.iterdir()} if root.is_dir() else set()
    whose, why = graph.name, ""
    with contextlib.suppress(HoldfastError, OSError):  # of one that cannot be read, its place tells
        whose = read_note(root / "deployment.json", effect="", do="").get("process", graph.name)
    if whose != graph.name:
        why = f"it belongs to process {whose!r}"
    elif there and not there & {*_FIRST, *_LAST, "lock"}:
        why = "nothing in it is a run's"
    for sink in graph.sinks:
        target = Path(target_of(sink.writer, graph.base).get("path", "/"))
        if any(target.is_relative_to(root / name) for name in (*_THEN, *_LAST)):
            why = f"sink {sink.name!r} writes to {target}, where a run keeps things of its own"
    if why:
        raise StateRefused(
            "HF-R065",
            "NotItsFolder",
            f"the state folder of stream process {graph.name!r} cannot be removed.",
            where=str(root),
            why=why,
            effect="nothing was removed",
            do="name the folder that was used: --state DIR; holdfast status lists those that are here",
        )


def _goes(root: Path, graph: Graph, identity: str) -> Iterator[str]:
    if root.is_dir():
        ours = [root / name for name in (*_FIRST, *_THEN, *_LAST) if (root / name).exists()]
        if ours:
            yield f"state folder {root}, {human_bytes(size_of(*ours))}: state, queues, journals, parameter changes"
        for log in sorted(root.glob("sources/*/log")):
            yield f"the log of source {log.parent.name}, {human_bytes(size_of(log))}: elements that cannot be read again"
        apart = [
            path
            for pattern in ("sources/*/quarantine", "units/*/quarantine", "sinks/*/quarantine")
            for path in root.glob(pattern)
        ]
        if any(True for path in apart for _ in path.glob("*.parquet")):
            yield f"rows set aside, {human_bytes(size_of(*apart))}: look at them first with holdfast quarantine"
        if reports := list((root / "reports").glob("*")):
            yield f"{len(reports):,} reports of verify and chaos"
    for host, folder in _hosts_elsewhere(graph, identity):
        yield f"what host {host} has in {folder}, {human_bytes(size_of(*(folder / name for name in _OF_HOST)))}"


def _stays(root: Path, graph: Graph) -> Iterator[str]:
    for sink in graph.sinks:
        if _has_ledger(sink):
            yield (
                f"{sink.writer.describe()}: all rows of sink {sink.name}; the next run numbers its frames above those "
                "that are there, and rows it makes again from the same input come again"
            )
        else:
            yield f"{sink.writer.describe()}: what sink {sink.name} was handed; it is handed frames from 1 on again"
    if graph.backup is not None and graph.backup.urls:
        yield f"backups under {', '.join(graph.backup.urls)}: no later run reads them; remove them there"
    for each in sorted(root.parent.glob(f"{root.name}.replay-*")) if root.parent.is_dir() else ():
        yield f"{each}: the state folder of a replay"
    known = {*_FIRST, *_THEN, *_LAST, "lock"}
    for each in sorted(root.iterdir()) if root.is_dir() else ():
        if each.name not in known:
            yield f"{each}: it is not ours"


def _hosts_elsewhere(graph: Graph, identity: str) -> Iterator[tuple[str, Path]]:
    """Folders of hosts outside the state folder that carry its mark."""
    for host in graph.homes:
        folder = Path(host.folder) if host.folder else None
        if folder is not None and identity:
            with contextlib.suppress(OSError, ValueError, HoldfastError):
                if read_note(folder / "host.json", effect="", do="").get("of") == identity:
                    yield host.name, folder


# ---- doing it ----


def _remove(root: Path, graph: Graph, identity: str) -> None:
    elsewhere = list(_hosts_elsewhere(graph, identity))
    for name in (*_FIRST, *_THEN):
        _delete(root / name)
    for _, folder in elsewhere:
        for name in _OF_HOST:
            _delete(folder / name)
        with contextlib.suppress(OSError):  # it holds what is not ours
            folder.rmdir()
    for name in _LAST:
        _delete(root / name)
    _delete(root / "lock")
    with contextlib.suppress(OSError):
        root.rmdir()


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _hand_over(root: Path, graph: Graph) -> Iterator[str]:
    """Every ledger to a new, empty state folder in the same place; yields what could not be done."""
    sinks = [sink for sink in graph.sinks if _has_ledger(sink) and _is_there(sink, graph)]
    if root.is_dir():
        identity_of(root)  # it holds what is not ours, and is a state folder all the same
    if not sinks:
        return
    folder = StateFolder(root)
    epoch = folder.acquire(graph.name)
    try:
        for sink in sinks:
            context = SinkContext(
                graph.name, sink.name, Schema(()), None, Path(graph.base), epoch,
                owner=folder.owner(), taking=Taking(lambda checksum: 0, anew=True),
            )  # fmt: skip
            try:
                sink.writer.open(context).close()
            except NothingToTake:
                continue  # nothing was ever written to it
            except HoldfastError as error:
                yield f"sink {sink.name}: its ledger still belongs to the folder that went. {error.what} {error.why}"
    finally:
        folder.release()


def _has_ledger(sink: Sink) -> bool:
    return bool(sink.writer.idempotent) and hasattr(sink.writer, "shared")


def _is_there(sink: Sink, graph: Graph) -> bool:
    path = target_of(sink.writer, graph.base).get("path")
    return not path or Path(path).exists()
