"""`hf.read`: what a stream process can read. Each function declares and opens nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from holdfast.sources.files import FileReader
from holdfast.sources.iterators import IteratorReader

__all__ = ["files", "iterator"]


def files(
    pattern: str | os.PathLike[str],
    *,
    rate: str | float | None = None,
    format: str | None = None,
    header: bool = True,
    delimiter: str | None = None,
    quote: str | None = '"',
    null: str = "",
    missing: str = "error",
) -> FileReader:
    """Parquet, CSV or JSON lines: a file, a folder or a glob, in the order of names.

    `rate`: None is as fast as possible, "as recorded", "10x", or elements a second.
    `format`: by suffix (.parquet, .csv, .tsv, .jsonl, .json, .ndjson; text may be .gz).
    CSV: `header`, `delimiter`, `quote` (None: quotes mean nothing), `null` (text of a null).
    JSON: `missing="null"` lets a declared field be absent from all the first rows.
    """
    options = {
        "header": header,
        "delimiter": delimiter,
        "quote": quote,
        "null": null,
        "missing": missing,
    }
    return FileReader(pattern, format=format, rate=rate, options=options)


def iterator(function: Callable[..., Iterable[object]], *, bounded: bool = True) -> IteratorReader:
    """What `function()` yields: dicts, tuples, pandas or Arrow tables; logged before use.

    A function with a parameter is handed the number of elements already logged,
    so that after a restart it can go on where it was; one without must yield the
    same elements from the beginning again, and those already logged are skipped.
    """
    return IteratorReader(function, bounded=bounded)
