"""What a feed delivers, as one Arrow table of the declared schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.sources.live.timed import fitting
from holdfast.sources.live.wire import MORE, Record, new_columns, parse_records
from holdfast.sources.parse.bad import REFUSED, Bad, Terms, halved
from holdfast.sources.parse.exact import holds_rounded, refuse_rounded
from holdfast.sources.parse.fit import check_fits, fit, no_column
from holdfast.sources.parse.there import missing_in, more_of_row, undeclared_columns, undeclared_in

__all__ = ["item_of", "table_of"]


def table_of(items: Sequence[Any], terms: Terms, first: int, *, first_only: bool) -> tuple[pa.Table, list[Bad]]:
    """Dicts, tuples in schema order, records, pandas DataFrames, Arrow tables or batches, in order.

    `first`: the number of the first element, for errors. With `first_only` comes
    the table of the elements before the first bad one: they are good and must not
    be lost with it. Otherwise all good ones, and every bad one.
    """
    tables: list[pa.Table] = []
    bad: list[Bad] = []
    at = 0
    alike = len(set(map(type, items))) < 2
    while at < len(items) and not (bad and first_only):
        kind = _kind(items[at])
        end = len(items) if alike and kind is not None else at + 1
        while kind is not None and end < len(items) and _kind(items[end]) is kind:
            end += 1
        some = items[at:end]
        number = first + sum(table.num_rows for table in tables) + len(bad)
        made, failed = _READ[kind](some, terms, number, first_only)
        tables += made
        bad += [Bad(at + each.at, each.error, each.reason, each.raw) for each in failed]
        at = end
    return pa.concat_tables([terms.schema.arrow.empty_table(), *tables]), bad


def item_of(row: int, items: Sequence[Any], bad: Sequence[Bad]) -> int:
    """The place of the item that gave this row of the table, the bad ones among them left out."""
    left_out = Counter(each.at for each in bad)
    for at, item in enumerate(items):
        is_table = hasattr(item, "columns") or isinstance(item, pa.RecordBatch)
        row -= (len(item) if is_table else 1) - left_out[at]
        if row < 0:
            return at
    raise IndexError(row)


def _kind(item: Any) -> type | None:
    return next((kind for kind in (dict, tuple, Record) if isinstance(item, kind)), None)


def _rows(items: Sequence[Any], terms: Terms, first: int, first_only: bool) -> tuple[list[pa.Table], list[Bad]]:
    named: Callable[[Any], dict] = _checking(terms) if isinstance(items[0], dict) else partial(_named, terms=terms)

    inexact = [field for field in terms.schema.arrow if holds_rounded(field.type)]

    def attempt(some: Sequence[Any]) -> pa.Table:
        rows = list(map(named, some))
        table = pa.Table.from_pylist(rows, schema=terms.schema.arrow)
        for field in inexact:
            for row in rows:
                refuse_rounded(row.get(field.name), field.type, field.name)
        return fitting(table, terms)

    tables, failed = halved(items, attempt, first_only)
    return tables, [_bad(items[at], at, first + at, error, terms) for at, error in failed]


def _arrow(items: Sequence[Any], terms: Terms, first: int, first_only: bool) -> tuple[list[pa.Table], list[Bad]]:
    """One table; it fits or does not, whole."""
    item, where = items[0], f"source {terms.source!r}, from element {first} on"
    if isinstance(item, pa.RecordBatch):
        item = pa.Table.from_batches([item])
    elif hasattr(item, "iloc") and hasattr(item, "columns"):
        try:
            item = pa.Table.from_pandas(item, preserve_index=False)
        except REFUSED as error:  # nobody's bad row, as below
            bad = _bad(item, 0, first, error, terms)
            if first_only:
                return [], [bad]
            raise bad.error from error
    if not isinstance(item, pa.Table):
        return [], [_bad(item, 0, first, TypeError(f"it is a {type(item).__name__}"), terms)]
    if first_only:
        try:
            item = _with_more(item, terms, where)
            check_fits(item.schema, terms.schema, where)
            return [fitting(fit(item, terms.schema, where), terms)], []
        except SourceError as error:
            return [], [Bad(0, error, error.what, f"table of {item.num_rows} rows: {item.schema.names}")]
    # A table of other columns is nobody's bad row: dropped whole, it would take all its rows along.
    item = _with_more(item, terms, where)
    check_fits(item.schema, terms.schema, where)
    tables, failed = halved(item, lambda some: fitting(fit(some, terms.schema, where), terms), first_only)
    return tables, [Bad(0, error, error.why, _shown(item[at : at + 1])) for at, error in failed]


def _shown(row: pa.Table) -> str:
    try:
        return repr(row.to_pylist()[0])
    except (OverflowError, ValueError):  # a time that Python's own types cannot hold
        texts = (column.combine_chunks().to_string(skip_new_lines=True)[1:-1] for column in row.columns)
        return repr(dict(zip(row.column_names, texts, strict=True)))


def _with_more(table: pa.Table, terms: Terms, where: str) -> pa.Table:
    """What is declared for columns nobody declared, done for a whole table."""
    if terms.new_columns == "ignore":
        return table
    declared = {field.name: field.type for field in terms.schema.arrow if field.name != MORE}
    new = [name for name in undeclared_columns(table.schema, declared) if name != MORE or MORE not in terms.schema]
    if terms.new_columns == "fail":
        if new:
            raise new_columns(new, where)
        return table
    if MORE in table.column_names and MORE in terms.schema and not new:
        return table
    some = table.select(
        [name for name in table.column_names if name not in declared or pa.types.is_nested(declared[name])]
    )
    more = [more_of_row(row, declared) for row in some.to_pylist()] if new else [None] * table.num_rows
    if MORE in table.column_names:
        table = table.drop_columns([MORE])
    return table.append_column(MORE, pa.array(more, pa.string()))


_READ = {dict: _rows, tuple: _rows, Record: parse_records, None: _arrow}


def _checking(terms: Terms) -> Callable[[dict], dict]:
    """What refuses a row that lacks a field, and does with fields nobody declared what is declared for them."""
    declared = {field.name: field.type for field in terms.schema.arrow if field.name != MORE}
    deep = {name: kind for name, kind in declared.items() if pa.types.is_nested(kind)}
    keeps, fails = terms.new_columns == "keep", terms.new_columns == "fail"

    def checked(row: dict) -> dict:
        missing = next((name for name in declared if name not in row), None)
        if missing is not None:
            raise no_column(missing, [str(key) for key in row], "")
        if deep and (found := next(missing_in(row, deep), None)) is not None:
            raise no_column(*found, "")
        if fails and (
            new := [name for name in undeclared_in(row, declared) if name != MORE or MORE not in terms.schema]
        ):
            raise ValueError(f"fields that are not declared: {', '.join(new)}")
        return row | {MORE: more_of_row(row, declared)} if keeps else row

    return checked


def _named(row: tuple, terms: Terms) -> dict:
    names = terms.schema.names
    if len(row) != len(names):
        raise ValueError(f"{len(row)} values for {len(names)} columns ({terms.schema.ddl})")
    return dict(zip(names, row, strict=True))


def _bad(item: Any, at: int, number: int, error: Exception, terms: Terms) -> Bad:
    shown, where = repr(item), f"source {terms.source!r}"
    if isinstance(error, SourceError):
        placed = SourceError(
            error.code, error.name, error.what, where=f"{where}, element {number}", why=error.why,
            effect=error.effect, do=error.do,
        )  # fmt: skip
        return Bad(at, placed, error.what, shown)
    why = _which(item, terms, error)
    said = SourceError(
        "HF-S011",
        "BadElement",
        f"element {number} cannot be taken as declared.",
        where=where,
        why=f"{why}; it was {shown[:120]}{'...' if len(shown) > 120 else ''}",
        effect="it is not logged, nor what came after it; elements before it are",
        do="yield dicts, tuples in schema order, pandas DataFrames or Arrow tables that fit",
    )
    return Bad(at, said, why, shown)


def _which(item: Any, terms: Terms, error: Exception) -> str:
    """The column that does not fit, if it is one column's affair."""
    row = item
    if isinstance(item, tuple) and len(item) == len(terms.schema.names):
        row = _named(item, terms)
    if isinstance(row, dict):
        for field in terms.schema.arrow:
            try:
                pa.array([row.get(field.name)], field.type)
                refuse_rounded(row.get(field.name), field.type, field.name)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as bad:
                return f"{field.name} = {row.get(field.name)!r}: {str(bad).splitlines()[0]}"
    return str(error).splitlines()[0]
