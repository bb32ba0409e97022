"""Names as SQL reads them back, whatever they hold: one function, with the quote of the dialect."""

from __future__ import annotations

__all__ = ["quoted", "quoted_sql"]


def quoted(name: str, quote: str = "`") -> str:
    """As Spark's SQL reads it back; other dialects have another quote. A quote in the name is doubled."""
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"


def quoted_sql(name: str) -> str:
    """As standard SQL reads it back: SQLite, DuckDB, PostgreSQL."""
    return quoted(name, '"')
