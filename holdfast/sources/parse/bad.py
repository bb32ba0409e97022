"""Elements that cannot be taken as declared: found one by one, then failed, dropped or kept apart.

Quarantined, an element lies as it came in `quarantine/bad-<batch>.jsonl` of the
source's folder, one JSON object each: {"at", "frame", "reason", "raw"}. The file
is named by the ingest batch and synced before that batch is logged; rows ahead of the
clock (`ahead`) lie beside it, in `ahead-<batch>.parquet`. So each is
written once however often the batch is tried, and what it holds is acknowledged
only when it is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from holdfast.atomic import drafted, make_folder
from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.journals.asides import write_aside
from holdfast.journals.notes import as_note

__all__ = ["REFUSED", "Bad", "Terms", "halved", "quarantine_ahead", "quarantine_bad"]

# What pyarrow and json raise for values that do not fit; JSON nested too deep is a RecursionError.
REFUSED = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    RecursionError,
    ValueError,
    TypeError,
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What elements must be like to be taken."""

    schema: Schema
    source: str
    new_columns: str = "ignore"  # "fail" | "ignore" | "keep"
    missing: str = "error"  # "error" | "null": a declared field that is not there
    unheld: Mapping[str, str] = field(default_factory=dict)  # what a sink below cannot hold, and which sink
    time: str | None = None  # a column in which each must have a time
    judges_ahead: bool = False  # times that are none because they are too late are judged by `ahead`


@dataclass(frozen=True, slots=True)
class Bad:
    at: int  # among the items
    error: SourceError
    reason: str
    raw: str


def halved(
    rows: Sequence[Any], attempt: Callable[[Sequence[Any]], pa.Table], first_only: bool
) -> tuple[list[pa.Table], list[tuple[int, Any]]]:
    """Tables of all good rows in order, and (place, error) of each bad one; or up to the first bad one.

    All at once if all are good; otherwise in halves, so that one bad row among
    many costs a few attempts and not one for each.
    """
    tables: list[pa.Table] = []
    bad: list[tuple[int, Exception]] = []
    todo = [(0, len(rows))]
    while todo:
        start, stop = todo.pop()
        if start == stop:
            continue
        try:
            tables.append(attempt(rows[start:stop]))
        except (*REFUSED, SourceError) as error:
            if stop - start == 1:
                bad.append((start, error))
                if first_only:
                    break
                continue
            middle = (start + stop) // 2
            todo += [(middle, stop), (start, middle)]
    return tables, bad


def quarantine_bad(folder: Path, batch: int, found: Sequence[Bad]) -> None:
    """Durable on return."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    records = ({"at": at, "frame": None, "reason": bad.reason, "raw": bad.raw} for bad in found)
    lines = (as_note(record) + "\n" for record in records)
    _write(folder / f"bad-{batch:012d}.jsonl", lambda file: file.writelines(line.encode() for line in lines))


def quarantine_ahead(folder: Path, batch: int, rows: pa.Table) -> None:
    """Durable on return."""
    _write(folder / f"ahead-{batch:012d}.parquet", lambda file: write_aside(file, rows))


def _write(final: Path, write: Callable[[IO[bytes]], object]) -> None:
    make_folder(final.parent, sync=True)
    with drafted(final, sync=True) as draft, open(draft, "wb") as file:
        write(file)
