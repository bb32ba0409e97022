"""What Spark refuses only when a query starts or its first frame is planned: the part of `check` that asks it before.

Spark looks at a streaming plan in three places. Its analyser has seen the plan when the
operator returned; what a stream cannot do it refuses when the query starts (sorting, a
second aggregation in update mode), what it has no physical operator for when the first
frame is planned, a second watermark when the second frame is. A plan of a frame is looked
at twice. Each of these would end a unit before it made anything, on every try. So the
same code of Spark's is asked here, with the plan the operator gave for frames without rows.

Nothing is executed. What Spark says is shown as it says it; the remedy is ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from holdfast.errors import Finding
from holdfast.graph.model import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["frame_refused", "stream_refused"]

# Spark's own key: the metadata of a column that a watermark is set on.
_WATERMARK = "spark.watermarkDelayMs"
_EXCEPT = "Except on a stream is an aggregation, and append mode has it only over a column with a watermark."
_NOTHING = "nothing was started, nothing was read"
_A_FRAME_EACH = "say over='frame': each frame is then a batch of its own, and Spark can do all it can with a table"

# What Spark says of a stream -> what to do. The first that is found holds.
_STREAM = (
    (r"^Except", "join with how='left_anti' on all columns; or " + _A_FRAME_EACH),
    (r"^Sorting", "leave the sort out: the rows of a frame have no order; or " + _A_FRAME_EACH),
    (r"^Distinct aggregations", "use F.approx_count_distinct; or " + _A_FRAME_EACH),
    (r"session window streaming aggregations", "leave mode='update' out: a session is answered once, when it is over"),
    (r"session window", "group by a column as well: groupBy('zone', F.session_window(...))"),
    (
        r"without watermark on streaming|Append output mode not supported",
        "group by F.window of the time column as it came, too; or declare mode='update': a group is then answered in each "
        "frame that changes it",
    ),
    (r"not supported for no streaming aggregations", "leave mode= out: without an aggregation all rows are emitted once"),
    (r"^applyInPandasWithState in update mode", "declare mode='update' for the operator, as the function says of itself"),
    (r"^applyInPandasWithState in append mode", "leave mode= out, as the function says of itself"),
    (r"^(?:Limits|Offset|Sampling)|window function|Window function|NON_TIME_WINDOW", _A_FRAME_EACH),
    (
        r"^Stream-stream|^Left[A-Z]\w+ join between|^(?:Right|Full)Outer join between",
        "bound the join by the time column of both sides, e.g. "
        "F.expr('b.ts between a.ts and a.ts + interval 10 seconds'); or use p.join(...)",
    ),
    (r"(?:Outer|Semi|Anti) joins? with (?:a )?streaming", "let the stream be the side whose rows are kept: stream.join(table, how='left')"),
    (r"^Union between streaming and batch", "make the table's rows a source of the process, and union the two; or " + _A_FRAME_EACH),
    (r"^Intersect", "join with how='left_semi' on all columns; or " + _A_FRAME_EACH),
    (r"^Queries without streaming sources", "return a DataFrame that is made from the operator's input"),
    (r"group aggregate pandas UDF", "aggregate with Spark's functions, or in an operator of its own with state: @p.keyed(...)"),
)  # fmt: skip
_TWO_STEPS = "let an operator of its own do what follows the first aggregation: its input is this one's output"
_NO_PIVOT = "write one column for each value instead: F.count(F.when(F.col('state') == 'on', 1)).alias('on')"

_FRAME = (
    (r"^dropDuplicatesWithinWatermark", "say over='stream', which has a watermark; or dropDuplicates(), within each frame"),
    (r"^applyInPandasWithState", "say over='stream'; or keep the state in a keyed operator: @p.keyed(...)"),
    (r"^Queries with streaming sources", "make it a source of the process: @p.source, def name(spark): return spark.readStream..."),
)  # fmt: skip
_AS_IT_SAYS = "change what Spark names: it says the same of any rows"


def stream_refused(operator: Operator, df: DataFrame, mode: str, time: str | None) -> Finding | None:
    """Of a streaming plan, with the watermarks a run sets on `time`; `df` is all that leaves the operator."""
    plan = df._jdf.queryExecution().analyzed()
    if _redefines(plan, False):
        return _twice(operator, time or "")
    if mode == "append" and _subtracts(plan):
        return _finding(operator, _EXCEPT, mode, _remedy(_EXCEPT, _STREAM, ""))
    checker = df.sparkSession._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(plan, _output_mode(df.sparkSession, mode))
        # A select of its own: Spark takes what came out of sql() for a batch otherwise.
        df.sparkSession._jvm.PythonSQLUtils.explainString(df.select("*")._jdf.queryExecution(), "simple")
    except PySparkException as error:  # others are not a word of Spark's on the plan: the run meets them, or does not
        said = _said(error)
        return _finding(operator, said, mode, _stream_remedy(said, plan.treeString()))
    return None


def frame_refused(operator: Operator, df: DataFrame) -> Finding | None:
    """Of the plan of a frame."""
    checker = df.sparkSession._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForBatch(df._jdf.queryExecution().analyzed())
        df._jdf.queryExecution().executedPlan()
    except PySparkException as error:
        said = _said(error)
        return _finding(operator, said, "", _remedy(said, _FRAME, _AS_IT_SAYS))
    return None


def _redefines(node: Any, below_one: bool) -> bool:
    """Whether a watermark is set on rows that have one."""
    is_one = node.nodeName() == "EventTimeWatermark"
    if is_one and below_one:
        return True
    children = node.children()
    return any(_redefines(children.apply(at), below_one or is_one) for at in range(children.size()))


def _subtracts(node: Any) -> bool:
    """Whether rows of a table are taken out of a stream by EXCEPT: Spark makes an aggregation of that only when it runs."""
    if node.nodeName().startswith("Except") and node.isStreaming():
        columns = node.output()
        return not any(columns.apply(at).metadata().contains(_WATERMARK) for at in range(columns.size()))
    children = node.children()
    return any(_subtracts(children.apply(at)) for at in range(children.size()))


def _output_mode(spark: SparkSession, mode: str) -> Any:
    modes = spark._jvm.org.apache.spark.sql.streaming.OutputMode
    return {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(";")[:300]


def _stream_remedy(said: str, tree: str) -> str:
    if "'correctness' issue" in said:
        return _NO_PIVOT if "pivotfirst(" in tree else _TWO_STEPS
    return _remedy(said, _STREAM, _AS_IT_SAYS + "; or " + _A_FRAME_EACH)


def _remedy(said: str, known: tuple[tuple[str, str], ...], other: str) -> str:
    return next((do for pattern, do in known if re.search(pattern, said)), other)


def _finding(operator: Operator, said: str, mode: str, do: str) -> Finding:
    how = f"over='stream', mode={mode!r}" if mode else "over='frame'"
    return Finding(
        "HF-G047", "SparkRefuses", f"Spark will not run operator {operator.name!r}: {said}",
        where=f"{operator.line}, operator {operator.name!r}",
        why=f"with {how} it is refused when its unit starts or plans a frame, on every try and whatever the rows are",
        effect=_NOTHING,
        do=do,
    )  # fmt: skip


def _twice(operator: Operator, time: str) -> Finding:
    return Finding(
        "HF-G043", "WatermarkTwice", f"operator {operator.name!r} sets a watermark, and its input has one.",
        where=f"{operator.line}, operator {operator.name!r}",
        why=f"frames carry the watermark of {time!r}, the process's time: it is the boundary of the frame"
        if time
        else "it is set twice on the same rows, which Spark refuses at the second frame",
        effect=_NOTHING,
        do="leave withWatermark out; to wait for rows that come late declare it: lateness='10 seconds'"
        if time
        else "set one of them",
    )  # fmt: skip
