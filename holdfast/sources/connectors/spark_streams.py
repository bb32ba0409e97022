"""Any streaming DataFrame of Spark as a source: an ingest query of its own, logged batch by batch.

Here is the declaration; `engine.unit.ingest_query` does the work. The function is
called with a session when types are checked or the process is activated, never
at declaration. Imports no Spark, so that `check` stays quick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.sources.live.logged_source import OpenFeed
    from holdfast.sources.reader import SourceContext

__all__ = ["SparkReader"]


class SparkReader:
    """Made by `@process.source` of a function that takes `spark`."""

    reliable = False
    bounded = False
    infers_schema = True

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def describe(self) -> str:
        return f"Spark stream {getattr(self.function, '__name__', repr(self.function))}"

    def open(self, context: SourceContext) -> OpenFeed:
        from holdfast.sources.live.logged_source import OpenFeed

        # A batch costs Spark a tenth of a second whatever is in it: a few per frame, not as many as can be.
        trigger_ms = max(100, context.frame_us // 4000)
        feed = context.spark_feed(self.function, context.name, context.directory / "spark", trigger_ms)
        return OpenFeed(feed, context, bounded=False)
