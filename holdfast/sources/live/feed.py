"""What a logged source is fed by: deliveries, each let go only when it is safe.

A feed brings elements that cannot be read again: a Python function, a broker's
subscription, lines on a socket, batches of a Spark query. `ingest` takes its
deliveries, writes them to the source log, and only when they are synced calls
`logged` with the delivery's token; that is when a feed acknowledges a message,
answers a client or lets a batch commit. What a feed has not been told of may
come again after a crash.

To recognise such a delivery, a feed may give each a `mark`: what it needs to
know of all deliveries so far (the last batch, how many were taken). The log
keeps the last one, whatever it trims, and hands it to `start`.

Called by the source's own thread, all but `stop` and `remark`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Delivery", "Feed", "Known"]


@dataclass(frozen=True, slots=True)
class Known:
    """What the log holds when a feed starts."""

    rows: int  # elements logged, ever
    mark: dict[str, Any] | None  # of the last delivery that had one


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """Elements that come, are logged and are acknowledged together."""

    items: Sequence[object]  # dicts, tuples, tables, batches or `records.Record`s, in order
    token: object = None
    mark: dict[str, Any] | None = None
    key: str = ""  # equal when the same delivery is made again; "" if it cannot be told
    again: bool = False  # whoever delivers says that it may have come before


class Feed(Protocol):
    small: bool  # delivers in small pieces, which are gathered before they make a chunk

    def start(self, known: Known) -> None:
        """Begin to listen; called once, before the first `take`."""

    def take(self, wait_s: float) -> list[Delivery]:
        """What has come, at most a batch; waits a little if nothing has."""

    def logged(self, token: object) -> None:
        """The delivery is synced to the log: it may be acknowledged."""

    def has_ended(self) -> bool:
        """Everything was taken and no more will come; raises what went wrong after the last."""

    def part(self, delivery: Delivery, items: int) -> Delivery | None:
        """The delivery as if only its first items had come; None if it is taken or refused as a whole."""

    def remark(self) -> str:
        """What a status should say of it now, e.g. that a broker is away; mostly nothing."""

    def stop(self) -> None: ...
