"""Types and determinism: the part of `check` that needs a JVM.

Every operator's function is called once on DataFrames without rows, in order of
the graph; what it returns gives the schema of its streams, and its analysed plan
says what would make a replay differ (`engine.check.determinism`) and what Spark would refuse
only at run time (`engine.check.refusals`). Sources and sinks are never opened.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.engine.check.determinism import look
from holdfast.engine.check.manners import alone, settings_of
from holdfast.engine.check.refusals import frame_refused, stream_refused
from holdfast.engine.unit.building import Jobs, active, own_session
from holdfast.engine.unit.ingest_query import stream_of
from holdfast.engine.unit.plan import bounded, call_operator, param_columns, tag
from holdfast.engine.unit.spark_errors import user_lines
from holdfast.engine.unit.worker import BOUNDARY
from holdfast.errors import Finding, HoldfastError, ProcessRefused
from holdfast.graph.fitting import source_times
from holdfast.graph.model import Graph, Operator, Source
from holdfast.graph.reserved import reserved_in
from holdfast.graph.schemas import Schema
from holdfast.graph.units import Unit, cut
from holdfast.operators.aggregate import type_of_in
from holdfast.operators.library import keyed_function
from holdfast.operators.rowwise import apply_rowwise
from holdfast.sources.parse.fit import check_fits

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["check_types", "infer", "with_schemas"]

_NOTHING = "nothing was started, nothing was read"


def check_types(graph: Graph) -> list[Finding]:
    """Open a session for this alone, and look."""
    import tempfile

    from pyspark.sql import SparkSession

    from holdfast.engine.session.session import close_session, open_session

    active = SparkSession.getActiveSession()
    if active is not None:
        return infer(graph, active)[1]
    with tempfile.TemporaryDirectory(prefix="holdfast-check-") as folder:
        spark = open_session(folder)
        try:
            return infer(graph, spark)[1]
        finally:
            close_session(spark)


def infer(graph: Graph, spark: SparkSession) -> tuple[dict[str, Schema], list[Finding], dict[str, bool]]:
    """Schema of every stream; what is wrong; operators that need one chunk and one partition, and whether rows in order."""
    schemas, findings = _source_schemas(graph, spark)
    pinned: dict[str, bool] = {}
    streamed: dict[str, DataFrame] = {}  # what leaves operators over the stream
    spark = own_session(spark)  # what the functions leave there, views first of all, is not seen by the run
    with _quiet(), active(spark):
        for operator in graph.order:
            if any(not edge.is_feedback and edge.stream not in schemas for edge in operator.inputs):
                continue  # its producer could not be typed; that is reported there
            inputs = [edge.schema if edge.is_feedback else schemas[edge.stream] for edge in operator.inputs]
            if any(schema is None for schema in inputs):
                continue  # feedback without a schema: a rule of structure
            findings += settings_of(operator, spark)
            typing = _Typing(graph, operator, inputs, spark)
            schemas.update(typing.schemas)
            streamed.update(typing.streamed)
            if operator.kind != "keyed":  # of a keyed one they are declared, and were seen before
                for schema in typing.schemas.values():
                    findings += reserved_in(schema.names, f"operator {operator.name!r}", operator.line)
            findings += typing.findings
            if typing.pinned:
                pinned[operator.name] = typing.ordered
        for unit in cut(graph):
            if unit.stream_part and unit.frame_part and all(each.warning for each in findings):
                findings += _unit_refused(graph, unit, spark, schemas, streamed)
    findings += _feedback_fits(graph, schemas)
    for sink in graph.sinks:
        if sink.stream in schemas and hasattr(sink.writer, "check"):
            findings += sink.writer.check(schemas[sink.stream], sink=sink.name)
    return schemas, findings, pinned


def with_schemas(graph: Graph, schemas: dict[str, Schema]) -> Graph:
    """The graph with the schemas of sources that did not declare theirs."""
    return replace(graph, sources=tuple(replace(each, schema=schemas.get(each.name)) for each in graph.sources))


def _source_schemas(graph: Graph, spark: SparkSession) -> tuple[dict[str, Schema], list[Finding]]:
    """As declared; a Spark stream is asked, which reads nothing yet: for its schema, or whether it fits."""
    schemas = {source.name: source.schema for source in graph.sources if source.schema is not None}
    findings: list[Finding] = []
    for source in graph.sources:
        if getattr(source.reader, "infers_schema", False):
            try:
                found = Schema.of(stream_of(source.reader.function, spark, source.name).schema)
                if source.name in schemas:
                    check_fits(found.arrow, source.schema, f"{source.line}, source {source.name!r}")
                schemas.setdefault(source.name, found)
            except HoldfastError as error:
                findings.append(error.finding)
            except Exception as error:
                findings.append(_source_raised(source, error))
    if len(schemas) == len(graph.sources) and any(source.schema is None for source in graph.sources):
        findings += source_times(with_schemas(graph, schemas))
    return schemas, findings


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PySpark logs every failed analysis to the terminal, stack and all; we say what it was."""
    loggers = [logging.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


class _Typing:
    """One operator called on DataFrames without rows: what it emits, what is wrong with it."""

    def __init__(self, graph: Graph, operator: Operator, inputs: list[Schema], spark: SparkSession) -> None:
        self.schemas: dict[str, Schema] = {}
        self.streamed: dict[str, DataFrame] = {}
        self.findings: list[Finding] = []
        self.pinned = self.ordered = False
        self._graph, self._operator, self._inputs = graph, operator, inputs
        try:
            self._call(spark)
        except ProcessRefused as refused:
            self.findings += [each if each.where else _placed(operator, each) for each in refused.findings]
        except HoldfastError as error:
            # What the plan shows to be wrong says more than a type that follows from it.
            self.findings = self.findings or [_placed(operator, error.finding)]
        except Exception as error:
            self.findings.append(_raised(operator, inputs, error))

    def _call(self, spark: SparkSession) -> None:
        graph, operator = self._graph, self._operator
        if operator.kind == "keyed":
            self.schemas = dict(operator.options["emits"])
            return
        if operator.kind == "stream":
            empty: Any = partial(_streaming, time=graph.time, lateness_ms=operator.options.get("lateness_ms") or 0)
        else:
            empty = _batch
        if operator.spark_conf and not settings_of(operator, spark):
            spark = own_session(spark, operator.spark_conf)
        ports = {edge.port: empty(spark, s) for edge, s in zip(operator.inputs, self._inputs, strict=True)}
        dfs = list(ports.values())
        if operator.kind in ("aggregate", "join"):
            function = keyed_function(operator, self._inputs, graph, type_of_in(dfs[0]))
            self._look(
                [prepare(df) for prepare, df in zip(function.prepare, dfs, strict=True)], function.float_sensitive
            )
            self.schemas = {operator.outputs[0]: function.emits}
            return
        if operator.kind in ("frame", "stream"):
            values = {param.name: {"value": param.default, "per": {"": param.default}} for param in graph.params}
            jobs = Jobs(spark.sparkContext, f"holdfast-check-{operator.name}")
            with alone(operator, spark, dfs) as found, jobs:
                made = call_operator(operator, ports, param_columns(graph, operator, values))
            self.findings += found
            self.pinned = self.ordered = jobs.ran  # what it asks of the rows while it plans may depend on their order
        else:
            made = apply_rowwise(operator.kind, operator.options, dfs, operator.outputs)
            self.findings += _beyond_a_row(operator, list(made.values()))
        self._look(list(made.values()), False)
        schemas = {stream: Schema.of(df.schema) for stream, df in made.items()}
        for stream, wanted in (operator.options.get("emits") or {}).items():
            # Of outputs=["lo", "hi"] only the names are declared.
            if wanted is not None and stream in schemas and wanted != schemas[stream]:
                self.findings.append(
                    _differs(operator.line, stream, f"operator {operator.name!r}", wanted, schemas[stream])
                )
        self.schemas = schemas
        if all(each.warning for each in self.findings):
            self._refused(made)

    def _refused(self, made: dict[str, DataFrame]) -> None:
        """What else is wrong says more than what Spark makes of it: asked only if nothing was found."""
        operator, graph = self._operator, self._graph
        if operator.kind == "stream":
            self.streamed = made
            whole = tag(list(made.values()), operator.outputs, self.schemas)
            found = [stream_refused(operator, whole, operator.options["mode"], _time_of(graph))]
        elif operator.kind == "frame":
            found = [frame_refused(operator, df) for df in made.values()]
        else:
            return  # expressions alone, which Spark has analysed
        self.findings += [finding for finding in found if finding is not None][:1]

    def _look(self, dfs: list[DataFrame], float_sums: bool) -> None:
        operator, graph = self._operator, self._graph
        findings: dict[str, Finding] = {}
        for df in dfs:
            found = look(df)
            float_sums = float_sums or found.float_sums
            self.pinned = self.pinned or found.pinned
            self.ordered = self.ordered or found.ordered
            for what in found.chance[:1]:
                findings.setdefault("chance", _chance(operator, what))
            for what in found.clocks[:1]:
                findings.setdefault("clock", _clock(operator, what))
            for what in found.order[:1]:
                findings.setdefault("order", _order(operator, what))
            if found.columns_from_data:
                findings.setdefault("columns", _columns(operator))
        self.findings += findings.values()
        if float_sums:
            self.pinned = True
            if (graph.chunks or 1) > 1 and not operator.approximate:
                self.findings.append(_unpinned(graph, operator))


def _unit_refused(
    graph: Graph, unit: Unit, spark: SparkSession, schemas: dict[str, Schema], streamed: dict[str, DataFrame]
) -> list[Finding]:
    """Built-ins that share the streaming plan of an operator: a window function in a `map`, for one."""
    above = graph.operator(unit.stream_part[0])
    dfs = {port.stream: _streaming(spark, schemas[port.stream], graph.time, 0) for port in unit.inputs} | streamed
    found: list[Finding | None] = []
    for operator in map(graph.operator, unit.frame_part):
        made = apply_rowwise(
            operator.kind, operator.options, [dfs[edge.stream] for edge in operator.inputs], operator.outputs
        )
        dfs |= made
        found.append(
            stream_refused(operator, tag(list(made.values()), operator.outputs, schemas), above.options["mode"], None)
        )
    whole = tag([dfs[stream] for stream in unit.outputs], unit.outputs, schemas)
    if stream_refused(above, whole, above.options["mode"], None) is None:  # what counts is the plan of the unit
        return []
    return [finding for finding in found if finding is not None][:1]


def _time_of(graph: Graph) -> str | None:
    return graph.time if isinstance(graph.time, str) else None


def _beyond_a_row(operator: Operator, dfs: list[DataFrame]) -> list[Finding]:
    """A built-in without memory may be handed several frames at once: what looks at other rows would mix them."""
    for df in dfs:
        tree = df._jdf.queryExecution().analyzed().treeString()
        found = re.search(r"^[\s:+-]*(Aggregate|Window|Sort|Distinct)\b", tree, flags=re.MULTILINE)
        if found is not None:
            what = {"Aggregate": "an aggregate", "Window": "a window function"}.get(found[1], "an order of rows")
            return [
                Finding(
                    "HF-G050", "NotRowByRow", f"operator {operator.name!r} ({operator.kind}) uses {what}.",
                    where=_where(operator),
                    why=f"what {operator.kind}() makes of a row depends on that row alone, so that several frames can be taken at once",
                    effect=_NOTHING,
                    do="aggregate(...) keeps results over frames; within a frame write it as @process.operator: return rows.selectExpr(...)",
                )
            ]  # fmt: skip
    return []


def _batch(spark: SparkSession, schema: Schema) -> DataFrame:
    return _no_rows(spark.range(1), "id", schema)


def _streaming(spark: SparkSession, schema: Schema, time: object, lateness_ms: int) -> DataFrame:
    from pyspark.sql import functions as F

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load()
    if time not in schema.names:
        return _no_rows(rows, "value", schema)
    return bounded(_no_rows(rows, "value", schema, (F.col("value") < 0).alias(BOUNDARY)), str(time), lateness_ms)


def _no_rows(df: DataFrame, zero: str, schema: Schema, *more: Column) -> DataFrame:
    """Columns of no rows that look to Spark's optimiser as a run's do: neither constants nor known to be none.

    What it sees through, a null or an empty range, it plans away, and with it what it would refuse.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    row = F.lit(None).cast(StructType.fromDDL(schema.ddl))
    return df.select(F.inline(F.array_repeat(row, F.col(zero).cast("int"))), *more)


# ---- findings ----


def _where(operator: Operator) -> str:
    return f"{operator.line}, operator {operator.name!r}"


def _chance(operator: Operator, what: str) -> Finding:
    return Finding(
        "HF-G020", "NonDeterministic", f"operator {operator.name!r} uses {what}.",
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
        do="say which: F.max_by('x', F.struct('ts', 'id')) for one value, by columns in which no two rows are equal; "
        "F.sort_array(F.collect_list(x)) for all",
    )  # fmt: skip


def _columns(operator: Operator) -> Finding:
    return Finding(
        "HF-G027", "ColumnsFromData", f"which columns operator {operator.name!r} emits depends on its rows.",
        where=_where(operator),
        why="pivot() without values looks at the data for its columns; a stream has one schema",
        effect=_NOTHING,
        do="name the values: pivot('state', ['on', 'off'])",
    )  # fmt: skip


def _placed(operator: Operator, finding: Finding) -> Finding:
    """Errors raised below do not know whose they are, nor that nothing runs yet."""
    where = ", ".join(part for part in (_where(operator), finding.where) if part)
    return replace(finding, where=finding.where if operator.line in finding.where else where, effect=_NOTHING)


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


def _source_raised(source: Source, error: Exception) -> Finding:
    lines = user_lines("".join(traceback.format_exception(error)))
    first = str(error).strip().splitlines()[0][:300] if str(error).strip() else ""
    return Finding(
        "HF-S015", "SparkSourceRaised", f"the function of source {source.name!r} raised {type(error).__name__}.",
        where=f"{source.line}, source {source.name!r}",
        why="\n".join([*lines[:-1], first]) if lines else first,
        effect=_NOTHING,
        do="call it yourself with a session: it must return a streaming DataFrame (spark.readStream...)",
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


def _raised(operator: Operator, inputs: list[Schema], error: Exception) -> Finding:
    """The function raised while it was planned: most often a column that is not there."""
    name = _missing_column(error)
    if name:
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
    text, kind = str(error).strip(), type(error).__name__
    do = "call it yourself on a small DataFrame: decorators leave the function as it is"
    if operator.function is None:
        do = f"correct what is declared; it is Spark SQL over {inputs[0].ddl}"
    elif operator.kind == "stream" and "writeStream.start()" in text:
        do = "leave persist, cache, count, collect and the like out: a stream has no end; over='frame' may use them"
    lines = user_lines("".join(traceback.format_exception(error)))
    first = text.splitlines()[0][:300] if text else kind
    return Finding(
        "HF-G024", "OperatorRaised", f"operator {operator.name!r} raised {kind} when it was planned.",
        where=_where(operator),
        why="\n".join([*lines[:-1], first]) if lines else first,
        effect=_NOTHING,
        do=do,
    )  # fmt: skip


# Condition of Spark's error -> the parameter that holds the column's name.
_UNKNOWN_COLUMN = {
    "UNRESOLVED_COLUMN": "objectName",
    "UNRESOLVED_USING_COLUMN_FOR_JOIN": "colName",
    "ATTRIBUTE_NOT_SUPPORTED": "attr_name",
}


def _missing_column(error: Exception) -> str:
    """The column Spark did not find, if that is what the error says."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return ""
    condition = (error.getCondition() or "").partition(".")[0]
    parameters = error.getMessageParameters() or {}
    return parameters.get(_UNKNOWN_COLUMN.get(condition, ""), "").split("`.`")[-1].strip("`").replace("``", "`")
