"""Types and determinism: the part of `check` that needs a JVM.

Every operator's function is called once on DataFrames without rows, in order of
the graph; what it returns gives the schema of its streams. The analysed plan is
walked for what would make a replay differ: chance, clocks, order, and sums of
floats that are not pinned. Sources and sinks are never opened.
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.engine.failure import user_lines
from holdfast.engine.plan import call_operator, param_columns
from holdfast.errors import Finding, HoldfastError, ProcessRefused
from holdfast.graph.model import Graph, Operator
from holdfast.graph.schemas import Schema
from holdfast.operators.aggregate import type_of_in
from holdfast.operators.library import keyed_function
from holdfast.operators.rowwise import apply_rowwise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_types", "infer"]

_NOTHING = "nothing was started, nothing was read"
_CLOCKS = {
    "CurrentTimestamp": "current_timestamp()",
    "Now": "now()",
    "CurrentDate": "current_date()",
    "CurrentTime": "current_time()",
    "LocalTimestamp": "localtimestamp()",
    "CurrentBatchTimestamp": "current_timestamp()",
}
_ORDERED = {
    "First": "first()",
    "Last": "last()",
    "AnyValue": "any_value()",
    "CollectList": "collect_list()",
    "CollectSet": "collect_set()",
    "ListAgg": "listagg()",
    "Mode": "mode()",
}
_SORTS = {"SortArray", "ArraySort", "Size", "ArrayMin", "ArrayMax"}
_FLOAT_SUMS = {
    "Sum", "TrySum", "Average", "TryAverage", "StddevSamp", "StddevPop", "VarianceSamp", "VariancePop",
    "Skewness", "Kurtosis", "Corr", "CovSample", "CovPopulation", "RegrSlope", "RegrIntercept", "RegrR2",
    "Product", "ApproximatePercentile",
}  # fmt: skip


def check_types(graph: Graph) -> list[Finding]:
    """Open a session for this alone, and look."""
    import tempfile

    from pyspark.sql import SparkSession

    from holdfast.engine.session import close_session, open_session

    active = SparkSession.getActiveSession()
    if active is not None:
        return infer(graph, active)[1]
    with tempfile.TemporaryDirectory(prefix="holdfast-check-") as folder:
        spark = open_session(folder)
        try:
            return infer(graph, spark)[1]
        finally:
            close_session(spark)


def infer(graph: Graph, spark: SparkSession) -> tuple[dict[str, Schema], list[Finding], set[str]]:
    """Schema of every stream; what is wrong; operators whose result depends on the order of rows."""
    schemas: dict[str, Schema] = {source.name: source.schema for source in graph.sources}
    findings: list[Finding] = []
    sensitive: set[str] = set()
    for operator in graph.order:
        missing = [e.stream for e in operator.inputs if not e.is_feedback and e.stream not in schemas]
        if missing:
            continue  # its producer could not be typed; that is reported there
        inputs = [edge.schema if edge.is_feedback else schemas[edge.stream] for edge in operator.inputs]
        try:
            made, plans, floats = _typed(graph, operator, inputs, spark)
        except ProcessRefused as refused:
            findings += refused.findings
            continue
        except HoldfastError as error:
            findings.append(error.finding)
            continue
        except Exception as error:
            findings.append(_raised(graph, operator, inputs, error))
            continue
        schemas.update(made)
        for df in plans:
            found, float_sum = _walk(operator, df)
            findings += found
            floats = floats or float_sum
        if floats:
            sensitive.add(operator.name)
            if (graph.chunks or 1) > 1 and not operator.approximate:
                findings.append(_unpinned(graph, operator))
    findings += _feedback_fits(graph, schemas)
    for sink in graph.sinks:
        if sink.stream in schemas and hasattr(sink.writer, "check"):
            findings += sink.writer.check(schemas[sink.stream], sink=sink.name)
    return schemas, findings, sensitive


def _typed(
    graph: Graph, operator: Operator, inputs: list[Schema], spark: SparkSession
) -> tuple[dict[str, Schema], list[DataFrame], bool]:
    """(schemas of its streams, plans to walk, whether it adds up floats by itself)"""
    empty = _streaming if operator.kind == "stream" else _batch
    ports = {edge.port: empty(spark, s) for edge, s in zip(operator.inputs, inputs, strict=True)}
    if operator.kind in ("frame", "stream"):
        values = {param.name: {"value": param.default, "per": {"": param.default}} for param in graph.params}
        made = call_operator(operator, ports, param_columns(graph, operator, values))
        declared = operator.options.get("emits") or {}
        schemas = {stream: Schema.of(df.schema) for stream, df in made.items()}
        for stream, schema in schemas.items():
            wanted = declared.get(stream)
            if wanted is not None and wanted != schema:
                raise ProcessRefused([_differs(operator.line, stream, f"operator {operator.name!r}", wanted, schema)])
        return schemas, list(made.values()), False
    if operator.kind == "keyed":
        return dict(operator.options["emits"]), [], False
    if operator.kind in ("aggregate", "join"):
        function = keyed_function(operator, inputs, graph, type_of_in(next(iter(ports.values()))))
        plans = [prepare(df) for prepare, df in zip(function.prepare, ports.values(), strict=True)]
        return {operator.outputs[0]: function.emits}, plans, function.float_sensitive
    made = apply_rowwise(operator.kind, operator.options, list(ports.values()), operator.outputs)
    return {stream: Schema.of(df.schema) for stream, df in made.items()}, list(made.values()), False


def _batch(spark: SparkSession, schema: Schema) -> DataFrame:
    return spark.createDataFrame([], schema.ddl)


def _streaming(spark: SparkSession, schema: Schema) -> DataFrame:
    from pyspark.sql import functions as F

    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load()
    columns = [F.lit(None).cast(column.type).alias(column.name) for column in schema.columns]
    return rate.select(*columns)


# ---- the plan ----


def _walk(operator: Operator, df: DataFrame) -> tuple[list[Finding], bool]:
    findings: dict[str, Finding] = {}
    floats = False
    for name, expression, ordered in _expressions(df._jdf.queryExecution().analyzed()):
        if name in _CLOCKS:
            findings.setdefault("clock", _clock(operator, _CLOCKS[name]))
        elif name in _ORDERED and not ordered:
            findings.setdefault("order", _order(operator, _ORDERED[name]))
        elif name in _FLOAT_SUMS and _is_float(expression):
            floats = True
        elif name == "Deduplicate":
            findings.setdefault("order", _order(operator, "dropDuplicates() on some of the columns"))
        elif not expression.getClass().getSimpleName().startswith("Aggregate") and _is_chance(name, expression):
            findings.setdefault("chance", _chance(operator, expression.toString()))
    return list(findings.values()), floats


def _expressions(plan: Any) -> Iterator[tuple[str, Any, bool]]:
    """(class, JVM object, whether an order is given above it) of all expressions in the plan."""
    name = plan.getClass().getSimpleName()
    if name in ("Deduplicate", "DeduplicateWithinWatermark"):
        if plan.keys().size() < plan.output().size():
            yield "Deduplicate", plan, False
    parts = plan.expressions()
    for at in range(parts.size()):
        yield from _below(parts.apply(at), False)
    children = plan.children()
    for at in range(children.size()):
        yield from _expressions(children.apply(at))


def _below(expression: Any, ordered: bool) -> Iterator[tuple[str, Any, bool]]:
    name = expression.getClass().getSimpleName()
    yield name, expression, ordered
    if name in _SORTS:
        ordered = True
    if name == "WindowExpression":
        ordered = expression.windowSpec().orderSpec().size() > 0
    children = expression.children()
    for at in range(children.size()):
        yield from _below(children.apply(at), ordered)


def _is_float(expression: Any) -> bool:
    children = expression.children()
    kinds = [children.apply(at).dataType().simpleString() for at in range(children.size())]
    return any(kind in ("double", "float") for kind in kinds)


def _is_chance(name: str, expression: Any) -> bool:
    if expression.getClass().getSimpleName() == "Alias":
        return False
    try:
        children = expression.children()
        own = all(children.apply(at).deterministic() for at in range(children.size()))
        return own and not expression.deterministic()
    except Exception:
        return False


# ---- findings ----


def _where(operator: Operator) -> str:
    return f"{operator.line}, operator {operator.name!r}"


def _chance(operator: Operator, what: str) -> Finding:
    call = re.sub(r"\(.*", "()", what)
    return Finding(
        "HF-G020", "NonDeterministic", f"operator {operator.name!r} uses {call}.",
        where=_where(operator),
        why="a frame that is replayed must come out the same; chance does not",
        effect=_NOTHING,
        do="take it from the data: a column of the source, or a hash of one (F.xxhash64)",
    )  # fmt: skip


def _clock(operator: Operator, what: str) -> Finding:
    return Finding(
        "HF-G021", "ReadsClock", f"operator {operator.name!r} reads the clock with {what}.",
        where=_where(operator),
        why="a frame that is replayed later must come out the same; the clock has moved on",
        effect=_NOTHING,
        do="use the time column of the elements",
    )  # fmt: skip


def _order(operator: Operator, what: str) -> Finding:
    return Finding(
        "HF-G022", "OrderDependent", f"operator {operator.name!r} uses {what} without an order.",
        where=_where(operator),
        why="rows of a frame come to Spark in no promised order",
        effect=_NOTHING,
        do="say which: F.min_by(x, ts) or F.max_by(x, ts) for one value, "
        "F.sort_array(F.collect_list(x)) for all",
    )  # fmt: skip


def _unpinned(graph: Graph, operator: Operator) -> Finding:
    return Finding(
        "HF-G023", "FloatSumUnpinned",
        f"operator {operator.name!r} adds up floating point numbers and the process reads in {graph.chunks} chunks.",
        where=_where(operator),
        why="the sum of floats depends on the order of addition, which depends on the chunks",
        effect=_NOTHING,
        do="leave chunks= out (such an operator then gets one chunk and one partition), add up decimals, "
        "or say approximate=True",
    )  # fmt: skip


def _differs(line: str, stream: str, whose: str, wanted: Schema, found: Schema) -> Finding:
    return Finding(
        "HF-G003", "PortTypesDiffer", f"stream {stream!r} does not fit what {whose} declares.",
        where=f"{line}            (rule 3: both ends of an edge have one schema)",
        why=f"declared {wanted.ddl}; it is {found.ddl}",
        effect=_NOTHING,
        do=f"declare {found.ddl!r}, or cast in the operator",
    )  # fmt: skip


def _feedback_fits(graph: Graph, schemas: dict[str, Schema]) -> list[Finding]:
    return [
        _differs(
            edge.line or operator.line, edge.stream, f"feedback port {edge.port!r} of operator {operator.name!r}",
            edge.schema, schemas[edge.stream],
        )
        for operator in graph.operators
        for edge in operator.inputs
        if edge.is_feedback and edge.stream in schemas and edge.schema != schemas[edge.stream]
    ]  # fmt: skip


def _raised(graph: Graph, operator: Operator, inputs: list[Schema], error: Exception) -> Finding:
    """The function raised while it was planned: most often a column that is not there."""
    text = str(error)
    unknown = re.search(r"(?:column, variable, or function parameter with name|name) [`'\"]?(?P<name>[^`'\" ]+)", text)
    kind = type(error).__name__
    if kind == "AnalysisException" and unknown is not None:
        name = unknown["name"].strip("`").split("`.`")[-1]
        streams = "; ".join(
            f"{edge.stream!r} emits {schema.ddl}" for edge, schema in zip(operator.inputs, inputs, strict=True)
        )
        close = difflib.get_close_matches(name, [n for s in inputs for n in s.names], 1)
        edge = operator.inputs[0]
        return Finding(
            "HF-G003", "PortTypesDiffer",
            f"stream {edge.stream!r} does not fit port {edge.port!r} of operator {operator.name!r}."
            if len(operator.inputs) == 1
            else f"operator {operator.name!r} reads a column none of its ports has.",
            where=f"{operator.line}, {', '.join(map(str, operator.inputs))}"
            "            (rule 3: both ends of an edge have one schema)",
            why=f"{operator.name!r} reads column {name!r}; {streams}",
            effect=_NOTHING,
            do=f"did you mean {close[0]!r}?" if close else "read a column that is there, or emit it upstream",
        )  # fmt: skip
    lines = user_lines("".join(traceback.format_exception(error)))
    first = text.strip().splitlines()[0][:300] if text.strip() else kind
    return Finding(
        "HF-G024", "OperatorRaised", f"operator {operator.name!r} raised {kind} when it was planned.",
        where=_where(operator),
        why="\n".join([*lines[:-1], first]) if lines else first,
        effect=_NOTHING,
        do="call it yourself on a small DataFrame: decorators leave the function as it is",
    )  # fmt: skip
