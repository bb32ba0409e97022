"""What a source is declared to be, read once: its words checked against each other and its reader.

Pure: nothing is opened.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import UsageError
from holdfast.graph.declared import checked_name, one_of, refuse
from holdfast.graph.durations import duration_ms
from holdfast.graph.model import ARRIVAL, Arrival, Source
from holdfast.graph.schemas import Schema

__all__ = ["AHEAD_MS", "SourceTerms"]

# Of live sources, unless they say otherwise. More than clocks that are set at all differ by; so little that a row of
# just within it makes no flood of empty frames: 600 of a second.
AHEAD_MS = 600_000


class SourceTerms:
    """The options of `source(...)`; `declared` makes the source once its name and reader are known."""

    def __init__(
        self,
        *,
        schema: object,
        late: object,
        time: str | Arrival | None,
        keep: object,
        delay_max: object,
        boundary: object,
        bad: object,
        new_columns: object,
        ahead: object,
        on_ahead: object,
        line: str,
    ) -> None:
        self._late = one_of(late, ("admit", "drop", "quarantine", "fail"), what="late")
        self._on_ahead = one_of(on_ahead, ("admit", "drop", "quarantine", "fail"), what="on_ahead")
        self._ahead_ms = None if ahead is None else duration_ms(ahead, what="ahead")
        self._boundary = None if boundary is None else one_of(boundary, ("clock", "hold"), what="boundary")
        self._bad = one_of(bad, ("fail", "drop", "quarantine"), what="bad")
        self._new_columns = one_of(new_columns, ("ignore", "fail", "keep"), what="new_columns")
        self._schema = None if schema is None else Schema.of(schema, what="source schema")
        self._keep_ms = None if keep is None else duration_ms(keep, what="keep")
        self._delay_ms = None if delay_max is None else duration_ms(delay_max, what="delay_max")
        self._time, self._line = time, line

    def declared(self, stream: str, reader: Any) -> Source:
        name = checked_name(stream, what="source")
        if self._schema is None and not getattr(reader, "infers_schema", False):
            raise refuse(
                "HF-C002",
                "NotASchema",
                f"source '{name}' has no schema.",
                do="add schema='ts timestamp, zone int, celsius double'",
            )
        if self._new_columns == "keep" and (self._schema is None or self._schema.type_of("_more") != "string"):
            raise _unfit(name, "new_columns='keep'", "new fields are kept in a column that is not declared",
                         "add '_more string' to schema=")  # fmt: skip
        if self._boundary == "hold" and self._time is ARRIVAL:
            raise _unfit(name, "boundary='hold'", "by arrival it is the clock that closes a frame, whoever is silent",
                         "drop boundary=, or name a time column: time='COLUMN'")  # fmt: skip
        if self._ahead_ms is not None and self._time is ARRIVAL:
            raise _unfit(name, "ahead=", "by arrival the time of an element is when it came: none is ahead",
                         "drop ahead=, or name a time column: time='COLUMN'")  # fmt: skip
        if getattr(reader, "reliable", False):
            self._check_read_again(name)
        if getattr(reader, "growing", False) and self._new_columns != "ignore":
            raise _unfit(name, f"new_columns='{self._new_columns}'", "rows are read where they lie, nothing is logged",
                         "columns that are not declared are not read")  # fmt: skip
        if getattr(reader, "growing", False) and self._ahead_ms is not None:
            raise _unfit(name, "ahead=", "rows are read where they lie, nothing is kept out of a file",
                         "mend the file: HF-S008 names a row that is far ahead of all before it")  # fmt: skip
        check = getattr(reader, "check_schema", None)
        if check is not None and self._schema is not None:
            check(name, self._schema)
        return Source(
            name,
            reader,
            self._schema,
            self._time,
            self._late,
            self._delay_ms,
            self._line,
            self._keep_ms,
            boundary=self._boundary,
            bad=self._bad,
            new_columns=self._new_columns,
            ahead_ms=AHEAD_MS if self._ahead_ms is None and not getattr(reader, "bounded", True) else self._ahead_ms,
            on_ahead=self._on_ahead,
        )

    def _check_read_again(self, name: str) -> None:
        why = "files are cut where they lie, by what is in them: nothing is logged, no clock runs"
        if self._boundary == "clock":
            raise _unfit(name, "boundary='clock'", why, "drop boundary=")
        if self._bad != "fail":
            raise _unfit(name, f"bad='{self._bad}'", why, "mend the file: the error names file and line")
        if self._ahead_ms is not None:
            raise _unfit(name, "ahead=", why, "mend the file: HF-S008 names a row that is far ahead of all before it")
        if self._new_columns != "ignore":
            raise _unfit(name, f"new_columns='{self._new_columns}'", why, "columns that are not declared are not read")


def _unfit(name: str, option: str, why: str, do: str) -> UsageError:
    return refuse("HF-C032", "OptionUnfit", f"{option} means nothing to source '{name}'.", why=why, do=do)
