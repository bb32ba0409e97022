"""A Spark stream as a feed: a query of its own whose batches end only when they are in the source log.

The query's function hands each micro-batch over as one Arrow table and returns
when the source's thread has synced it; then Spark commits the batch. A batch that
was logged and not committed comes again with its number: the log's mark names
the query and its last batch, so it is passed over. The query's checkpoint lies in
the source's folder; if it is lost, a new query has another id and counts anew.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.engine.session.callbacks import Callback
from holdfast.engine.unit.spark_errors import user_lines
from holdfast.errors import SourceError
from holdfast.sources.live.feed import Delivery, Known

__all__ = ["SparkFeed", "stream_of"]


def stream_of(function: Callable[[Any], Any], spark: Any, source: str) -> Any:
    """The user's streaming DataFrame; nothing is read yet."""
    df = function(spark)
    if getattr(df, "isStreaming", False):
        return df
    raise SourceError(
        "HF-S018",
        "NotAStream",
        f"the function of source {source!r} returned no streaming DataFrame.",
        why=f"it returned {type(df).__name__}" + (" of a batch" if hasattr(df, "isStreaming") else ""),
        effect="nothing was read",
        do="return spark.readStream...; for files that are there already take hf.read.files",
    )


class _Stopped(Exception):
    """The source stops; the batch is not committed and comes again."""


class SparkFeed:
    small = False

    def __init__(
        self, spark: Any, function: Callable[[Any], Any], source: str, checkpoint_dir: Path, trigger_ms: int
    ) -> None:
        self._function, self._spark, self._source = function, spark, source
        self._checkpoint_dir, self._trigger_ms = checkpoint_dir, trigger_ms
        self._changed = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._stopped = False
        self._mark: dict[str, Any] | None = None
        self._query: Any = None

    def start(self, known: Known) -> None:
        self._mark = known.mark
        df = stream_of(self._function, self._spark, self._source)
        self._callback = Callback(self._spark, self._batch)
        self._query = (
            df.writeStream.queryName(f"source {self._source}")
            .foreachBatch(self._callback)
            .option("checkpointLocation", str(self._checkpoint_dir))
            .trigger(processingTime=f"{self._trigger_ms} milliseconds")
            .start()
        )

    def take(self, wait_s: float) -> list[Delivery]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, wait_s)
            return [self._waiting.popleft()] if self._waiting else []

    def logged(self, token: Any) -> None:
        token.set()

    def has_ended(self) -> bool:
        if self._waiting or self._query is None or self._query.isActive:
            return False
        error = self._query.exception()
        text = str(error or "it was stopped from outside")
        lines = user_lines(text)
        raise SourceError(
            "HF-S019",
            "IngestQueryDied",
            f"the Spark query that reads source {self._source!r} died.",
            where=f"checkpoint {self._checkpoint_dir}",
            why="\n".join(lines) or text.strip().splitlines()[0][:300],
            effect="batches before it are logged; a new run goes on with the one that failed",
            do="mend what the query reads, or the function, and run again",
        )

    def part(self, delivery: Delivery, items: int) -> None:
        """Nothing: a batch of Spark's is whole."""

    def remark(self) -> str:
        return ""

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._query is not None:
            with contextlib.suppress(Exception):  # the JVM may be gone already
                self._query.stop()
                self._callback.take_back()

    def _batch(self, df: Any, batch_id: int) -> None:
        """Called by Spark, in a thread of Py4J's."""
        mark = {"query": self._query_id(), "batch": batch_id}
        known = self._mark
        if known is not None and known["query"] == mark["query"] and batch_id <= known["batch"]:
            return
        table = df.toArrow()
        if not table.num_rows:
            return
        synced = threading.Event()
        with self._changed:
            self._waiting.append(Delivery([table], synced, mark))
            self._changed.notify_all()
        while not synced.wait(0.2):
            if self._stopped:
                raise _Stopped(f"source {self._source!r} stops; batch {batch_id} comes again")
        self._mark = mark

    def _query_id(self) -> str:
        return json.loads((self._checkpoint_dir / "metadata").read_text())["id"]
