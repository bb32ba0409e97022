"""The five rules of a well-formed process, and what must hold to speak of a graph at all.

1. every input port has exactly one incoming edge      HF-G001, HF-G018
2. every output port has at least one outgoing edge    HF-G002
3. both ends of an edge have one schema                HF-G003 (what can be seen without Spark)
4. no edge leads from outside to outside               HF-G004
5. no vertex is allowed less time than it needs        HF-G005
Ports disabled on purpose are exempt from 1 and 2. Cycles are well-formed if a feedback
edge closes them (HF-G007, HF-G008). A port is always (vertex, port): two vertices may
have ports of one name.

Pure: a graph in, findings out.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import Finding
from holdfast.graph.declared import did_you_mean, nearest
from holdfast.graph.durations import show_ms
from holdfast.graph.known import Columns, columns_at, columns_of, plain_column, show_columns
from holdfast.graph.model import Edge, Graph, Operator, Source

__all__ = ["EFFECT", "check_well_formed"]

EFFECT = "nothing was started, nothing was read"
_RULES = {
    1: "every input port has exactly one edge",
    2: "every output port has at least one edge",
    3: "both ends of an edge have one schema",
    4: "no edge connects outside with outside",
    5: "the delay allowed is at least the delay needed",
}


def check_well_formed(graph: Graph) -> Iterator[Finding]:
    yield from _something_runs(graph)
    yield from _names(graph)
    yield from _inputs(graph)
    yield from _outputs(graph)
    yield from _cycles(graph)
    yield from _types(graph)
    yield from _outside(graph)
    yield from _delays(graph)


def _at(place: str, rule: int) -> str:
    return f"{place}            (rule {rule}: {_RULES[rule]})"


def _something_runs(graph: Graph) -> Iterator[Finding]:
    for word, there, example in (
        ("source", graph.sources, "p.source('probes', hf.read.files('probes/*.parquet'), schema='...')"),
        ("operator", graph.operators, "@p.operator(over='frame')"),
    ):
        if not there:
            yield Finding(
                "HF-G019",
                "NothingRuns",
                f"stream process '{graph.name}' has no {word}.",
                where=graph.line,
                why="nothing would ever come out of it",
                effect=EFFECT,
                do=f"declare one: {example}",
            )


def _names(graph: Graph) -> Iterator[Finding]:
    vertices = [("source", each.name, each.line) for each in graph.sources]
    vertices += [("operator", each.name, each.line) for each in graph.operators]
    for group, remedy in (
        (vertices, "rename one of them: a stream has its producer's name"),
        ([("sink", each.name, each.line) for each in graph.sinks], "name one of them: p.sink(..., name='{0}_2')"),
        ([("parameter", each.name, each.line) for each in graph.params], "rename one of them"),
    ):
        first: dict[str, tuple[str, str]] = {}
        for word, name, line in group:
            if name in first:
                other, before = first[name]
                yield Finding(
                    "HF-G006",
                    "NameUsedTwice",
                    f"name '{name}' is used twice.",
                    where=f"{line}, {word} '{name}'",
                    why=f"{other} '{name}' is declared at {before}",
                    effect=EFFECT,
                    do=remedy.format(name),
                )
            first.setdefault(name, (word, line))


def _inputs(graph: Graph) -> Iterator[Finding]:
    yield from graph.notes
    for edge in graph.edges():
        if graph.producer_of(edge.stream) is None:
            yield Finding(
                "HF-G001",
                "PortWithoutStream",
                f"port '{edge.port}' of operator '{edge.consumer}' reads '{edge.stream}', which is no stream.",
                where=_at(f"{edge.line}, edge {edge}", 1),
                why="streams are: " + (", ".join(_others(graph, edge)) or "none"),
                effect=EFFECT,
                do=_which_stream(graph, edge),
            )
    for operator in graph.operators:
        if not operator.inputs:
            yield Finding(
                "HF-G001",
                "PortWithoutStream",
                f"operator '{operator.name}' reads no stream.",
                where=_at(f"{operator.line}, operator '{operator.name}'", 1),
                why="it has no input port that is connected; without one it has no frames",
                effect=EFFECT,
                do=f"give it a positional parameter named after a stream: {', '.join(graph.streams) or '...'}",
            )
        elif all(edge.is_feedback for edge in operator.inputs):
            yield Finding(
                "HF-G001",
                "PortWithoutStream",
                f"operator '{operator.name}' reads feedback only.",
                where=_at(f"{operator.line}, operator '{operator.name}'", 1),
                why="frame n has to come from somewhere: a feedback edge delivers an earlier one",
                effect=EFFECT,
                do="read one stream without hf.feedback as well",
            )


def _others(graph: Graph, edge: Edge) -> list[str]:
    return [stream for stream in graph.streams if stream.split(".")[0] != edge.consumer]


def _which_stream(graph: Graph, edge: Edge) -> str:
    guess = nearest(edge.stream, _others(graph, edge))
    if guess is None:
        return f"inputs={{'{edge.port}': '...'}} with one of them, or declare a source '{edge.stream}'"
    if edge.stream == edge.port and "." in guess:
        return f"did you mean inputs={{'{edge.port}': '{guess}'}}?"
    return f"did you mean '{guess}'?"


def _outputs(graph: Graph) -> Iterator[Finding]:
    # A misspelt reader is reported where it is misspelt; its stream is not nobody's.
    meant = {nearest(e.stream, _others(graph, e)) for e in graph.edges() if not graph.producer_of(e.stream)}
    meant |= {nearest(s.stream, graph.streams) for s in graph.sinks if not graph.producer_of(s.stream)}
    for stream in graph.streams:
        if graph.consumers_of(stream) or graph.sinks_of(stream) or stream in graph.disabled or stream in meant:
            continue
        producer = graph.producer_of(stream)
        word = "source" if isinstance(producer, Source) else "operator"
        port = stream.partition(".")[2] or stream
        remedy = "read it in an operator" if word == "source" else f"p.sink('{stream}', hf.write.console())"
        yield Finding(
            "HF-G002",
            "StreamWithoutConsumer",
            f"output port '{port}' of {word} '{producer.name}' leads nowhere.",
            where=_at(f"{producer.line}, stream '{stream}'", 2),
            why="no operator and no sink reads it",
            effect=EFFECT,
            do=f"{remedy}, or p.disable('{stream}') if that is meant",
        )


def _cycles(graph: Graph) -> Iterator[Finding]:
    for members in graph.cycles(feedback=False):
        edges = [
            edge
            for edge in graph.edges()
            if edge.consumer in members
            and not edge.is_feedback
            and isinstance(producer := graph.producer_of(edge.stream), Operator)
            and producer.name in members
        ]
        # The edge that goes back is the one whose consumer was declared no later than its producer.
        back = next((e for e in edges if members.index(e.consumer) <= _place(graph, e, members)), edges[0])
        schema = _wanted_schema(graph, back)
        yield Finding(
            "HF-G007",
            "CycleWithoutFeedback",
            f"operators {' -> '.join((*members, members[0]))} form a cycle without a feedback edge.",
            where=f"{back.line}, edge {back}",
            why=f"frame n of '{back.stream}' would have to be there before it is made",
            effect=EFFECT,
            do=f"let port '{back.port}' of '{back.consumer}' read the frame before: "
            f"inputs={{'{back.port}': hf.feedback('{back.stream}', schema='{schema}')}}",
        )
    for edge in graph.edges():
        if edge.is_feedback and edge.schema is None:
            schema = _wanted_schema(graph, edge)
            yield Finding(
                "HF-G008",
                "FeedbackWithoutSchema",
                f"feedback port '{edge.port}' of operator '{edge.consumer}' has no schema.",
                where=f"{edge.line}, edge {edge}",
                why="inference through a cycle is circular, and frame 1 needs the columns of an empty frame",
                effect=EFFECT,
                do=f"hf.feedback('{edge.stream}', schema='{schema}')",
            )


def _wanted_schema(graph: Graph, edge: Edge) -> str:
    columns = columns_of(graph, edge.stream)
    return _agreed(columns, {}) if columns else "..."


def _place(graph: Graph, edge: Edge, members: tuple[str, ...]) -> int:
    producer = graph.producer_of(edge.stream)
    return members.index(producer.name) if producer is not None else -1


def _types(graph: Graph) -> Iterator[Finding]:
    for edge in graph.edges():
        made = columns_of(graph, edge.stream)
        if edge.schema is not None and made is not None:
            expected: Columns = {column.name: column.type for column in edge.schema.columns}
            if not _fits(made, expected):
                yield _differ(
                    edge,
                    f"'{edge.stream}' emits {show_columns(made)}; the port declares {edge.schema.ddl}",
                    f"hf.feedback('{edge.stream}', schema='{_agreed(made, expected)}')",
                )
    for operator in graph.operators:
        if operator.kind == "union":
            yield from _union_types(graph, operator)
        if operator.kind in ("aggregate", "map"):
            yield from _columns_read(graph, operator)


def _union_types(graph: Graph, union: Operator) -> Iterator[Finding]:
    first = columns_at(graph, union.inputs[0])
    for edge in union.inputs[1:]:
        other = columns_at(graph, edge)
        if first is not None and other is not None and not _fits(other, first):
            yield _differ(
                edge,
                f"'{edge.stream}' has {show_columns(other)}; '{union.inputs[0].stream}' has {show_columns(first)}",
                f"bring '{edge.stream}' to the same columns first: p.map('...', of='{edge.stream}', select=[...])",
            )


def _columns_read(graph: Graph, operator: Operator) -> Iterator[Finding]:
    edge = operator.inputs[0]
    there = columns_at(graph, edge)
    if there is None:
        return
    if operator.kind == "aggregate":
        expressions = [expression for _, expression in operator.options["emits"].values()]
    else:
        expressions = list(operator.options["select"])
    for expression in expressions:
        column = plain_column(expression)
        if column is not None and column.lower() not in {name.lower() for name in there}:
            yield _differ(
                edge,
                f"'{operator.name}' reads column '{column}'; '{edge.stream}' has {show_columns(there)}",
                did_you_mean(column, there),
            )


def _fits(made: Columns, expected: Columns) -> bool:
    return list(made) == list(expected) and all(
        made[name] is None or expected[name] is None or made[name] == expected[name] for name in made
    )


def _agreed(made: Columns, expected: Columns) -> str:
    """The producer's columns, types filled in from the other side where only it knows them."""
    return ", ".join(f"{name} {kind or expected.get(name) or '...'}" for name, kind in made.items())


def _differ(edge: Edge, why: str, do: str) -> Finding:
    return Finding(
        "HF-G003",
        "PortTypesDiffer",
        f"stream '{edge.stream}' does not fit port '{edge.port}' of operator '{edge.consumer}'.",
        where=_at(f"{edge.line}, edge {edge}", 3),
        why=why,
        effect=EFFECT,
        do=do,
    )


def _outside(graph: Graph) -> Iterator[Finding]:
    for sink in graph.sinks:
        producer = graph.producer_of(sink.stream)
        if producer is None:
            yield Finding(
                "HF-G014",
                "SinkWithoutStream",
                f"sink '{sink.name}' writes '{sink.stream}', which is no stream.",
                where=f"{sink.line}, sink '{sink.name}'",
                why="streams are: " + (", ".join(graph.streams) or "none"),
                effect=EFFECT,
                do=did_you_mean(sink.stream, graph.streams),
            )
        elif isinstance(producer, Source):
            yield Finding(
                "HF-G004",
                "OutsideToOutside",
                f"sink '{sink.name}' writes source '{producer.name}' as it came.",
                where=_at(f"{sink.line}, edge {producer.name} -> {sink.name}", 4),
                why="no operator stands between; there is nothing to protect or to replay",
                effect=EFFECT,
                do=f"p.map('kept', of='{producer.name}', select=['*']), then p.sink('kept', ...)",
            )


def _delays(graph: Graph) -> Iterator[Finding]:
    for operator in graph.operators:
        if operator.delay_ms_max is not None and operator.delay_ms_max < operator.delay_ms_min:
            yield Finding(
                "HF-G005",
                "DelayBelowMinimum",
                f"operator '{operator.name}' may take {show_ms(operator.delay_ms_max)} for a frame and needs "
                f"{show_ms(operator.delay_ms_min)}.",
                where=_at(f"{operator.line}, operator '{operator.name}'", 5),
                why=f"delay_max={operator.delay_ms_max} ms, delay_min={operator.delay_ms_min} ms",
                effect=EFFECT,
                do=f"delay_max='{show_ms(operator.delay_ms_min)}' or more",
            )
