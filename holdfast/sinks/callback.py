"""A Python function as a sink: handed every frame at least once, and told which.

There is no transaction around somebody else's code: a crash after the function
returned and before the run noted it brings the same frame again, with the same
number and the same rows. Within one run a frame is handed over once. A function
that writes to a database gets "once" with `hf.once` (docs/howto/once.md).

Touches nothing; what the function touches is the user's.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any

import pyarrow as pa

from holdfast.errors import Finding, SinkError
from holdfast.frames.identity import FrameRecord, Kind
from holdfast.graph.schemas import Schema
from holdfast.sinks.ledger import KEPT_FRAMES, Entry, Verdict, judge_frame
from holdfast.sinks.owners import at_work
from holdfast.sinks.writer import SinkContext, fitted, unusable

__all__ = ["CallbackSink", "CallbackWriter", "comes_again", "takes_table_and_frame", "takes_two"]


def takes_table_and_frame(function: object) -> Callable[[pa.Table, int], object]:
    return takes_two(function, "(table, frame)", "hf.write.callback(lambda table, frame: print(frame, table.num_rows))")


def takes_two(function: object, called: str, example: str) -> Callable[[Any, int], object]:
    if not callable(function):
        raise unusable(repr(function), "it cannot be called", example)
    try:
        inspect.signature(function).bind(None, 1)
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise unusable(f"function {name!r}", f"it is called as function{called}: {error}", example) from None
    except ValueError:
        pass  # some built-in functions show no signature; the first call will tell
    return function


def comes_again(function: object, sink: str) -> Finding:
    """What `check` says of every sink whose write is somebody else's code."""
    return Finding(
        "HF-K015",
        "FrameMayComeAgain",
        f"sink function {getattr(function, '__qualname__', type(function).__name__)!r} may be handed a frame again.",
        where=f"sink {sink!r}" if sink else "",
        why="a run that dies after the function returned and before that was noted hands the frame over anew",
        effect="it comes with the same number and the same rows; a function that only adds would add them twice",
        do="let it bear that (an upsert does), or put `with hf.once(connection, frame) as fresh:` around the write, "
        "or write to hf.write.postgres, sqlite or duckdb",
        warning=True,
    )


@dataclass(frozen=True, slots=True)
class CallbackWriter:
    function: Callable[[pa.Table, int], object]
    idempotent: bool = False

    def describe(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"Python function {name}, at least once"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        return [comes_again(self.function, sink)]

    def open(self, context: SinkContext) -> CallbackSink:
        return CallbackSink(self.function, context)


class CallbackSink:
    """LOST frames are not handed over: they have no rows, and the run reports them."""

    def __init__(
        self,
        function: Callable[[Any, int], object],
        context: SinkContext,
        prepared: Callable[[pa.Table], Any] = lambda table: table,
        released: Callable[[Any], None] = lambda rows: None,
    ) -> None:
        """`prepared` turns the rows into what the function takes; `released` is told when it has returned."""
        self._function, self.context, self._prepared, self._released = function, context, prepared, released
        self._known: dict[int, Entry] = {}
        self._last = 0
        self._lock = RLock()

    def last(self) -> int:
        """Of this run: nothing is remembered from the one before."""
        return self._last

    def write(self, batch: Sequence[tuple[FrameRecord, pa.Table]]) -> list[bool]:
        with self._lock:
            return [self._hand_over(record, table) for record, table in batch]

    def close(self) -> None:
        self._known.clear()

    def _hand_over(self, record: FrameRecord, table: pa.Table) -> bool:
        verdict = judge_frame(record, self._known.get(record.n), last=self._last, where=self.context.where)
        if verdict is Verdict.SKIP:
            return False
        if record.kind != Kind.LOST:
            marks = {"frame": str(record.n), "kind": str(record.kind), "checksum": record.checksum, "mark": record.mark}
            table = fitted(record, table, self.context).replace_schema_metadata(marks)
            rows = self._prepared(table)
            try:
                with at_work(self.context.owner, self.context.sink):
                    self._function(rows, record.n)
            except Exception as error:
                raise self._raised(record, error) from error
            finally:
                self._released(rows)
        self._known[record.n] = Entry(record.kind, record.checksum)
        self._last = max(self._last, record.n)
        self._known.pop(self._last - KEPT_FRAMES, None)
        return True

    def _raised(self, record: FrameRecord, error: Exception) -> SinkError:
        # The first line of the traceback is ours; the rest is the user's.
        lines = traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        return SinkError(
            "HF-K010",
            "CallbackRaised",
            f"the sink function raised {type(error).__name__} for frame {record.n}.",
            where=self.context.where,
            why="".join(lines).rstrip(),
            effect="what the function did before it raised is its own; frames from this one on are kept and sent again",
            do="repair the function; it must bear a frame that comes again with the same number and rows",
        )
