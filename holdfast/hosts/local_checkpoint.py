"""The near checkpoint of a unit: what it is made of, how a moment of it is kept, how it is put back.

What a unit needs to go on after frame n: the commit record of n, the state runs that
record names and, for an operator over the stream, the part of Spark's checkpoint that
belongs to the batch of n. Runs and Spark's state files are never changed under one
name, so a hard link keeps a moment of them for as long as it is wanted, whatever the
unit does meanwhile; that takes milliseconds.

Of Spark's checkpoint go along the newest state snapshots up to that batch, the
changelogs after them and the last ones before, and the last entries of the offset and
commit logs: from these `hosts.spark_checkpoint` makes a checkpoint for the next attempt.
`hosts.increments` takes of them what the backup has not.

Touches the unit's folder only; no Spark.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.atomic import make_folder, write_whole
from holdfast.frames.sums import fits_sum
from holdfast.hosts.names import path_parts, refuse_links
from holdfast.hosts.spark_checkpoint import frames_of_batches
from holdfast.journals.journal import Journal
from holdfast.journals.notes import as_word, word_in
from holdfast.operators.runs import is_whole

__all__ = [
    "Pin", "clear_unit", "instance_epoch", "link_frames", "pin_runs", "pin_spark", "put_back", "read_near", "write_instance",
]  # fmt: skip

_VERSIONED = re.compile(r"(\d+)_[^.]*\.(changelog|zip)$|(\d+)\.(changelog|zip)$")
# Two: the newest may be of a task that lost a race; the one before it is then the base.
_SNAPSHOTS = 2
# Changelogs before a snapshot that spare a backup the snapshot: more than Spark is told to keep.
_CHANGELOGS_BACK = 32
_LOG_ENTRIES = 2
_SPARK = "spark"


@dataclass(frozen=True)
class Pin:
    """A moment of a unit that can be packed: files by their name in the checkpoint."""

    frame: int
    record: dict[str, Any]
    files: dict[str, Path]
    folder: Path  # of hard links; removed with the pin


def pin_runs(unit: Path, key: int | str, record: Mapping[str, Any]) -> Pin:
    """Keep the state runs a commit record names."""
    pinned = _pin_folder(unit, key)
    files = {}
    for operator, shards in record["state"].items():
        for name in {run[0] for runs in shards.values() for run in runs}:
            files[f"runs/{operator}/{name}"] = _linked(
                unit / "runs" / operator / name, pinned / "runs" / operator / name
            )
    return Pin(record["n"], dict(record), files, pinned)


def pin_spark(unit: Path, key: int | str, record: Mapping[str, Any], epoch: int) -> Pin:
    """Keep the part of Spark's checkpoint that belongs to the frame of a commit record."""
    pinned = _pin_folder(unit, key)
    checkpoint = unit / _SPARK / str(epoch)
    batch = max((batch for batch, frame in frames_of_batches(checkpoint).items() if frame <= record["n"]), default=None)
    if batch is None:
        raise FileNotFoundError(errno.ENOENT, "Spark's offset log is not there", str(checkpoint / "offsets"))
    wanted = [
        checkpoint / log / str(n) for log in ("offsets", "commits") for n in range(batch - _LOG_ENTRIES + 1, batch + 1)
    ]
    files = {}
    for path in [*wanted, *_state_files(checkpoint / "state", batch + 1)]:
        name = str(path.relative_to(checkpoint))
        with contextlib.suppress(FileNotFoundError):  # an entry before the first batch; a file Spark tidied away
            files[f"{_SPARK}/{name}"] = _linked(path, pinned / _SPARK / name)
    return Pin(record["n"], dict(record), files, pinned)


def _state_files(state: Path, version: int) -> Iterable[Path]:
    """What Spark needs to load this version of its state: snapshots, changelogs after them, all else that has no version."""
    for folder, _, names in os.walk(state):
        versions: dict[tuple[int, str], list[Path]] = {}
        for name in names:
            if name.endswith(".crc") or ".tmp" in name:
                continue
            match = _VERSIONED.fullmatch(name)
            if match is None:
                yield Path(folder) / name
            else:
                number, kind = int(match[1] or match[3]), match[2] or match[4]
                versions.setdefault((number, kind), []).append(Path(folder) / name)
        snapshots = sorted({number for number, kind in versions if kind == "zip" and number <= version})[-_SNAPSHOTS:]
        base = min(snapshots[0], version - _CHANGELOGS_BACK) if snapshots else 0
        for (number, kind), paths in versions.items():
            if number in snapshots if kind == "zip" else base < number <= version:
                yield from paths


def read_near(name: str, path: Path) -> bytes:
    """A file of the moment, to be packed. What was damaged since it was written is none: it must not become a backup."""
    content = path.read_bytes()
    if (name.startswith("runs/") and not is_whole(path.name, content)) or (
        name.startswith("streams/") and not fits_sum(content)
    ):
        raise FileNotFoundError(errno.ENOENT, "it is not what was written under its name", str(path))
    return content


def link_frames(pin: Pin, frames: Iterable[tuple[str, Path]]) -> Pin:
    """Take sealed frames of the unit's output into the moment; one that is gone is needed by nobody."""
    files = dict(pin.files)
    for stream, path in frames:
        with contextlib.suppress(FileNotFoundError):
            files[f"streams/{stream}/{path.name}"] = _linked(path, pin.folder / "streams" / stream / path.name)
    return Pin(pin.frame, pin.record, files, pin.folder)


def put_back(
    unit: Path, streams: Mapping[str, Path], record: Mapping[str, Any], epoch: int, files: Mapping[str, bytes]
) -> None:
    """Make the unit's folder that of the checkpoint. It was cleared; the journal's entry comes last and makes it so.

    All names are looked at before the first file is written: `Unfit` says that nothing was.
    """
    places: dict[str, Path] = {}
    for name in files:
        kind, *rest = path_parts(name, streams)
        if kind == "streams":
            base, path = streams[rest[0]], streams[rest[0]] / rest[1]
        elif kind == _SPARK:
            base, path = unit, unit.joinpath(_SPARK, str(epoch), *rest)
        else:
            base, path = unit, unit.joinpath(kind, *rest)
        refuse_links(base, path)
        places[name] = path
    for name, content in files.items():
        path = places[name]
        make_folder(path.parent, sync=True)
        write_whole(path, content, sync=True)
    if (unit / _SPARK / str(epoch)).exists():
        (unit / _SPARK / f"{epoch}.ready").touch()
    journal = Journal(unit, "commits")
    journal.append(dict(record))
    journal.close()


def clear_unit(unit: Path) -> None:
    """What is here is not to be used: but for rows set aside and decisions about them, which only grow."""
    for entry in [*unit.glob("*"), *unit.glob(".*.tmp")]:
        if entry.is_symlink():  # nothing of ours is one; followed, it would lead what is put back elsewhere
            entry.unlink(missing_ok=True)
        elif entry.name in ("runs", "notes", _SPARK, "pins", "containers"):
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name.startswith(("commits.", "permits.", "permit", "instance")):
            entry.unlink(missing_ok=True)


def instance_epoch(unit: Path) -> int | None:
    """The epoch of the last instance that worked in this folder."""
    try:
        return int(word_in((unit / "instance").read_text(encoding="ascii")))
    except (FileNotFoundError, ValueError):
        return None


def write_instance(unit: Path, epoch: int) -> None:
    make_folder(unit, sync=True)
    write_whole(unit / "instance", as_word(epoch), sync=True)


def _pin_folder(unit: Path, key: int | str) -> Path:
    folder = unit / "pins" / str(key)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _linked(path: Path, link: Path) -> Path:
    link.parent.mkdir(parents=True, exist_ok=True)
    os.link(path, link)
    return link
