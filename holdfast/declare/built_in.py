"""Operators that need no function: aggregate, join, union, split, filter, map.

Each declares one operator; all of them take the settings of `drafts.OperatorSettings`.

Pure. `declare.process.StreamProcess` has these methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from holdfast.declare.drafts import DEFAULTS, Draft, OperatorSettings, Reads, settled
from holdfast.graph import options as read
from holdfast.graph.declared import as_names, caller, checked_name, one_of, refuse
from holdfast.graph.durations import Duration
from holdfast.graph.model import Arrival
from holdfast.graph.words import worded

__all__ = ["BuiltInOperators"]


class BuiltInOperators:
    """The part of a stream process that declares built-in operators."""

    _time: str | Arrival | None
    _drafts: list[Draft]

    @worded(more=DEFAULTS, on="by", keys="by", per="by")
    def aggregate(
        self,
        name: str,
        *,
        of: Reads,
        by: str | Sequence[str] | None = None,
        emits: Mapping[str, str],
        window: Duration | read.Rows | None = None,
        every: Duration | read.Rows | None = None,
        session: Duration | None = None,
        time: str | None = None,
        lateness: Duration | None = None,
        too_late: str = "drop",
        **settings: Unpack[OperatorSettings],
    ) -> None:
        """Aggregates per key: running, or over time, row or session windows.

        `by`: the columns that are the key; `emits`: column -> aggregate, {"mean": "avg(celsius)"}.
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

    @worded(more=DEFAULTS, by="on", keys="on")
    def join(
        self,
        name: str,
        *,
        left: Reads,
        right: Reads,
        on: str | Sequence[str],
        within: Duration,
        how: str = "inner",
        emits: str | Sequence[str] | None = None,
        time: str | None = None,
        too_late: str = "drop",
        **settings: Unpack[OperatorSettings],
    ) -> None:
        """Rows of two streams with equal keys and times at most `within` apart.

        `on`: the columns that are the key, in both; `how`: "inner" or "left"; `emits`: the columns
        that come out, all of both when left out.
        `too_late`: what becomes of rows whose partners may be gone already, as for `aggregate`;
        "drop" joins them with what is left.
        """
        chosen = read.join_options(on=on, within=within, how=how, emits=emits, time=time, process_time=self._time)
        self._windowed(name, "join", {"left": left, "right": right}, chosen, settings, too_late)

    @worded(more=DEFAULTS)
    def union(self, name: str, *, of: Sequence[Reads], **settings: Unpack[OperatorSettings]) -> None:
        """All rows of several streams of one schema."""
        if not isinstance(of, list | tuple) or len(of) < 2:
            raise refuse("HF-C003", "UnknownWord", f"of={of!r} is no list of streams.", do="write of=['a', 'b']")
        self._built_in(name, "union", {f"of{i}": each for i, each in enumerate(of, 1)}, {}, settings)

    @worded(more=DEFAULTS, into="emits", outputs="emits")
    def split(self, name: str, *, of: Reads, emits: Mapping[str, str], **settings: Unpack[OperatorSettings]) -> None:
        """A stream 'name.port' per port of `emits`; a row goes to every port whose SQL condition it meets."""
        ports = read.split_options(emits)
        streams = tuple(f"{name}.{checked_name(port, what='port')}" for port in ports)
        # The model says "into", as the fingerprints in state folders do.
        self._built_in(name, "split", {"of": of}, {"into": ports}, settings, streams)

    @worded(more=DEFAULTS)
    def filter(self, name: str, *, of: Reads, where: str, **settings: Unpack[OperatorSettings]) -> None:
        """The rows that meet an SQL condition."""
        self._built_in(name, "filter", {"of": of}, {"where": _text(where, "where")}, settings)

    @worded(more=DEFAULTS)
    def map(self, name: str, *, of: Reads, select: str | Sequence[str], **settings: Unpack[OperatorSettings]) -> None:
        """SQL expressions over each row: select=['zone', 'celsius * 1.8 + 32 as fahrenheit']."""
        self._built_in(name, "map", {"of": of}, {"select": as_names(select, what="select")}, settings)

    def _windowed(
        self,
        name: str,
        kind: str,
        ports: dict[str, Reads],
        chosen: dict[str, Any],
        settings: OperatorSettings,
        too_late: str,
    ) -> None:
        if one_of(too_late, ("drop", "quarantine", "fail"), what="too_late") != "drop":
            chosen["too_late"] = too_late  # not said where it is the default: it would look like other code
        if too_late == "quarantine":
            settings.setdefault("on_error", "quarantine")
        self._built_in(name, kind, ports, chosen, settings)

    def _built_in(
        self,
        name: str,
        kind: str,
        ports: dict[str, Reads],
        chosen: dict[str, Any],
        settings: OperatorSettings,
        outputs: tuple[str, ...] | None = None,
    ) -> None:
        name = checked_name(name, what="operator")
        said = settled(settings)
        self._drafts.append(Draft(name, kind, ports, outputs or (name,), caller()[0], chosen, settings=said))


def _text(value: object, what: str) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise refuse("HF-C003", "UnknownWord", f"{what}={value!r} is no expression.", do=f"write {what}='celsius > 80'")
