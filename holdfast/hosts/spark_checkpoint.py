"""Spark checkpoints by epoch: fork by hard links, roll back, remove.

Every activation works in a Spark checkpoint of its own. A unit with Spark state
begins with a fork of the last one: the same files by hard link, the commit log cut
at the frame its journal vouches for, and a new query id. With RocksDB, changelogs
and state format 2 a fork is safe, since state files are found through the ids in
the commit log (with format 1 it is silently wrong: measured).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.errors import StateRefused

__all__ = ["FRAMES_BEHIND_MAX", "drop_older", "fork_checkpoint", "frame_in", "frames_of_batches"]


# How far Spark may stand behind our journal: a frame whose commits/N was not yet written when the
# run died, and one whose entry was lost. Inputs are acknowledged two frames late, so both can be redone.
FRAMES_BEHIND_MAX = 2


def frames_of_batches(spark_checkpoint_dir: Path) -> dict[int, int]:
    """batch -> frame, for the batches Spark has committed."""
    found = {}
    for commit in _entries(spark_checkpoint_dir / "commits"):
        offset = spark_checkpoint_dir / "offsets" / str(commit)
        with contextlib.suppress(FileNotFoundError):  # an orphan still tidies: old entries may go as we read
            found[commit] = frame_in(offset)
    in_order = [found[batch] for batch in sorted(found)]
    if in_order != sorted(in_order):
        raise _damaged(spark_checkpoint_dir / "offsets", f"later batches have earlier frames: {in_order}")
    return found


def frame_in(offset: Path, inputs: Mapping[int, list] | None = None, done: int | None = None) -> int:
    """The frame of a batch, as Spark's offset log has it.

    Spark keeps no check of it, but it names every input frame by its checksum: `inputs` has what each frame must name,
    but for one that is done already.
    """
    try:
        said = json.loads(offset.read_text().splitlines()[-1])
        n, named = said["n"], said["inputs"]
        newest = max((each[1] for each in named), default=n)
    except (ValueError, LookupError, TypeError) as error:
        raise _damaged(offset, f"it cannot be read: {type(error).__name__}") from error
    if not isinstance(n, int) or newest > n:
        raise _damaged(offset, f"it is of frame {n!r} and names an input of frame {newest}")
    if (
        inputs is not None
        and n != done
        and not any(named == _named(inputs, first, n) for first in range(n, 0, -1) if first in inputs)
    ):
        raise _damaged(offset, f"it does not name the inputs that frame {n} was permitted")
    return n


def _named(inputs: Mapping[int, list], first: int, last: int) -> list:
    return [each for n in range(first, last + 1) for each in inputs.get(n, [None])]


def fork_checkpoint(
    root: Path,
    epoch: int,
    committed: int,
    begun: int = 0,
    inputs: Mapping[int, list] | None = None,
    frames_behind_max: int = FRAMES_BEHIND_MAX,
    before_dropping: Callable[[int], object] | None = None,
) -> int:
    """Make root/epoch from the newest whole checkpoint; returns the frame it stands at.

    Entries above `committed` are left out: they belong to frames our journal does not know. So
    are those up to `begun`, the frame after which the unit began with empty state. `inputs`: what the newest
    frames were made of, by our journal; the entry that is gone on from must name the same.
    `before_dropping` is told the frame before older checkpoints go.
    """
    root.mkdir(parents=True, exist_ok=True)
    old = _newest_ready(root, epoch)
    new = root / str(epoch)
    shutil.rmtree(new, ignore_errors=True)
    at, last = begun, -1
    if old is not None:
        for batch, frame in sorted(frames_of_batches(old).items()):
            if begun < frame <= committed:
                at, last = frame, batch
    if committed - at > frames_behind_max:
        raise StateRefused(
            "HF-R004",
            "SparkStateLost",
            f"Spark's checkpoint stands at frame {at}, the unit's journal at {committed}.",
            where=str(root),
            why="the state between them is gone: files were removed or the disk lost them",
            effect="nothing was started; sealed frames and sinks are as they were",
            do="restore the state folder, or begin the operator anew: holdfast run FILE --fresh OPERATOR",
        )
    if last >= 0:
        if inputs and at in inputs:
            frame_in(old / "offsets" / str(last), {at: inputs[at]})
        _link_tree(old, new, last)
    (root / f"{epoch}.ready").touch()
    if before_dropping is not None:
        before_dropping(at)
    drop_older(root, epoch)
    return at


def _damaged(path: Path, why: str) -> StateRefused:
    return StateRefused(
        "HF-R043",
        "SparkOffsetDamaged",
        "an entry of Spark's offset log is not what was written.",
        where=str(path),
        why=why,
        effect="the frame was not processed; sealed frames and sink tables are as they were",
        do="restore the state folder from a copy, or begin the operator anew: holdfast run FILE --fresh OPERATOR; under "
        "hf.ecoc or hf.uncoordinated a unit is put back by itself",
    )


def drop_older(root: Path, epoch: int) -> None:
    for entry in root.glob("*"):
        number = entry.name.partition(".")[0]  # 3, 3.ready, 3.synced
        if number.isdigit() and int(number) < epoch:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def _newest_ready(root: Path, epoch: int) -> Path | None:
    ready = [int(mark.name.removesuffix(".ready")) for mark in root.glob("*.ready")]
    older = [number for number in ready if number < epoch and (root / str(number)).is_dir()]
    return root / str(max(older)) if older else None


def _link_tree(old: Path, new: Path, last: int) -> None:
    for log in ("offsets", "commits"):
        (new / log).mkdir(parents=True)
        for batch in _entries(old / log):
            if batch <= last:
                # Copied, not linked: a log entry may be edited or deleted by hand.
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(old / log / str(batch), new / log / str(batch))
    for folder, _, files in os.walk(old / "state"):
        target = new / Path(folder).relative_to(old)
        target.mkdir(parents=True, exist_ok=True)
        for name in files:
            if name.endswith(".tmp") or ".tmp." in name:
                continue
            try:
                os.link(Path(folder) / name, target / name)
            except FileNotFoundError:
                continue  # an orphan's clean-up was quicker; nothing committed names it
    (new / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))


def _entries(log: Path) -> list[int]:
    return sorted(int(entry.name) for entry in log.glob("*") if entry.name.isdigit())
