"""The console as a sink: the first rows of every frame that has any.

On a terminal a table; else plain lines with tabs, so that `cut` and `grep` work.
Frames without rows print nothing. At least once: what was printed stays printed.

Touches stdout.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import Finding
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.sinks.callback import CallbackSink
from holdfast.sinks.values import sql_columns
from holdfast.sinks.writer import SinkContext

__all__ = ["ConsoleWriter"]


@dataclass(frozen=True, slots=True)
class ConsoleWriter:
    rows: int = 20
    idempotent: bool = False

    def describe(self) -> str:
        return f"console, {self.rows} rows of a frame"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        return []

    def open(self, context: SinkContext) -> CallbackSink:
        return CallbackSink(_Printer(context.sink, self.rows), context)


class _Printer:
    def __init__(self, sink: str, rows_max: int) -> None:
        self._sink, self._rows_max = sink, rows_max

    def __call__(self, table: pa.Table, frame: int) -> None:
        if not table.num_rows:
            return
        kind = (table.schema.metadata or {}).get(b"kind", b"").decode()
        mark = f", {kind}" if kind == Kind.TENTATIVE else ""
        title = f"{self._sink}  frame {frame:,}  {table.num_rows:,} rows{mark}"
        shown = [["" if value is None else str(value) for value in row] for row in _rows(table, self._rows_max)]
        left_out = table.num_rows - len(shown)
        if sys.stdout.isatty():
            _print_table(title, table.column_names, shown)
        else:
            lines = [title, *("  " + "\t".join(row) for row in [table.column_names, *shown])]
            print("\n".join(lines))
        if left_out > 0:
            print(f"  and {left_out:,} more")
        sys.stdout.flush()


def _rows(table: pa.Table, rows_max: int) -> Sequence[tuple]:
    return list(zip(*sql_columns(table.slice(0, rows_max)), strict=True))


def _print_table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in names:
        shown.add_column(Text(name))
    for row in rows:
        # Text, not markup: a value may hold square brackets.
        shown.add_row(*map(Text, row))
    Console().print(shown)
