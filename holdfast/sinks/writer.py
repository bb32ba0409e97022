"""What a sink is to the engine: a `Writer` is declared, an `OpenSink` writes frames.

A `Writer` is a value: it opens nothing, so `check` may look at it. The engine
opens it once per run with the epoch it holds, asks `last()` where to go on, and
hands over sealed frames in canonical row order, as many as wait at once.

Nothing here may touch a database, a file or Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Broken, Finding, SinkError, UsageError
from holdfast.frames.identity import FrameRecord
from holdfast.graph.schemas import Schema, folded
from holdfast.sinks.owners import Owner, Taking
from holdfast.sinks.refusing import Aside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "NEW_COLUMNS",
    "RESERVED",
    "OpenSink",
    "SinkContext",
    "Writer",
    "column_findings",
    "declared_flag",
    "declared_keys",
    "declared_new_columns",
    "fitted",
    "frames_named",
    "json_key_findings",
    "numbered",
    "refuse",
    "unusable",
]

#: Columns that sinks add to a table: the stream time (n, i) of a row.
RESERVED = ("_frame", "_i")

#: What becomes of a column that the stream has and the table lacks.
NEW_COLUMNS = ("fail", "add")


@dataclass(frozen=True, slots=True)
class SinkContext:
    process: str
    sink: str
    schema: Schema
    time: str | None
    base: Path  # relative targets are found from here
    epoch: int  # of the run that writes; frames may have been sealed in an older one
    spark: SparkSession | None = None  # of the run, for who hands out DataFrames
    owner: Owner | None = None  # the state folder that writes; None: nobody asks
    on_error: str = "fail"  # a row that the target refuses: "fail" | "quarantine" | "drop"
    aside: Aside | None = None  # where decisions about such rows are kept
    stream: str = ""  # whose rows they are
    taking: Taking | None = None  # opened only to be taken over, not to be written; the schema is not looked at

    @property
    def where(self) -> str:
        return f"stream process {self.process!r}, sink {self.sink!r}"

    @property
    def is_known(self) -> bool:
        """Whether the state folder has written to this sink before."""
        return self.owner is not None and self.sink in self.owner.sinks


class OpenSink(Protocol):
    def last(self) -> int:
        """The highest frame that is in the target for good, 0 if none or not known."""

    def write(self, batch: Sequence[tuple[FrameRecord, pa.Table]]) -> list[bool]:
        """Per frame: True = written now, False = was there already."""

    def close(self) -> None: ...


@runtime_checkable
class Writer(Protocol):
    #: A frame handed over again changes nothing. False: at least once, and `check` says so.
    idempotent: bool

    # A writer may have `cannot_hold`: values (`graph.reaching`) that no frame for it may hold.

    def describe(self) -> str: ...

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        """What is wrong with this sink for this schema, found without opening anything."""

    def open(self, context: SinkContext) -> OpenSink: ...


def declared_keys(keys: str | Sequence[str] | None) -> tuple[str, ...]:
    names = (keys,) if isinstance(keys, str) else tuple(keys or ())
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise unusable(f"keys={keys!r}", "keys are names of columns, each named once", "keys=['zone', 'ts']")
    return names


def declared_new_columns(new_columns: str) -> str:
    if new_columns not in NEW_COLUMNS:
        raise unusable(f"new_columns={new_columns!r}", "it is 'fail' or 'add'", "new_columns='add'")
    return new_columns


def declared_flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise unusable(f"{name}={value!r}", "it is True or False", f"{name}=True")
    return value


def unusable(value: str, why: str, example: str) -> UsageError:
    return UsageError(
        "HF-K011",
        "SinkNotUsable",
        f"{value} makes no sink.",
        why=why,
        effect="nothing was declared",
        do=f"write e.g. {example}",
    )


def json_key_findings(schema: Schema, keys: Sequence[str], sink: str) -> list[Finding]:
    """Of a table that holds nested values as JSON, where NaN is null: two keys would become one."""
    return [
        Finding(
            "HF-K001",
            "TableDoesNotFit",
            f"key {key!r} is {schema.type_of(key)}, which holds floating-point numbers.",
            where=f"sink {sink!r}" if sink else "",
            why="the table holds it as JSON, where NaN and null are the same: two keys would become one",
            effect="nothing was opened, nothing was written",
            do="key by columns that are not nested, or turn the numbers into decimal or text in an operator",
        )
        for key in keys
        if key in schema and kinds.is_nested(kind := schema.arrow.field(key).type) and _has_float(kind)
    ]


def _has_float(kind: pa.DataType) -> bool:
    return kinds.is_floating(kind) or any(_has_float(kind.field(at).type) for at in range(kind.num_fields))


def column_findings(schema: Schema, keys: Sequence[str], sink: str) -> list[Finding]:
    """What every table says no to: a key that is no column, our own names, names that fold."""
    where = f"sink {sink!r}" if sink else ""
    found = []
    for key in keys:
        if key not in schema:
            near = _nearest(key, schema.names)
            found.append(
                Finding(
                    "HF-K002",
                    "KeyMissing",
                    f"key {key!r} is no column of the stream.",
                    where=where,
                    why=f"the stream has {schema.ddl}",
                    effect="nothing was opened, nothing was written",
                    do=f"did you mean {near!r}?" if near else "name a column of the stream",
                )
            )
    before: dict[str, str] = {name: name for name in RESERVED}
    for name in schema.names:
        other = before.get(folded(name))
        before[folded(name)] = name
        if other is not None:
            ours = " (Holdfast keeps the frame number there)" if other in RESERVED else ""
            found.append(
                Finding(
                    "HF-K001",
                    "TableDoesNotFit",
                    f"column {name!r} cannot stand in a table beside {other!r}{ours}.",
                    where=where,
                    why="the database does not tell upper from lower case in names of columns",
                    effect="nothing was opened, nothing was written",
                    do="rename the column in the operator that makes the stream",
                )
            )
    return found


def refuse(findings: Sequence[Finding], context: SinkContext) -> None:
    for finding in () if context.taking is not None else findings:
        raise SinkError(
            finding.code, finding.name, finding.what,
            where=context.where, why=finding.why, effect=finding.effect, do=finding.do,
        )  # fmt: skip


def fitted(record: FrameRecord, table: pa.Table, context: SinkContext) -> pa.Table:
    """The declared columns in order. Rows stay in the order in which they were sealed."""
    if table.num_rows != record.rows:
        raise Broken(
            "HF-X001",
            "Broken",
            f"frame {record.n} of {record.stream!r} has {table.num_rows} rows, its record says {record.rows}.",
            effect="the frame was not written",
            do="this is a defect of Holdfast: report it with this text",
        )
    wanted = context.schema.arrow
    if table.schema.equals(wanted):
        return table
    if record.epoch < context.epoch:
        # Sealed by a run before this one, whose stream did not have these columns yet.
        for name in set(wanted.names) - set(table.column_names):
            table = table.append_column(wanted.field(name), pa.nulls(table.num_rows, wanted.field(name).type))
        for name in table.column_names:
            if name not in wanted.names and table.column(name).null_count < table.num_rows:
                raise _column_gone(record, name, context)
    return table.select(wanted.names).cast(wanted)


def _column_gone(record: FrameRecord, column: str, context: SinkContext) -> SinkError:
    return SinkError(
        "HF-K001",
        "TableDoesNotFit",
        f"frame {record.n} of {record.stream!r} has a column {column!r}, which the stream no longer has.",
        where=context.where,
        why="it was sealed by a run before, and waits; the operator was changed meanwhile: the column's values would be lost",
        effect="nothing of the frame was written; it and those after it wait sealed",
        do=f"make it, and those after it, with the operator as it is now: holdfast remake {record.stream} {record.n}\n"
        "or run with the operator as it was until the sink has them, then with the change",
    )


def numbered(record: FrameRecord, base: int) -> FrameRecord:
    """The record under the number that its frame has in the target."""
    return replace(record, n=record.n + base) if base else record


def frames_named(batch: Sequence[tuple[FrameRecord, pa.Table]]) -> str:
    numbers = [record.n for record, _ in batch]
    low, high = min(numbers), max(numbers)
    return f"frame {low}" if low == high else f"frames {low} to {high}"


def _nearest(word: str, names: Sequence[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, names, n=1)), None)
