"""Rows set aside, as Parquet files that others may read: with a sum of their rows and of every page.

A user may put them back, so rows damaged in between must not become elements. Parquet has no room for a hash after
the file; pages carry their own checksums, and the file's metadata the checksum of the rows, which also detects a
column that turned into another. Files without it were written by the previous version, or by a user.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import HoldfastError, StateRefused
from holdfast.frames.content import canonical, checksum
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema

__all__ = ["read_aside", "write_aside"]

_SUM = b"holdfast.rows"


def write_aside(where: Path | IO[bytes], table: pa.Table) -> None:
    marked = table.replace_schema_metadata({_SUM: _sum(table)})
    pq.write_table(marked, where, write_page_checksum=True)


def read_aside(path: Path) -> pa.Table:
    """The rows, or HF-R045."""
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        said = (table.schema.metadata or {}).get(_SUM)
        if said is not None and said != _sum(table):
            raise ValueError(f"its rows hash to {_sum(table).decode()}, it says {said.decode(errors='replace')}")
    except (pa.ArrowException, OSError, ValueError, HoldfastError) as error:
        raise StateRefused(
            "HF-R045",
            "AsideDamaged",
            f"the rows set aside in {path.name} are not what was written.",
            where=str(path),
            why=str(error).splitlines()[0],
            effect="none of them was shown or put back",
            do="restore the file from a copy; without one send the rows again from where they came",
        ) from error
    return table.replace_schema_metadata(None)


def _sum(table: pa.Table) -> bytes:
    rows = canonical(table, Schema.of(table.schema.remove_metadata()), None)
    return checksum(rows, n=1, boundary_us=0, kind=Kind.STABLE).encode()
