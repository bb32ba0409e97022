"""Where an existing Structured Streaming job stands, read from its checkpoint folder.

    offsets/N   what batch N reads up to: "v1", a line of metadata, a line per source
    commits/N   batch N is done
    sources/I   what the file source of place I has seen, a log of its own
    state/      state of operators; which, says state/J/_metadata

The offsets of the last committed batch are where the job would go on, exclusive: for
Kafka they are `startingOffsets` as they stand. State cannot be carried over: it is in
Spark's own format, belongs to that plan, and its open windows are half full.

Reads files and changes none; no Spark. The job should stand still meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import UsageError

__all__ = ["Adopted", "SourcePosition", "read_checkpoint"]

#: What Spark calls its operators with state, and what a person loses with it.
_LOST = {
    "stateStoreSave": "aggregation: groups and windows still open",
    "sessionWindowStateStoreSaveExec": "session windows still open",
    "symmetricHashJoin": "stream-stream join: rows still waiting for a partner",
    "dedupe": "dropDuplicates: keys seen so far",
    "dedupeWithinWatermark": "dropDuplicatesWithinWatermark: keys seen so far",
    "flatMapGroupsWithState": "the state of your function, per key",
    "applyInPandasWithState": "the state of your function, per key",
    "transformWithStateExec": "the state of your processor, per key",
    "transformWithStateInPandasExec": "the state of your processor, per key",
    "globalLimit": "limit: rows counted so far",
}


@dataclass(frozen=True, slots=True)
class SourcePosition:
    place: int  # of the source in the query, from 0
    kind: str  # kafka | files | rate | number | other | none
    offset: Any  # as Spark wrote it
    go_on: str  # what to give the new source, or why there is nothing to give
    starting_offsets: str = ""  # Kafka's option, ready to paste


@dataclass(frozen=True, slots=True)
class Adopted:
    checkpoint: str
    query_id: str
    batch: int | None  # the last committed one
    begun: int | None  # begun and not committed, if there is one
    sources: tuple[SourcePosition, ...]
    watermark_ms: int
    state: tuple[str, ...]  # operators with state
    not_carried_over: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_checkpoint(folder: Path) -> Adopted:
    if not (folder / "offsets").is_dir():
        raise _no_checkpoint(folder, "it has no folder 'offsets'")
    offsets, commits = _numbers(folder / "offsets"), _numbers(folder / "commits")
    done = max((n for n in commits if n in offsets), default=None)
    begun = max((n for n in offsets if done is None or n > done), default=None)
    if done is None:
        watermark = 0
        sources: tuple[SourcePosition, ...] = ()
    else:
        metadata, lines = _offsets(folder / "offsets" / str(done))
        watermark = int(metadata.get("batchWatermarkMs", 0))
        sources = tuple(_position(folder, place, line) for place, line in enumerate(lines))
    state = tuple(_operators(folder / "state"))
    return Adopted(
        checkpoint=str(folder),
        query_id=_query_id(folder),
        batch=done,
        begun=begun,
        sources=sources,
        watermark_ms=watermark,
        state=state,
        not_carried_over=tuple(_not_carried_over(state, watermark, done, begun)),
    )


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def _query_id(folder: Path) -> str:
    try:
        return str(json.loads((folder / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError):
        return ""


def _offsets(path: Path) -> tuple[dict[str, Any], list[str]]:
    version, *lines = path.read_text().splitlines()
    if version.strip() != "v1" or not lines:
        raise _no_checkpoint(
            path.parents[1], f"offsets/{path.name} is of format {version.strip()[:20]!r}; v1 can be read"
        )
    try:
        return json.loads(lines[0]), lines[1:]
    except ValueError as error:
        raise _no_checkpoint(path.parents[1], f"offsets/{path.name} cannot be read: {error}") from error


def _position(folder: Path, place: int, line: str) -> SourcePosition:
    if line.strip() == "-":
        return SourcePosition(place, "none", None, "it had given nothing yet: start it as the old job did")
    try:
        offset = json.loads(line)
    except ValueError:
        return SourcePosition(place, "other", line, "only this source itself knows what its offset means")
    if isinstance(offset, dict) and set(offset) == {"logOffset"}:
        return _files(folder, place, offset)
    if _is_kafka(offset):
        ready = json.dumps(offset, separators=(",", ":"), sort_keys=True)
        topics = ", ".join(sorted(offset))
        return SourcePosition(place, "kafka", offset, f"topics {topics}: go on with startingOffsets", ready)
    if isinstance(offset, int):
        return SourcePosition(place, "number", offset, "a count (rate: seconds since its start; socket, memory: rows)")
    return SourcePosition(place, "other", offset, "only this source itself knows what its offset means")


def _is_kafka(offset: object) -> bool:
    """{"topic": {"partition": offset}}"""
    return (
        isinstance(offset, dict)
        and bool(offset)
        and all(
            isinstance(parts, dict) and parts and all(k.isdigit() and isinstance(v, int) for k, v in parts.items())
            for parts in offset.values()
        )
    )


def _files(folder: Path, place: int, offset: dict[str, int]) -> SourcePosition:
    seen = _files_seen(folder / "sources" / str(place), offset["logOffset"])
    newest = max(seen.values(), default=0)
    if not seen:
        return SourcePosition(
            place, "files", offset, f"log position {offset['logOffset']}; no file is named in its log"
        )
    at = datetime.fromtimestamp(newest / 1000, UTC).isoformat(timespec="seconds")
    return SourcePosition(
        place,
        "files",
        {**offset, "files": len(seen), "newest_ms": newest},
        f"log position {offset['logOffset']}, {len(seen):,} files seen, the newest of {at}: "
        "move those away, or give the new source a folder of its own",
    )


def _files_seen(log: Path, last: int) -> dict[str, int]:
    """File -> time of change, of all log entries up to `last`; old ones are in N.compact."""
    found: dict[str, int] = {}
    if not log.is_dir():
        return found
    for path in log.iterdir():
        number = path.name.removesuffix(".compact")
        if not number.isdigit() or int(number) > last:
            continue
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            found[entry["path"]] = int(entry["timestamp"])
    return found


def _operators(state: Path) -> list[str]:
    """Names of the operators with state, as far as the checkpoint says them."""
    names = []
    for folder in (
        sorted((p for p in state.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)) if state.is_dir() else ()
    ):
        name = "unknown"
        for path in sorted(folder.glob("_metadata/**/*")):
            for line in (
                path.read_text(errors="replace").splitlines() if path.is_file() and path.suffix != ".crc" else ()
            ):
                if line.startswith("{") and "operatorName" in line:
                    name = str(json.loads(line)["operatorInfo"]["operatorName"])
        names.append(name)
    return names


def _not_carried_over(state: tuple[str, ...], watermark: int, done: int | None, begun: int | None) -> list[str]:
    said = [f"state, {_LOST.get(name, name)}" for name in state]
    if watermark:
        at = datetime.fromtimestamp(watermark / 1000, UTC).isoformat(timespec="milliseconds")
        said.append(f"the watermark, {at}: the new process finds its own; late rows are judged anew")
    if begun is not None:
        said.append(f"batch {begun}: begun and not committed, so the old sink may have part of it; its rows come again")
    if done is not None:
        said.append("numbers of batches: frames begin at 1, and hf.once needs another sink= name for them")
    return said


def _no_checkpoint(folder: Path, why: str) -> UsageError:
    return UsageError(
        "HF-E030",
        "NoSparkCheckpoint",
        f"{str(folder)!r} is no checkpoint of a streaming query that can be read.",
        why=why,
        effect="nothing was changed",
        do="give the folder that the old job names as checkpointLocation; copy it here if it is on another store",
    )
