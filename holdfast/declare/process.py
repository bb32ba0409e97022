"""Declaring a stream process: one explicit object, decorators on it.

A declaration opens nothing and starts nothing; it remembers what was said and on
which line. `graph()` turns it into the pure model, so the order of declarations is
free and a notebook cell may be run again. Decorators return the function untouched:
it stays an ordinary function that a unit test can call.

Pure; what is done with a process (`declare.verbs`) hands over to what stands below.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.declare.built_in import BuiltInOperators
from holdfast.declare.drafts import (
    Draft,
    Reads,
    checked_backup,
    checked_protection,
    checked_supervision,
    checked_time,
    drafted,
    optional_ms,
    settled,
)
from holdfast.declare.verbs import Verbs
from holdfast.graph import options as read
from holdfast.graph.declared import as_names, caller, checked_name, declared_in, one_of, refuse, size_bytes
from holdfast.graph.durations import Duration, duration_ms
from holdfast.graph.hosting import DEFAULT_HOSTS, Backup, checked_hosts
from holdfast.graph.inputs import SourceTerms
from holdfast.graph.model import Arrival, Graph, Param, Sink, Source
from holdfast.graph.promises import Promise
from holdfast.graph.protections import Protection, none
from holdfast.graph.restarting import SINK_ON_ERROR, OnDegraded, Supervision, checked_alert
from holdfast.graph.schemas import Schema
from holdfast.graph.words import old_word, renamed_value, worded
from holdfast.sources.connectors.functions import reader_of

__all__ = ["StreamProcess", "declared_by"]

Function = TypeVar("Function", bound=Callable[..., Any])


class StreamProcess(BuiltInOperators, Verbs):
    """A graph of sources, operators and sinks that share one frame clock.

    `frame` is the length of a frame, `time` the column that holds element time (or
    hf.ARRIVAL), `grace` how long a frame waits for stragglers. `queue` bounds the bytes that
    wait in a stream, `state` names the folder for all that is kept, and values="hide" keeps
    the values of rows out of errors, logs and traces. durability="synced" outlasts a loss of
    power; "fast" leaves it to the system when things reach the disk. With a protection, units live on logical
    `hosts`, a folder each, and their checkpoints are kept on another one or as `backup` says.
    """

    @worded()
    def __init__(
        self,
        name: str,
        *,
        frame: Duration,
        time: str | Arrival | None = None,
        grace: Duration = "0 seconds",
        chunks: int | None = None,
        partitions: int = 2,
        queue: str | int = "512 MB",
        state: str | os.PathLike[str] | None = None,
        values: str = "show",
        durability: str = "synced",
        restart: Supervision | None = None,
        on_degraded: OnDegraded = None,
        hosts: Sequence[Any] | Mapping[str, Any] | None = None,
        backup: Backup | None = None,
    ) -> None:
        self.name = checked_name(name, what="stream process")
        _declared.add(self)
        self._line, self._base = caller()
        self._file = declared_in()
        self._frame_ms = duration_ms(frame, what="frame")
        if self._frame_ms < 1:
            raise refuse("HF-C001", "NotADuration", f"frame={frame!r} has no length.", do="take frame='1 second'")
        self._time = checked_time(time)
        self._grace_ms = duration_ms(grace, what="grace")
        self._chunks = None if chunks is None else read.rows(chunks).count
        self._partitions = read.rows(partitions).count
        self._queue_bytes = size_bytes(queue, what="queue")
        self._state = None if state is None else str(state)
        self._values = one_of(values, ("show", "hide"), what="values")
        self._durability = one_of(durability, ("synced", "fast"), what="durability")
        self._supervision = checked_supervision(restart)
        self._on_degraded = checked_alert(on_degraded)
        self._hosts = checked_hosts(hosts)
        self._backup = checked_backup(backup)
        self._protect = none
        self._params: list[Param] = []
        self._sources: list[Source] = []
        self._drafts: list[Draft] = []
        self._sinks: list[Sink] = []
        self._edge_delays: list[tuple[str, str, int, str]] = []
        self._protects: list[tuple[str, Protection, str]] = []
        self._places: list[tuple[str, str, str]] = []
        self._disabled: list[tuple[str, str]] = []

    def __repr__(self) -> str:
        parts = f"{len(self._sources)} sources, {len(self._drafts)} operators, {len(self._sinks)} sinks"
        return f"<StreamProcess {self.name!r}: {parts}>"

    # -- parameters and sources --------------------------------------------------

    @worded(per="by")
    def param(
        self,
        name: str,
        default: Any,
        *,
        by: str | None = None,
        between: tuple[Any, Any] | None = None,
        doc: str = "",
    ) -> None:
        """A value that may change while the process runs; the change holds from a frame on.

        `by`: a key column; each key may then have a value of its own (`holdfast set --for KEY`).
        `between`: the least and the greatest value that `set` accepts.
        """
        if between is not None and (not isinstance(between, list | tuple) or len(between) != 2):
            raise refuse("HF-C003", "UnknownWord", f"between={between!r} is no range.", do="write between=(20, 120)")
        bounds = None if between is None else (between[0], between[1])
        self._params.append(Param(checked_name(name, what="parameter"), default, by, bounds, doc, caller()[0]))

    @worded()
    def source(
        self,
        name: str | None = None,
        reader: object = None,
        *,
        schema: object = None,
        late: str = "admit",
        time: str | Arrival | None = None,
        keep: Duration | None = None,
        delay_max: Duration | None = None,
        boundary: str | None = None,
        bad: str = "fail",
        new_columns: str = "ignore",
        ahead: Duration | None = None,
        on_ahead: str = "quarantine",
    ) -> Any:
        """An input. With a reader it is declared at once; without one this is a decorator: of a function
        that yields elements, or of one that takes `spark` and returns a streaming DataFrame.

        `late`: an element whose frame is closed: "admit" (into the next), "drop", "quarantine", "fail".
        `on_ahead`: an element whose time is more than `ahead` ahead of this machine's clock, judged before it
        is logged: the same words. Left out: live sources quarantine what is more than 10 minutes ahead.
        `boundary`: a silent source: "clock" seals its frames empty, "hold" keeps them open and is named
        in the status. Left out: the clock for live sources, elements alone for those that end.
        `bad`: an element that does not fit: "fail", "drop", "quarantine".
        `new_columns`: fields that are not declared: "ignore", "fail", "keep" (as JSON in `_more string`).
        `keep`: how long the source log keeps what nobody needs any more.
        """
        terms = SourceTerms(
            schema=schema,
            late=late,
            time=self._time if time is None else checked_time(time),
            keep=keep,
            delay_max=delay_max,
            boundary=boundary,
            bad=bad,
            new_columns=new_columns,
            ahead=ahead,
            on_ahead=on_ahead,
            line=caller()[0],
        )
        if reader is not None:
            self._sources.append(terms.declared(name or "", reader))
            return None
        if callable(name):  # @p.source without brackets
            return self.source()(name)

        def decorate(function: Function) -> Function:
            made = reader_of(function, read.signature_of(function).ports)
            self._sources.append(terms.declared(name or function.__name__, made))
            return function

        return decorate

    # -- operators of the user's own ---------------------------------------------

    @worded(
        outputs="emits", by="an operator over frames has no keys: take keyed(by=...), or groupBy inside the function"
    )
    def operator(
        self,
        function: Callable[..., Any] | None = None,
        *,
        over: str = "frame",
        inputs: Mapping[str, Reads] | None = None,
        emits: Sequence[str] | Mapping[str, object] | object = None,
        mode: str | None = None,
        protect: Protection | None = None,
        delay_max: Duration | None = None,
        delay_min: Duration | None = None,
        approximate: bool = False,
        spark_conf: Mapping[str, object] | None = None,
        lateness: Duration | None = None,
        unit: str | None = None,
        apart: bool = False,
        on_error: str = "fail",
        stabilises: Duration | None = None,
    ) -> Any:
        """A function from DataFrames to a DataFrame; `over` says whether it sees a frame or the stream.

        Positional parameters are input streams, keyword-only ones run-time parameters.
        `emits` names several output ports; the function then returns {port: DataFrame}.
        `inputs` says which stream a port reads where the two have other names, or hf.feedback(...).
        `on_error`: when a frame raises each time, "fail" gives its unit up; "quarantine" and
        "drop" find the rows that do it and continue without them. `stabilises`: so long after a gap
        in its input its answers no longer depend on it; without it they stay marked as tainted.
        `protect`: its own protection; `unit`, `apart`: with whom it shares a query; `approximate`: its
        result may differ in the last digits when it is made again; `spark_conf`: for its unit's query.
        """
        line = caller()[0]
        kind = one_of(over, ("frame", "stream"), what="over")
        settings = settled(
            {
                "protect": protect,
                "delay_max": delay_max,
                "delay_min": delay_min,
                "approximate": approximate,
                "spark_conf": spark_conf,
                "unit": unit,
                "apart": apart,
                "on_error": on_error,
                "stabilises": stabilises,
            }
        )
        chosen: dict[str, Any] = {}
        if kind == "stream":
            chosen["mode"] = one_of(mode or "append", ("append", "update", "complete"), what="mode")
            chosen["lateness_ms"] = duration_ms(lateness or 0, what="lateness")
        elif mode is not None or lateness is not None:
            word = "mode" if mode is not None else "lateness"
            raise refuse(
                "HF-C003",
                "UnknownWord",
                f"{word}= means nothing to an operator over a frame.",
                do=f"drop {word}=, or take over='stream'",
            )

        def decorate(function: Function) -> Function:
            taken = read.signature_of(function)
            streams, schemas = read.emitted(function.__name__, emits, what="emits")
            given = chosen | ({"emits": schemas} if schemas else {})
            self._drafts.append(
                drafted(function.__name__, kind, taken, inputs, streams, line, given, function, settings)
            )
            return function

        return decorate if function is None else decorate(function)

    @worded(keys="by", on="by", outputs="emits")
    def keyed(
        self,
        by: str | Sequence[str],
        *more: str,
        state: object,
        emits: object,
        inputs: Mapping[str, Reads] | None = None,
        protect: Protection | None = None,
        delay_max: Duration | None = None,
        delay_min: Duration | None = None,
        approximate: bool = False,
        unit: str | None = None,
        apart: bool = False,
        on_error: str = "fail",
        stabilises: Duration | None = None,
    ) -> Callable[[Function], Function]:
        """A vectorised function over all touched keys of a frame, with state per key.

        `by`: the key column, or a list of them; `state` and `emits`: schemas.
        It takes the state rows of the touched keys and one pandas DataFrame per port, and
        returns (state, out). A touched key left out of the state is forgotten; a state
        column `wake` (timestamp) hands the key in again when a frame's boundary passes it.
        `stabilises`: as for `operator`.
        """
        line = caller()[0]
        if more:
            raise old_word("keyed() with several keys, one after the other,", f"write by={[by, *more]!r}")
        names = as_names(by, what="by")
        kept = Schema.of(state, what="state")
        for key in names:
            if key in kept:
                raise refuse(
                    "HF-C015",
                    "KeyInState",
                    f"key '{key}' stands in the state's schema too.",
                    why="the keys come first in the state by themselves",
                    do=f"drop '{key}' from state=",
                )
        settings = settled(
            {
                "protect": protect,
                "delay_max": delay_max,
                "delay_min": delay_min,
                "approximate": approximate,
                "unit": unit,
                "apart": apart,
                "on_error": on_error,
                "stabilises": stabilises,
            }
        )

        def decorate(function: Function) -> Function:
            taken = read.signature_of(function, state=True)
            streams, schemas = read.emitted(function.__name__, emits, what="emits")
            given = {"keys": names, "state": kept, "emits": schemas}
            self._drafts.append(
                drafted(function.__name__, "keyed", taken, inputs, streams, line, given, function, settings)
            )
            return function

        return decorate

    # -- outputs, protection, edges ----------------------------------------------

    @worded(keys="the key belongs to the table: hf.write.sqlite('out.db', 'alarms', keys=['patient', 'ts'])")
    def sink(
        self,
        stream: str,
        writer: object,
        *,
        promise: Promise | list[Promise] | tuple[Promise, ...] = (),
        name: str | None = None,
        delay_max: Duration | None = None,
        on_error: str = "fail",
    ) -> None:
        """Write a stream to the outside world and say what it may lose.

        `on_error`: a row that the table refuses (a null key, a constraint, a value out of range) ends the run ("fail"),
        or is left out, kept in quarantine or dropped.
        """
        promises = tuple(promise) if isinstance(promise, list | tuple) else (promise,)
        for each in promises:
            if not isinstance(each, Promise):
                raise refuse(
                    "HF-C003",
                    "UnknownWord",
                    f"promise {each!r} is not known.",
                    do="take hf.lossless, hf.loses(at_most=...), hf.within('5 seconds'), hf.in_order",
                )
        label = checked_name(name if name is not None else str(stream).replace(".", "_"), what="sink")
        delay_ms = optional_ms(delay_max, "delay_max")
        renamed_value(on_error, {"stop": "fail"}, what="on_error")
        one_of(on_error, SINK_ON_ERROR, what="on_error")
        self._sinks.append(Sink(label, writer, stream, promises, caller()[0], delay_ms, on_error))

    def protect(self, protection: Protection, *operators: str) -> None:
        """Protect the whole process, or the named operators."""
        checked_protection(protection)
        if operators:
            line = caller()[0]
            self._protects.extend((name, protection, line) for name in operators)
        else:
            self._protect = protection

    def place(self, host: str, *operators: str) -> None:
        """Let the named operators live on one of the declared hosts; the others are spread over all."""
        names = [each.name for each in self._hosts] or list(DEFAULT_HOSTS)
        one_of(host, names, what="host")
        if not operators:
            raise refuse(
                "HF-C003", "UnknownWord", f"place({host!r}) names no operator.", do=f"write place({host!r}, 'OPERATOR')"
            )
        line = caller()[0]
        self._places.extend((name, host, line) for name in operators)

    def edge(self, stream: str, operator: str, *, delay_max: Duration) -> None:
        """The longest time from a frame being sealed to being read on this edge."""
        delay_ms = duration_ms(delay_max, what="delay_max")
        self._edge_delays.append((stream, operator, delay_ms, caller()[0]))

    def disable(self, port: str) -> None:
        """Leave a port unconnected on purpose: an output nobody reads ('parts.cold'), or an
        input port ('alarms.motion') whose parameter has a default."""
        self._disabled.append((port, caller()[0]))

    # -- the model ---------------------------------------------------------------

    def graph(self) -> Graph:
        """The pure graph, well-formed or not."""
        from holdfast.declare.assembling import assemble

        return assemble(self)


# Processes alive in this program, so that a function can be traced to where it was declared
# without touching the function.
_declared: weakref.WeakSet[StreamProcess] = weakref.WeakSet()


def declared_by(function: Callable[..., Any]) -> StreamProcess | None:
    """The process one of whose operators is this function."""
    for process in _declared:
        if any(draft.function is function for draft in process._drafts):
            return process
    return None
