"""What came before: ids of elements and keys of deliveries, as far back as a sender may repeat itself.

Read back from the log when a source opens, so a restart knows them too. A broker
may have at most 65,535 deliveries in flight with a client and repeats none but
those; acknowledgements go out in order, over one connection, so the ones that
may have been lost are the last ones. Chunks that hold so many are not trimmed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sources.feed import Delivery
from holdfast.sources.log import SourceLog

__all__ = ["Redelivered"]

# Packet numbers of MQTT have 16 bits, and 0 is none.
IN_FLIGHT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class _Kept:
    batch: int
    ids: tuple[object, ...]
    keys: tuple[str, ...]
    deliveries: int


class Redelivered:
    def __init__(self, log: SourceLog, column: str | None) -> None:
        """`column`: whose values name an element for ever; None if nothing does."""
        self._column = column
        self._kept: deque[_Kept] = deque()
        self._ids: dict[object, int] = {}
        self._keys: dict[str, int] = {}
        self._deliveries = 0
        for chunk in log.chunks():
            table = log.table(chunk) if column is not None else None
            self.saw(chunk.batch, table, chunk.note)

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
        seen: set[object] = set()
        fresh = []
        for each in table.column(self._column).to_pylist():
            fresh.append(each is None or (each not in self._ids and each not in seen))
            seen.add(each)
        return table if all(fresh) else table.filter(pa.array(fresh))

    def saw(self, batch: int, table: pa.Table | None, note: dict[str, Any]) -> None:
        """Logged: these rows are in this batch, or will be."""
        ids: tuple[object, ...] = ()
        if self._column is not None and table is not None:
            ids = tuple(pc.drop_null(table.column(self._column)).to_pylist())
        keys = tuple(note.get("keys", ()))
        kept = _Kept(batch, ids, keys, note.get("deliveries", 1))
        self._kept.append(kept)
        self._ids.update(dict.fromkeys(ids, batch))
        self._keys.update(dict.fromkeys(keys, batch))
        self._deliveries += kept.deliveries

    def needed_from(self) -> int | None:
        """The oldest batch whose deliveries may be repeated; None if it does not matter."""
        if self._column is None and not self._keys:
            return None
        left = self._deliveries
        for kept in self._kept:
            left -= kept.deliveries
            if left < IN_FLIGHT_MAX:
                return kept.batch
        return None

    def forget(self, batches: set[int]) -> None:
        """These batches are all the log still has."""
        newest = max(batches, default=0)  # later ones are still to become files
        while self._kept and self._kept[0].batch <= newest and self._kept[0].batch not in batches:
            kept = self._kept.popleft()
            self._deliveries -= kept.deliveries
            for known, gone in ((self._ids, kept.ids), (self._keys, kept.keys)):
                for each in gone:
                    if known.get(each) == kept.batch:
                        del known[each]
