"""What an aggregate keeps per group, and how two halves of a group become one.

Every function is split into slots (count, sum, mean, ...). A slot has a Spark
expression that computes it over the rows of a frame, a rule that merges two of
them, and a share in the result. Merging is associative for all but floating
sums, so the cut into frames does not show; those are added in the order of
frames, hence the same in every replay.

Nulls and NaN are as in Spark: null is skipped, NaN is a number and the largest
one; `first` and `last` go by time, then by all columns, and may be null. -0.0 is
taken for 0.0: the two are equal, and which of them came first is nobody's business.

Pure: no session, clock or file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import UsageError
from holdfast.graph.schemas import Column, Schema, carried_as
from holdfast.operators.builtin import refuse
from holdfast.quoting import quoted

__all__ = ["BOUNDS", "Measure", "Measures", "Slot", "TypeOf", "parse_call", "plan"]

TypeOf = Callable[[str], str]  # SQL expression over the input -> its type as DDL

BOUNDS = ("window_start", "window_end")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_ALIASES = {
    "mean": "avg",
    "average": "avg",
    "variance": "var_samp",
    "var": "var_samp",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "first_value": "first",
    "last_value": "last",
}
_FUNCTIONS = (
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "var_pop",
    "var_samp",
    "stddev_pop",
    "stddev_samp",
    "first",
    "last",
    "count_distinct",
)
_CALL = re.compile(r"\s*(\w+)\s*\(\s*(distinct\s)?(.*)\)\s*", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Slot:
    name: str  # "_sum0"
    op: str  # "count" | "sum" | "min" | "max" | "mean" | "m2" | "first" | "last" | "distinct"
    type: str
    source: str  # prepared column it is computed from; "" counts rows
    counted: str = ""  # slot with the number of non-null values, which tells null from NaN


@dataclass(frozen=True, slots=True)
class Measure:
    """One emitted column and the slots its value comes from."""

    name: str
    function: str
    type: str
    slots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measures:
    """The plan of an aggregate: input expressions -> slots -> emitted columns."""

    inputs: tuple[tuple[str, str, str], ...]  # (prepared column, SQL expression, type)
    order: tuple[tuple[str, str, str], ...]  # the same, for the order of rows
    slots: tuple[Slot, ...]
    measures: tuple[Measure, ...]
    float_sensitive: bool

    @property
    def slot_columns(self) -> tuple[Column, ...]:
        return tuple(Column(slot.name, slot.type) for slot in self.slots)

    @property
    def raw_columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, kind) for name, _, kind in (*self.order, *self.inputs))

    def ordered(self, op: str) -> tuple[Slot, ...]:
        """The slots of the first (or last) row; they travel together."""
        return tuple(slot for slot in self.slots if slot.op == op)

    def projection(self, *, ordered: bool) -> list[str]:
        """SQL of the columns the partials, or the raw rows, are computed from."""
        wanted = self.inputs
        if ordered or any(slot.op in ("first", "last") for slot in self.slots):
            wanted = (*self.order, *self.inputs)
        return [f"cast({_one_zero(sql, kind)} as {kind}) as {name}" for name, sql, kind in wanted]

    def partials(self) -> tuple[list[str], list[str]]:
        """SQL aggregates over the projection, and the selection that follows them."""
        aggregates, selected = [], []
        for slot in self.slots:
            if slot.op in ("first", "last"):
                selected.append(f"_{slot.op}.{slot.source} as {slot.name}")
                continue
            aggregates.append(f"cast({_partial(slot)} as {slot.type}) as {slot.name}")
            selected.append(slot.name)
        for op, pick in (("first", "min"), ("last", "max")):
            if sources := [slot.source for slot in self.ordered(op)]:
                aggregates.append(f"{pick}(struct({', '.join(sources)})) as _{op}")
        return aggregates, selected


def _partial(slot: Slot) -> str:
    match slot.op:
        case "count":
            return f"count({slot.source or 1})"
        case "mean":
            return f"avg({slot.source})"
        case "m2":
            return f"var_pop({slot.source}) * count({slot.source})"
        case "distinct":
            return f"sort_array(collect_set({slot.source}))"
        case op:
            return f"{op}({slot.source})"


def _one_zero(sql: str, kind: str) -> str:
    """-0.0 equals 0.0 and has other bytes: which of them is the least would be for the order of rows to say."""
    return f"({sql}) + 0.0D" if kind in _FLOATS else sql


def parse_call(call: str | Sequence[str]) -> tuple[str, str]:
    """'avg(celsius)' -> ('avg', 'celsius'); 'window_end' -> ('window_end', '')."""
    if not isinstance(call, str):
        function, argument = call[0], (call[1] if len(call) > 1 else "") or ""
    elif found := _CALL.fullmatch(call):
        function, argument = found[1] + ("_distinct" if found[2] else ""), found[3].strip()
    else:
        function, argument = call.strip(), ""
    function = function.lower()
    function, argument = _ALIASES.get(function, function), argument.strip()
    if function == "count" and argument.lower().startswith("distinct "):
        return "count_distinct", argument[len("distinct ") :].strip()
    return function, argument


def plan(
    emits: Mapping[str, str | Sequence[str]],
    schema: Schema,
    *,
    time: str | None,
    windowed: bool,
    type_of: TypeOf | None = None,
) -> Measures:
    """Slots and results for `emits`. Refuses what has no defined result."""
    planner = _Planner(schema, time, type_of)
    measures = tuple(planner.measure(name, call, windowed) for name, call in emits.items())
    return Measures(
        tuple((name, sql, kind) for sql, (name, kind) in planner.inputs.items()),
        tuple(planner.order),
        tuple(planner.slots.values()),
        measures,
        planner.float_sensitive,
    )


class _Planner:
    def __init__(self, schema: Schema, time: str | None, type_of: TypeOf | None) -> None:
        self._schema, self._type_of = schema, type_of
        self.inputs: dict[str, tuple[str, str]] = {}
        rows = Slot("_rows", "count", "bigint", "")
        self.slots: dict[tuple[str, str], Slot] = {("count", ""): rows}
        self.float_sensitive = False
        names = [name for name in (time,) if name in schema]
        names += [name for name in schema.names if name != time]
        self.order = [self._order(at, name) for at, name in enumerate(names)]

    def _order(self, at: int, name: str) -> tuple[str, str, str]:
        kind = self._schema.type_of(name) or ""
        if "<" in kind:
            # Spark and Arrow order nested values differently or not at all; text is the same.
            return f"_o{at}", f"to_json(struct({quoted(name)}))", "string"
        return f"_o{at}", quoted(name), kind

    def _input(self, sql: str, kind: str) -> str:
        if sql not in self.inputs:
            self.inputs[sql] = (f"_x{len(self.inputs)}", kind)
        return self.inputs[sql][0]

    def _slot(self, op: str, source: str, kind: str, counted: str = "") -> str:
        if (op, source) not in self.slots:
            name = f"_{op}{source.removeprefix('_')}"
            self.slots[op, source] = Slot(name, op, kind, source, counted)
        return self.slots[op, source].name

    def _expression_type(self, sql: str) -> str:
        kind = None
        if re.fullmatch(r"`(?:[^`]|``)+`|[A-Za-z_]\w*", sql, re.ASCII):  # `a.b` is a column; a.b is b of a
            kind = self._schema.type_of(sql[1:-1].replace("``", "`") if sql.startswith("`") else sql)
        if kind is None and self._type_of is not None:
            found = self._type_of(sql)
            try:
                kind = Schema.of(f"x {found}").columns[0].type
            except UsageError:
                other = f"st_asbinary({sql})" if found.startswith("geo") else f"cast({sql} as {carried_as(found)})"
                raise refuse(
                    "HF-O022",
                    "AggregateTypeRefused",
                    f"{sql!r} is of a type that frames do not carry: {found}.",
                    do=f"make it another: {other}",
                ) from None
        if kind is None:
            raise refuse(
                "HF-O020",
                "ExpressionTypeUnknown",
                f"the type of {sql!r} is not known here.",
                why=f"it is no column of the input, which has {self._schema.ddl}",
                do="name a column, or compute one with map() before the aggregate",
            )
        return kind

    def measure(self, name: str, call: str | Sequence[str], windowed: bool) -> Measure:
        function, sql = parse_call(call)
        if function in BOUNDS and not sql:
            if not windowed:
                raise refuse(
                    "HF-O021",
                    "AggregateUnknown",
                    f"{name!r} asks for {function!r}, and the aggregate has no window of time.",
                    do="give it window= or session= and a time column, or leave the column out",
                )
            return Measure(name, function, "timestamp")
        if function not in _FUNCTIONS or not sql:
            raise refuse(
                "HF-O021",
                "AggregateUnknown",
                f"{name!r} is declared as {call!r}, which is no aggregate Holdfast has.",
                do=f"use one of {', '.join(_FUNCTIONS)}, {', '.join(BOUNDS)}",
            )
        if function == "count" and sql in ("*", "1"):
            return Measure(name, "count", "bigint", ("_rows",))
        return self._measure(name, function, sql, self._expression_type(sql))

    def _measure(self, name: str, function: str, sql: str, kind: str) -> Measure:
        nested, number = "<" in kind, kind in _INTEGERS + _FLOATS or kind.startswith("decimal")
        if (function in ("min", "max", "count_distinct") and nested) or (
            function not in ("min", "max", "count_distinct", "count", "first", "last") and not number
        ):
            raise refuse(
                "HF-O022",
                "AggregateTypeRefused",
                f"{name!r}: {function} of {sql!r} is not defined for {kind}.",
                do="cast it, or compute a column of a fitting type with map() before",
            )
        if function in ("first", "last"):
            source = self._input(sql, kind)
            for column, _, order_kind in self.order:
                self._slot(function, column, order_kind)
            return Measure(name, function, kind, (self._slot(function, source, kind),))
        if function.startswith(("var_", "stddev_")):
            source = self._input(f"cast({sql} as double)", "double")
            self.float_sensitive = True
            count = self._slot("count", source, "bigint")
            mean = self._slot("mean", source, "double", count)
            m2 = self._slot("m2", source, "double", count)
            return Measure(name, function, "double", (count, mean, m2))
        if function == "count_distinct":
            slot = self._slot("distinct", self._input(sql, kind), f"array<{kind}>")
            return Measure(name, function, "bigint", (slot,))
        if function in ("sum", "avg"):
            return self._sum(name, function, sql, kind)
        source = self._input(sql, kind)
        count = self._slot("count", source, "bigint")
        if function == "count":
            return Measure(name, function, "bigint", (count,))
        return Measure(name, function, kind, (self._slot(function, source, kind, count), count))

    def _sum(self, name: str, function: str, sql: str, kind: str) -> Measure:
        if kind in _FLOATS:
            self.float_sensitive = True
            sql, source_kind, total, mean = f"cast({sql} as double)", "double", "double", "double"
        elif kind == "bigint" and function == "avg":
            # A mean does not overflow in Spark; its sum must not either.
            sql, source_kind, total, mean = (
                f"cast({sql} as decimal(20,0))",
                "decimal(20,0)",
                "decimal(38,0)",
                "double",
            )
        elif kind in _INTEGERS:
            source_kind, total, mean = kind, "bigint", "double"
        else:
            precision, scale = (int(part) for part in kind[8:-1].split(","))
            source_kind = kind
            total = f"decimal({min(precision + 10, 38)},{scale})"
            mean = f"decimal({min(precision + 4, 38)},{min(scale + 4, 38)})"
        source = self._input(sql, source_kind)
        count = self._slot("count", source, "bigint")
        slot = self._slot("sum", source, total, count)
        return Measure(name, function, total if function == "sum" else mean, (slot, count))
