"""What came before: ids of elements and keys of deliveries, as far back as a sender may repeat itself.

Read back from the log when a source opens, so a restart knows them too. A broker
may have at most 65,535 deliveries in flight with a client and repeats none but
those; acknowledgements go out in order, over one connection, so the ones that
may have been lost are the last ones. When the log trims a chunk that holds some
of these, they are written to a file of their own first.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.atomic import drafted
from holdfast.errors import SourceError
from holdfast.frames.sums import checked_bytes, write_arrow
from holdfast.sources.live.feed import Delivery
from holdfast.sources.live.log import SourceLog

__all__ = ["Redelivered"]

# Packet numbers of MQTT have 16 bits, and 0 is none.
IN_FLIGHT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class _Kept:
    batch: int
    ids: tuple[Any, ...]
    keys: tuple[str, ...]
    deliveries: int


class Redelivered:
    def __init__(self, file: Path, log: SourceLog, column: str | None) -> None:
        """`column`: whose values name an element for ever; None if nothing does."""
        self._file, self._column = file, column
        self._named = column or ""  # the column whose values the ids are
        self._kept: deque[_Kept] = deque()
        self._ids: dict[Any, int] = {}
        self._keys: dict[str, int] = {}
        self._gone: set[int] = set()  # batches of those that are no longer in the log
        for kept in self._read_back(log):
            self._add(kept)

    def without_repeats(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Those that did not come before, here or earlier. Only one marked as repeated can be known."""
        new, keys = [], set()
        for each in deliveries:
            if not (each.again and each.key and (each.key in self._keys or each.key in keys)):
                new.append(each)
                keys.add(each.key)
        return new

    def without_known(self, table: pa.Table) -> pa.Table:
        """The rows whose id has not come before, here or earlier; a null is no id."""
        if self._column is None or not table.num_rows:
            return table
        seen: set[Any] = set()
        fresh = []
        for each in _values(table.column(self._column)):
            fresh.append(each is None or (each not in self._ids and each not in seen))
            seen.add(each)
        return table if all(fresh) else table.filter(pa.array(fresh))

    def saw(self, batch: int, table: pa.Table, note: dict[str, Any]) -> None:
        """Logged: these rows are in this batch, or will be."""
        kept = self._of(batch, table, note)
        if kept.ids or kept.keys:
            self._add(kept)

    def outlive(self, doomed: set[int]) -> None:
        """The log is about to delete these batches: what may still be repeated is kept. Durable on return."""
        if not self._kept:
            return
        self._gone |= doomed
        left = sum(kept.deliveries for kept in self._kept)
        # Beyond what can be in flight, ids are known as far back as the log reaches.
        while self._kept[0].batch in self._gone and left - self._kept[0].deliveries >= IN_FLIGHT_MAX:
            left -= self._kept[0].deliveries
            self._forget(self._kept.popleft())
        homeless = [kept for kept in self._kept if kept.batch in self._gone]
        self._gone = {kept.batch for kept in homeless}
        if homeless:
            self._save(homeless)

    # -- forms -----------------------------------------------------------------

    def _of(self, batch: int, table: pa.Table | None, note: dict[str, Any]) -> _Kept:
        ids: tuple[Any, ...] = ()
        if self._column is not None and table is not None:
            ids = tuple(each for each in _values(table.column(self._column)) if each is not None)
        return _Kept(batch, ids, tuple(note.get("keys", ())), note.get("deliveries", 1))

    def _add(self, kept: _Kept) -> None:
        self._kept.append(kept)
        self._ids.update(dict.fromkeys(kept.ids, kept.batch))
        self._keys.update(dict.fromkeys(kept.keys, kept.batch))

    def _forget(self, kept: _Kept) -> None:
        for known, gone in ((self._ids, kept.ids), (self._keys, kept.keys)):
            for each in gone:
                if known.get(each) == kept.batch:
                    del known[each]

    def _read_back(self, log: SourceLog) -> list[_Kept]:
        """Oldest first: from the file, then from the chunks."""
        found: list[_Kept] = []
        deliveries = 0
        for batch in reversed(log.batches):
            chunk = log.chunk(batch)
            if self._column is None and (deliveries >= IN_FLIGHT_MAX or _cannot_repeat(chunk.note)):
                break
            table = log.table(chunk) if self._column is not None else None
            found.append(self._of(batch, table, chunk.note))
            deliveries += found[-1].deliveries
        found = [kept for kept in reversed(found) if kept.ids or kept.keys]
        there = set(log.batches)
        saved = [kept for kept in self._saved() if kept.batch not in there]
        self._gone = {kept.batch for kept in saved}
        return saved + found

    def _save(self, records: list[_Kept]) -> None:
        ids = pa.array([each for kept in records for each in kept.ids])
        about = [[kept.batch, len(kept.ids), kept.keys, kept.deliveries] for kept in records]
        table = pa.table({"id": ids}).replace_schema_metadata({"batches": json.dumps(about), "column": self._named})
        with drafted(self._file, sync=True) as draft:
            write_arrow(draft, table)

    def _saved(self) -> list[_Kept]:
        try:
            table = pa.ipc.open_file(checked_bytes(self._file)[0]).read_all()
            ids = _values(table.column("id"))
            about = json.loads(table.schema.metadata[b"batches"])
            named = table.schema.metadata.get(b"column", self._named.encode()).decode()
        except FileNotFoundError:
            return []
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise SourceError(
                "HF-S009",
                "LogDamaged",
                "the list of deliveries that may come again cannot be read.",
                where=str(self._file),
                why=str(error).splitlines()[0],
                effect="nothing was read or deleted; sealed frames stand",
                do="restore the file from a copy; without one delete it: deliveries that a sender repeats from before it "
                "would count twice",
            ) from error
        if self._column is None:
            self._named = named
        found, at = [], 0
        for batch, count, keys, deliveries in about:
            # Values of another column, which id= named before, say nothing of this one.
            those = tuple(ids[at : at + count]) if named == self._named else ()
            found.append(_Kept(batch, those, tuple(keys), deliveries))
            at += count
        return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Times and dates as numbers: Python's own begin with the year 1 and end with 9999, and a sender's need not."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return column.to_pylist()


def _cannot_repeat(note: dict[str, Any]) -> bool:
    """Deliveries without a key: of a feed that cannot tell, so older ones have none either."""
    return note.get("deliveries", 1) > 0 and "keys" not in note
