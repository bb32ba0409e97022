"""Declaring a stream process: one explicit object, decorators on it.

A declaration opens nothing and starts nothing; it remembers what was said and on
which line. `graph()` turns it into the pure model, so the order of declarations is
free and a notebook cell may be run again. Decorators return the function untouched:
it stays an ordinary function that a unit test can call.

Pure but for `check(types=True)`, `start` and `run`, which hand over to the engine.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import Finding, ProcessRefused
from holdfast.graph import options as read
from holdfast.graph.declared import as_names, caller, checked_name, one_of, refuse, size_bytes
from holdfast.graph.durations import duration_ms
from holdfast.graph.hosting import DEFAULT_HOSTS, Backup, checked_hosts
from holdfast.graph.inputs import SourceTerms
from holdfast.graph.model import Arrival, Graph, Param, Sink, Source
from holdfast.graph.promises import Promise
from holdfast.graph.protections import Protection, checkpoint, ecoc, none, uncoordinated
from holdfast.graph.restarting import ON_ERROR, SINK_ON_ERROR, OnDegraded, Supervision, checked_alert
from holdfast.graph.schemas import Schema
from holdfast.sources.connectors.functions import reader_of

if TYPE_CHECKING:
    from holdfast.engine.run.run import Run

__all__ = ["StreamProcess", "declared_by"]

Function = TypeVar("Function", bound=Callable[..., Any])
Reads = str | read.Feedback


@dataclass
class _Draft:
    """An operator as declared; ports and parameters are resolved by `graph()`."""

    name: str
    kind: str
    ports: dict[str, Reads]
    outputs: tuple[str, ...]
    line: str
    options: dict[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None
    params: tuple[str, ...] = ()
    with_default: frozenset[str] = frozenset()
    remapped: dict[str, Reads] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


class StreamProcess:
    """A graph of sources, operators and sinks that share one frame clock.

    `frame` is the length of a frame, `time` the column that holds element time (or
    hf.ARRIVAL), `grace` how long a frame waits for stragglers. `queue` bounds the bytes that
    wait in a stream, `state` names the folder for all that is kept, and values="hide" keeps
    the values of rows out of errors, logs and traces. durability="synced" outlasts a loss of
    power; "fast" leaves it to the system when things reach the disk. With a protection, units live on logical
    `hosts`, a folder each, and their checkpoints are kept on another one or as `backup` says.
    """

    def __init__(
        self,
        name: str,
        *,
        frame: object,
        time: str | Arrival | None = None,
        grace: object = "0 seconds",
        chunks: int | None = None,
        partitions: int = 2,
        queue: object = "512 MB",
        state: object = None,
        values: str = "show",
        durability: str = "synced",
        restart: Supervision | None = None,
        on_degraded: OnDegraded = None,
        hosts: object = None,
        backup: Backup | None = None,
    ) -> None:
        self.name = checked_name(name, what="stream process")
        _declared.add(self)
        self._line, self._base = caller()
        self._frame_ms = duration_ms(frame, what="frame")
        if self._frame_ms < 1:
            raise refuse("HF-C001", "NotADuration", f"frame={frame!r} has no length.", do="take frame='1 second'")
        self._time = _checked_time(time)
        self._grace_ms = duration_ms(grace, what="grace")
        self._chunks = None if chunks is None else read.rows(chunks).count
        self._partitions = read.rows(partitions).count
        self._queue_bytes = size_bytes(queue, what="queue")
        self._state = None if state is None else str(state)
        self._values = one_of(values, ("show", "hide"), what="values")
        self._durability = one_of(durability, ("synced", "fast"), what="durability")
        self._supervision = _checked_supervision(restart)
        self._on_degraded = checked_alert(on_degraded)
        self._hosts = checked_hosts(hosts)
        self._backup = _checked_backup(backup)
        self._protect = none
        self._params: list[Param] = []
        self._sources: list[Source] = []
        self._drafts: list[_Draft] = []
        self._sinks: list[Sink] = []
        self._edge_delays: list[tuple[str, str, int, str]] = []
        self._protects: list[tuple[str, Protection, str]] = []
        self._places: list[tuple[str, str, str]] = []
        self._disabled: list[tuple[str, str]] = []

    def __repr__(self) -> str:
        parts = f"{len(self._sources)} sources, {len(self._drafts)} operators, {len(self._sinks)} sinks"
        return f"<StreamProcess {self.name!r}: {parts}>"

    # -- parameters and sources --------------------------------------------------

    def param(
        self,
        name: str,
        default: Any,
        *,
        per: str | None = None,
        between: tuple[Any, Any] | None = None,
        doc: str = "",
    ) -> None:
        """A value that may change while the process runs; the change holds from a frame on."""
        if between is not None and (not isinstance(between, list | tuple) or len(between) != 2):
            raise refuse("HF-C003", "UnknownWord", f"between={between!r} is no range.", do="write between=(20, 120)")
        bounds = None if between is None else (between[0], between[1])
        self._params.append(Param(checked_name(name, what="parameter"), default, per, bounds, doc, caller()[0]))

    def source(
        self,
        name: str | None = None,
        reader: object = None,
        *,
        schema: object = None,
        late: str = "admit",
        time: str | Arrival | None = None,
        keep: object = None,
        delay_max: object = None,
        boundary: str | None = None,
        bad: str = "fail",
        new_columns: str = "ignore",
        ahead: object = None,
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
            time=self._time if time is None else _checked_time(time),
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

    def operator(
        self,
        function: Callable[..., Any] | None = None,
        *,
        over: str = "frame",
        inputs: Mapping[str, Reads] | None = None,
        outputs: object = None,
        mode: str | None = None,
        protect: Protection | None = None,
        delay_max: object = None,
        delay_min: object = None,
        approximate: bool = False,
        spark_conf: Mapping[str, object] | None = None,
        lateness: object = None,
        unit: str | None = None,
        apart: bool = False,
        on_error: str = "stop",
        stabilises: object = None,
    ) -> Any:
        """A function from DataFrames to a DataFrame; `over` says whether it sees a frame or the stream.

        Positional parameters are input streams, keyword-only ones run-time parameters.
        `outputs` names several output ports; the function then returns {port: DataFrame}.
        `on_error`: when a frame raises each time, "stop" gives its unit up; "quarantine" and
        "drop" find the rows that do it and go on without them. `stabilises`: so long after a gap
        in its input its answers no longer depend on it; without it they stay marked as tainted.
        """
        line = caller()[0]
        kind = one_of(over, ("frame", "stream"), what="over")
        settings = _settings(protect, delay_max, delay_min, approximate, spark_conf, unit, apart, on_error, stabilises)
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
            streams, schemas = read.emitted(function.__name__, outputs, what="outputs")
            given = chosen | ({"emits": schemas} if schemas else {})
            self._drafts.append(
                _drafted(function.__name__, kind, taken, inputs, streams, line, given, function, settings)
            )
            return function

        return decorate if function is None else decorate(function)

    def keyed(
        self,
        *keys: str,
        state: object,
        emits: object,
        inputs: Mapping[str, Reads] | None = None,
        protect: Protection | None = None,
        delay_max: object = None,
        delay_min: object = None,
        approximate: bool = False,
        unit: str | None = None,
        apart: bool = False,
        on_error: str = "stop",
        stabilises: object = None,
    ) -> Callable[[Function], Function]:
        """A vectorised function over all touched keys of a frame, with state per key.

        It takes the state rows of the touched keys and one pandas DataFrame per port, and
        returns (state, out). A touched key left out of the state is forgotten; a state
        column `wake` (timestamp) hands the key in again when a frame's boundary passes it.
        `stabilises`: as for `operator`.
        """
        line = caller()[0]
        names = as_names(keys, what="keys")
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
        settings = _settings(protect, delay_max, delay_min, approximate, None, unit, apart, on_error, stabilises)

        def decorate(function: Function) -> Function:
            taken = read.signature_of(function, state=True)
            streams, schemas = read.emitted(function.__name__, emits, what="emits")
            given = {"keys": names, "state": kept, "emits": schemas}
            self._drafts.append(
                _drafted(function.__name__, "keyed", taken, inputs, streams, line, given, function, settings)
            )
            return function

        return decorate

    # -- built-in operators ------------------------------------------------------

    def aggregate(
        self,
        name: str,
        *,
        of: Reads,
        by: object = None,
        emits: Mapping[str, str],
        window: object = None,
        every: object = None,
        session: object = None,
        time: str | None = None,
        lateness: object = None,
        too_late: str = "drop",
        **settings: Any,
    ) -> None:
        """Aggregates per key: running, or over time, row or session windows.

        A window of time closes when the boundary of a frame passes its end plus `lateness`. Rows
        that come after that (`late="admit"` lets them in) are dropped, counted and break `lossless`;
        too_late="quarantine" sets them aside (and on_error likewise), "fail" stops the unit.
        """
        chosen = read.aggregate_options(
            by=by,
            emits=emits,
            window=window,
            every=every,
            session=session,
            time=time,
            process_time=self._time,
            lateness=lateness,
        )
        self._windowed(name, "aggregate", {"of": of}, chosen, settings, too_late)

    def join(
        self,
        name: str,
        *,
        left: Reads,
        right: Reads,
        on: object,
        within: object,
        how: str = "inner",
        emits: object = None,
        time: str | None = None,
        too_late: str = "drop",
        **settings: Any,
    ) -> None:
        """Rows of two streams with equal keys and times at most `within` apart.

        `too_late`: what becomes of rows whose partners may be gone already, as for `aggregate`;
        "drop" joins them with what is left.
        """
        chosen = read.join_options(on=on, within=within, how=how, emits=emits, time=time, process_time=self._time)
        self._windowed(name, "join", {"left": left, "right": right}, chosen, settings, too_late)

    def _windowed(
        self,
        name: str,
        kind: str,
        ports: dict[str, Reads],
        chosen: dict[str, Any],
        settings: dict[str, Any],
        too_late: str,
    ) -> None:
        if one_of(too_late, ("drop", "quarantine", "fail"), what="too_late") != "drop":
            chosen["too_late"] = too_late  # not said where it is the default: it would look like other code
        if too_late == "quarantine":
            settings.setdefault("on_error", "quarantine")
        self._built_in(name, kind, ports, chosen, settings)

    def union(self, name: str, *, of: list[Reads] | tuple[Reads, ...], **settings: Any) -> None:
        """All rows of several streams of one schema."""
        if not isinstance(of, list | tuple) or len(of) < 2:
            raise refuse("HF-C003", "UnknownWord", f"of={of!r} is no list of streams.", do="write of=['a', 'b']")
        self._built_in(name, "union", {f"of{i}": each for i, each in enumerate(of, 1)}, {}, settings)

    def split(self, name: str, *, of: Reads, into: Mapping[str, str], **settings: Any) -> None:
        """A stream 'name.port' per port; a row goes to every port whose condition it meets."""
        ports = read.split_options(into)
        streams = tuple(f"{name}.{checked_name(port, what='port')}" for port in ports)
        self._built_in(name, "split", {"of": of}, {"into": ports}, settings, streams)

    def filter(self, name: str, *, of: Reads, where: str, **settings: Any) -> None:
        """The rows that meet an SQL condition."""
        self._built_in(name, "filter", {"of": of}, {"where": _text(where, "where")}, settings)

    def map(self, name: str, *, of: Reads, select: object, **settings: Any) -> None:
        """SQL expressions over each row: select=['zone', 'celsius * 1.8 + 32 as fahrenheit']."""
        self._built_in(name, "map", {"of": of}, {"select": as_names(select, what="select")}, settings)

    def _built_in(
        self,
        name: str,
        kind: str,
        ports: dict[str, Reads],
        chosen: dict[str, Any],
        settings: dict[str, Any],
        outputs: tuple[str, ...] | None = None,
    ) -> None:
        known = (
            "protect",
            "delay_max",
            "delay_min",
            "approximate",
            "spark_conf",
            "unit",
            "apart",
            "on_error",
            "stabilises",
        )
        for word in settings:
            one_of(word, known, what=f"option of {kind}")
        settled = _settings(*(settings.get(word) for word in known))
        name = checked_name(name, what="operator")
        line = caller()[0]
        self._drafts.append(_Draft(name, kind, ports, outputs or (name,), line, chosen, settings=settled))

    # -- outputs, protection, edges ----------------------------------------------

    def sink(
        self,
        stream: str,
        writer: object,
        *,
        promise: Promise | list[Promise] | tuple[Promise, ...] = (),
        name: str | None = None,
        delay_max: object = None,
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
        delay_ms = _optional_ms(delay_max, "delay_max")
        one_of(on_error, SINK_ON_ERROR, what="on_error")
        self._sinks.append(Sink(label, writer, stream, promises, caller()[0], delay_ms, on_error))

    def protect(self, protection: Protection, *operators: str) -> None:
        """Protect the whole process, or the named operators."""
        _checked_protection(protection)
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

    def edge(self, stream: str, operator: str, *, delay_max: object) -> None:
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

    def check(self, *, types: bool = False) -> list[Finding]:
        """All findings; raises ProcessRefused if one of them is an error."""
        from holdfast.graph.rules import check_structure

        graph = self.graph()
        findings = check_structure(graph)
        if types and all(finding.warning for finding in findings):
            from holdfast.engine.check.types import check_types

            findings = findings + list(check_types(graph))
        if not all(finding.warning for finding in findings):
            raise ProcessRefused(sorted(findings, key=lambda finding: finding.warning))
        return findings

    def start(self, **settings: Any) -> Run:
        """Begin to run and return at once; `with process.start() as run:` stops it at the end."""
        from holdfast.engine.run.starting import start

        return start(self, **settings)

    def run(self, **settings: Any) -> Run:
        """Run until a bounded input ends, or until stopped."""
        with self.start(**settings) as run:
            run.wait()
        return run


# Processes alive in this program, so that a function can be traced to where it was declared
# without touching the function.
_declared: weakref.WeakSet[StreamProcess] = weakref.WeakSet()


def declared_by(function: Callable[..., Any]) -> StreamProcess | None:
    """The process one of whose operators is this function."""
    for process in _declared:
        if any(draft.function is function for draft in process._drafts):
            return process
    return None


def _drafted(
    name: str,
    kind: str,
    taken: read.Signature,
    inputs: Mapping[str, Reads] | None,
    outputs: tuple[str, ...],
    line: str,
    chosen: dict[str, Any],
    function: Callable[..., Any],
    settings: dict[str, Any],
) -> _Draft:
    name = checked_name(name, what="operator")
    wanted = dict(inputs or {})
    for port, reads in wanted.items():
        if not isinstance(reads, str | read.Feedback):
            raise refuse(
                "HF-C003",
                "UnknownWord",
                f"inputs={{{port!r}: {reads!r}}} names no stream.",
                do=f"write inputs={{{port!r}: 'stream'}} or inputs={{{port!r}: hf.feedback('stream', schema=...)}}",
            )
    ports = {port: wanted.get(port, port) for port in taken.ports}
    return _Draft(
        name, kind, ports, outputs, line, chosen, function, taken.params, taken.with_default, wanted, settings
    )


def _settings(
    protect: Protection | None,
    delay_max: object,
    delay_min: object,
    approximate: object,
    spark_conf: Mapping[str, object] | None,
    unit: object,
    apart: object,
    on_error: object,
    stabilises: object,
) -> dict[str, Any]:
    if protect is not None:
        _checked_protection(protect)
    return {
        "protect": protect,
        "delay_ms_max": _optional_ms(delay_max, "delay_max"),
        "delay_ms_min": 1 if delay_min is None else max(1, duration_ms(delay_min, what="delay_min")),
        "approximate": bool(approximate),
        "spark_conf": {str(key): str(value) for key, value in (spark_conf or {}).items()},
        "unit": None if unit is None else checked_name(unit, what="unit"),
        "apart": bool(apart),
        "on_error": one_of(on_error or "stop", ON_ERROR, what="on_error"),
        "stabilises_ms": _optional_ms(stabilises, "stabilises"),
    }


def _checked_supervision(restart: object) -> Supervision:
    if restart is None or isinstance(restart, Supervision):
        return restart or Supervision()
    raise refuse(
        "HF-C003", "UnknownWord", f"restart={restart!r} is not known.", do="write restart=hf.restarts(tries=8)"
    )


def _checked_backup(backup: object) -> Backup | None:
    if backup is not None and not isinstance(backup, Backup):
        raise refuse(
            "HF-C003",
            "UnknownWord",
            f"backup={backup!r} is no backup.",
            do="write backup=hf.backup(copies=2) or hf.backup('/mnt/other')",
        )
    return backup


def _checked_protection(protection: object) -> None:
    if not isinstance(protection, Protection):
        name = getattr(protection, "__name__", "")
        is_uncalled = protection in (checkpoint, uncoordinated, ecoc)
        raise refuse(
            "HF-C003",
            "UnknownWord",
            f"hf.{name} has no interval." if is_uncalled else f"protection {protection!r} is not known.",
            do=f"write hf.{name}(every='5 seconds')"
            if is_uncalled
            else "take hf.none, hf.checkpoint(every), hf.uncoordinated(every) or hf.ecoc(every)",
        )


def _checked_time(time: object) -> str | Arrival | None:
    if time is None or isinstance(time, str | Arrival):
        return time
    raise refuse("HF-C003", "UnknownWord", f"time={time!r} is no column.", do="write time='ts' or time=hf.ARRIVAL")


def _optional_ms(value: object, what: str) -> int | None:
    return None if value is None else duration_ms(value, what=what)


def _text(value: object, what: str) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise refuse("HF-C003", "UnknownWord", f"{what}={value!r} is no expression.", do=f"write {what}='celsius > 80'")
