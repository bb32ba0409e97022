"""Whether the parts of a well-formed graph fit: clocks, keys, parameters, bounds.

HF-G009 clocks, HF-G010 keys, HF-G011 time columns, HF-G012/13 parameters, HF-G015 bounds;
warnings HF-G030 unused parameter, HF-G031 a declared unit that cannot hold.

Pure: a graph in, findings out.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import Finding
from holdfast.graph.declared import did_you_mean, nearest
from holdfast.graph.durations import show_ms, write_ms
from holdfast.graph.known import columns_at, show_columns
from holdfast.graph.model import ARRIVAL, Arrival, Edge, Graph, Operator, Param, Source
from holdfast.graph.promises import InOrderAcross, Within
from holdfast.graph.wellformed import EFFECT

__all__ = ["check_fit", "source_times"]

# A sealed frame without rows is an Arrow file of about this size, so a queue of b bytes
# holds at most b / this many frames.
_FRAME_BYTES_MIN = 1024


def check_fit(graph: Graph) -> Iterator[Finding]:
    yield from source_times(graph)
    yield from _windows(graph)
    yield from _keys(graph)
    yield from _parameters(graph)
    yield from _bounds(graph)


# -- clocks ----------------------------------------------------------------------


def source_times(graph: Graph) -> Iterator[Finding]:
    for source in graph.sources:
        where = f"{source.line}, source '{source.name}'"
        if source.time is None:
            stamp = _timestamps(source)
            yield Finding(
                "HF-G011",
                "TimeColumnMissing",
                f"source '{source.name}' has no time: nothing says which frame an element belongs to.",
                where=where,
                why="neither the process nor the source declares time=",
                effect=EFFECT,
                do=f"time='{stamp[0]}'" if stamp else "time='COLUMN', or time=hf.ARRIVAL for the clock",
            )
        elif isinstance(source.time, str) and source.schema is not None:
            kind = source.schema.type_of(source.time)
            if kind is None:
                yield Finding(
                    "HF-G011",
                    "TimeColumnMissing",
                    f"source '{source.name}' has no time column '{source.time}'.",
                    where=where,
                    why=f"its columns are {source.schema.ddl}",
                    effect=EFFECT,
                    do=_time_remedy(source),
                )
            elif kind != "timestamp":
                yield Finding(
                    "HF-G011",
                    "TimeColumnMissing",
                    f"time column '{source.time}' of source '{source.name}' is {kind}, not a timestamp.",
                    where=where,
                    why=f"its columns are {source.schema.ddl}",
                    effect=EFFECT,
                    do=f"declare it '{source.time} timestamp'",
                )
        elif source.time is ARRIVAL and getattr(source.reader, "reliable", False):
            yield Finding(
                "HF-G009",
                "ClocksDoNotFit",
                f"source '{source.name}' is read again after a failure, but cut by arrival.",
                where=where,
                why="the second reading would arrive at other times and make other frames",
                effect=EFFECT,
                do=f"time='{_timestamps(source)[0]}'" if _timestamps(source) else "name a time column: time='COLUMN'",
            )
    by_arrival = [source for source in graph.sources if source.time is ARRIVAL]
    by_column = [source for source in graph.sources if isinstance(source.time, str)]
    if by_arrival and by_column:
        odd, others = (by_arrival, by_column) if graph.time is not ARRIVAL else (by_column, by_arrival)
        yield Finding(
            "HF-G009",
            "ClocksDoNotFit",
            f"source '{odd[0].name}' is cut {_by(odd[0].time)}, source '{others[0].name}' {_by(others[0].time)}.",
            where=f"{odd[0].line}, source '{odd[0].name}'",
            why="all streams of a process share one frame clock; frame 7 must mean the same at every port",
            effect=EFFECT,
            do=_one_clock(odd[0], others[0]),
        )


def _by(time: str | Arrival | None) -> str:
    return "by arrival" if time is ARRIVAL else f"by column '{time}'"


def _one_clock(odd: Source, other: Source) -> str:
    if other.time is ARRIVAL:
        return f"drop time= of source '{odd.name}', or give '{other.name}' a time column too"
    stamps = _timestamps(odd)
    return f"time='{stamps[0]}' for source '{odd.name}'" if stamps else "time=hf.ARRIVAL for the process"


def _timestamps(source: Source) -> list[str]:
    if source.schema is None:
        return []
    return [column.name for column in source.schema.columns if column.type == "timestamp"]


def _time_remedy(source: Source) -> str:
    stamps = _timestamps(source)
    guess = nearest(str(source.time), stamps) or (stamps[0] if len(stamps) == 1 else None)
    if guess is not None:
        return f"time='{guess}' for source '{source.name}'"
    return f"add '{source.time} timestamp' to its schema, or name another column: time='COLUMN'"


def _windows(graph: Graph) -> Iterator[Finding]:
    for operator in graph.operators:
        if operator.kind not in ("aggregate", "join"):
            continue
        options = operator.options
        timed = [word for word in ("window_ms", "session_ms", "within_ms") if options.get(word) is not None]
        if not timed:
            continue
        where = f"{operator.line}, operator '{operator.name}'"
        if graph.time is ARRIVAL:
            yield Finding(
                "HF-G009",
                "ClocksDoNotFit",
                f"operator '{operator.name}' has a window in element time, the process is cut by arrival.",
                where=where,
                why="a window closes when a frame's boundary passes it; arrival says nothing about a column",
                effect=EFFECT,
                do="time='COLUMN' for the process, or a window of hf.rows(n)",
            )
            continue
        yield from _window_time(graph, operator, where)
        for word, length in (("window", options.get("window_ms")), ("every", options.get("every_ms"))):
            if length is not None and (length < 1 or length % graph.frame_ms):
                fitting = max(1, -(-length // graph.frame_ms)) * graph.frame_ms
                yield Finding(
                    "HF-G009",
                    "ClocksDoNotFit",
                    f"{word} of operator '{operator.name}' is {show_ms(length)}, a frame is {show_ms(graph.frame_ms)}.",
                    where=where,
                    why="windows begin and end at frame boundaries: they must be whole frames",
                    effect=EFFECT,
                    do=f"{word}='{write_ms(fitting)}', or a frame that divides {show_ms(length)}",
                )
                break
        window, every = options.get("window_ms"), options.get("every_ms")
        if window is not None and every is not None and every > window:
            yield Finding(
                "HF-G009",
                "ClocksDoNotFit",
                f"operator '{operator.name}' begins a window of {show_ms(window)} every {show_ms(every)}.",
                where=where,
                why=f"elements in the {show_ms(every - window)} between two windows would be in none",
                effect=EFFECT,
                do=f"every='{write_ms(window)}' or less",
            )


def _window_time(graph: Graph, operator: Operator, where: str) -> Iterator[Finding]:
    time = operator.options.get("time")
    for edge in operator.inputs:
        there = columns_at(graph, edge)
        if time is None and graph.time is not None:
            continue
        if there is None and time is not None:
            continue
        kind = (there or {}).get(time) if time else None
        if time is None or time not in (there or {}) or kind not in (None, "timestamp"):
            stamps = [name for name, each in (there or {}).items() if each == "timestamp"]
            what = f"time column '{time}'" if time else "time column"
            yield Finding(
                "HF-G011",
                "TimeColumnMissing",
                f"port '{edge.port}' of operator '{operator.name}' has no {what} for its window.",
                where=f"{where}, edge {edge}",
                why=f"'{edge.stream}' has {show_columns(there)}" if there else "no time= is declared",
                effect=EFFECT,
                do=f"time='{stamps[0]}' for '{operator.name}'" if stamps else _carry_time(graph, edge, time),
            )


def _carry_time(graph: Graph, edge: Edge, time: str | None) -> str:
    producer = graph.producer_of(edge.stream)
    if isinstance(producer, Operator) and producer.kind == "aggregate" and time:
        return f"let '{edge.stream}' carry it: emits={{'{time}': 'window_end', ...}}"
    return "declare time='COLUMN' with a timestamp column of that stream"


# -- keys ------------------------------------------------------------------------


def _keys(graph: Graph) -> Iterator[Finding]:
    words = {"keyed": "keys", "aggregate": "by", "join": "on"}
    for operator in graph.operators:
        word = words.get(operator.kind)
        if word is None:
            continue
        for edge in operator.inputs:
            there = columns_at(graph, edge)
            for key in operator.options[word]:
                if there is not None and key not in there:
                    yield Finding(
                        "HF-G010",
                        "KeyColumnMissing",
                        f"port '{edge.port}' of operator '{operator.name}' has no key column '{key}'.",
                        where=f"{operator.line}, edge {edge}",
                        why=f"'{edge.stream}' has {show_columns(there)}",
                        effect=EFFECT,
                        do=did_you_mean(key, there),
                    )


# -- parameters ------------------------------------------------------------------


def _parameters(graph: Graph) -> Iterator[Finding]:
    names = [param.name for param in graph.params]
    used = {name for operator in graph.operators for name in operator.params}
    for operator in graph.operators:
        for name in operator.params:
            if name not in names:
                yield Finding(
                    "HF-G012",
                    "UnknownParameter",
                    f"operator '{operator.name}' takes parameter '{name}', which is not declared.",
                    where=f"{operator.line}, operator '{operator.name}'",
                    why="parameters are: " + (", ".join(names) or "none"),
                    effect=EFFECT,
                    do=_which_parameter(name, names),
                )
    for param in graph.params:
        yield from _param_range(param)
        if param.name not in used:
            yield Finding(
                "HF-G030",
                "ParameterUnused",
                f"no operator takes parameter '{param.name}'.",
                where=param.line,
                why="operators take parameters by keyword-only arguments of the same name",
                effect="setting it will change nothing",
                do=f"def operator(..., *, {param.name}), or drop it",
                warning=True,
            )


def _which_parameter(name: str, names: list[str]) -> str:
    guess = nearest(name, names)
    return f"did you mean '{guess}'?" if guess else f"p.param('{name}', DEFAULT)"


def _param_range(param: Param) -> Iterator[Finding]:
    if param.between is None:
        return
    low, high = param.between
    try:
        inside, ordered = low <= param.default <= high, low <= high
    except TypeError:
        inside, ordered = False, True
    if not inside:
        yield Finding(
            "HF-G013",
            "ParameterOutOfRange",
            f"parameter '{param.name}' starts at {param.default!r}, outside {low!r} to {high!r}.",
            where=param.line,
            why="the default is held to the same range as every later value",
            effect=EFFECT,
            do=f"p.param('{param.name}', {low!r}, between=({low!r}, {high!r}))"
            if ordered
            else f"between=({high!r}, {low!r})",
        )


# -- promises and bounds ---------------------------------------------------------


def _bounds(graph: Graph) -> Iterator[Finding]:
    names = [sink.name for sink in graph.sinks]
    least = graph.frame_ms + graph.grace_ms
    for sink in graph.sinks:
        for promise in sink.promises:
            if isinstance(promise, Within) and promise.delay_ms_max < least:
                yield Finding(
                    "HF-G015",
                    "BoundBelowInterval",
                    f"sink '{sink.name}' promises {promise}, but a frame alone takes {show_ms(least)} to close.",
                    where=f"{sink.line}, sink '{sink.name}'",
                    why=f"frame {show_ms(graph.frame_ms)} + grace {show_ms(graph.grace_ms)}: "
                    "the first element of a frame waits so long for the last",
                    effect=EFFECT,
                    do=f"hf.within('{write_ms(2 * least)}'), or a shorter frame",
                )
            if isinstance(promise, InOrderAcross):
                for other in promise.sinks:
                    if other not in names:
                        yield Finding(
                            "HF-G017",
                            "UnknownOperator",
                            f"there is no sink '{other}'.",
                            where=f"{sink.line}, sink '{sink.name}'",
                            why="hf.in_order_across names it",
                            effect=EFFECT,
                            do=did_you_mean(other, names),
                        )
    for operator in graph.operators:
        yield from _queue_bound(graph, operator)


def _queue_bound(graph: Graph, operator: Operator) -> Iterator[Finding]:
    every = graph.protection_of(operator).every
    if every is None or every.unit == "elements":
        return
    frames = every.count if every.unit == "frames" else -(-every.count // graph.frame_ms)
    if graph.queue_bytes < frames * _FRAME_BYTES_MIN:
        yield Finding(
            "HF-G015",
            "BoundBelowInterval",
            f"operator '{operator.name}' is checkpointed every {every}, its queue is full before that.",
            where=f"{operator.line}, operator '{operator.name}'",
            why=f"{frames:,} frames take at least {frames * _FRAME_BYTES_MIN:,} bytes, the queue holds "
            f"{graph.queue_bytes:,}; upstream would wait for a checkpoint that never comes",
            effect=EFFECT,
            do=f"queue='{-(-2 * frames * _FRAME_BYTES_MIN // 1_000_000)} MB' or more, or a shorter interval",
        )
