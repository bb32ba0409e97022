"""`hf.write.foreach_batch`: the function of an existing job, handed every frame as a Spark DataFrame.

    def upsert(df, batch_id): ...

`batch_id` is the frame's number for ever. Spark counts batches of one checkpoint
and begins again at 0 with the next; frames go on where they were, after restarts,
after changed code, and in the ledger of `hf.once`. The same number always has the
same rows. Like every function it is handed a frame at least once (`callback.py`).

Runs in the sink's thread, in a session of its own: two sinks may make views of one name. What the
function caches of a frame and leaves there is dropped when it returns, so memory stays flat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import Finding, SinkError
from holdfast.graph.schemas import Schema
from holdfast.sinks.callback import CallbackSink, comes_again
from holdfast.sinks.writer import SinkContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ForeachBatchWriter"]


@dataclass(frozen=True, slots=True)
class ForeachBatchWriter:
    function: Callable[[DataFrame, int], object]
    idempotent: bool = False

    def describe(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"Python function {name} on a DataFrame, at least once"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        return [comes_again(self.function, sink)]

    def open(self, context: SinkContext) -> CallbackSink:
        if context.spark is None:
            raise SinkError(
                "HF-K004",
                "SinkNotOpened",
                "foreach_batch needs the Spark session of a run.",
                where=context.where,
                why="a DataFrame belongs to a session, and this sink was opened without a run around it",
                effect="nothing was written",
                do="run the process, or give this sink hf.write.callback: it is handed an Arrow table",
            )
        return CallbackSink(self.function, context, _as_dataframe(_sibling(context.spark), context.schema), _uncached)


def _sibling(spark: SparkSession) -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def _as_dataframe(spark: SparkSession, schema: Schema) -> Callable[[pa.Table], Any]:
    from pyspark.sql.types import StructType

    declared = StructType.fromDDL(schema.ddl)
    return lambda table: spark.createDataFrame(table.replace_schema_metadata(None), declared)  # type: ignore[call-overload]


def _uncached(df: DataFrame) -> None:
    manager = df.sparkSession._jsparkSession.sharedState().cacheManager()
    if not manager.isEmpty():
        manager.uncacheQuery(df._jdf, True)
