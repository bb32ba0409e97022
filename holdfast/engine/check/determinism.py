"""What in an analysed plan would make a replay differ: chance, clocks, order, float sums.

The plan is walked from its leaves up. Chance and clocks are findings wherever they
stand. What depends on the order of rows is followed instead: `collect_list` gives an
array whose order is arbitrary, and that does no harm if the array is sorted, counted
or exploded further up; only if it reaches the output, or an expression that looks at
its order, is it a finding. What has an order in which rows may tie (max_by, row_number) is
no finding: its rows are handed in canonical order. So the usual ways to give an order are understood, in one
expression or in several steps.

Looks at the plan only; runs no job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Determinism", "look"]

_CLOCKS = {
    "CurrentTimestamp": "current_timestamp()",
    "Now": "now()",
    "CurrentDate": "current_date()",
    "CurrentTime": "current_time()",
    "LocalTimestamp": "localtimestamp()",
    "CurrentBatchTimestamp": "current_timestamp()",
}
# One row's value of many: no order above mends it.
_PICKS = {
    "First": "first()",
    "Last": "last()",
    "AnyValue": "any_value()",
    "ListAgg": "listagg()",
    "Mode": "mode()",
}
# All values in some order: an order given later mends it.
_COLLECTS = {"CollectList": "collect_list()", "CollectSet": "collect_set()"}
# Whatever the order of the array, these give the same.
_ORDERLESS = {
    "SortArray", "ArraySort", "Size", "ArrayMin", "ArrayMax", "ArrayContains", "ArraysOverlap",
    "ArrayExists", "ArrayForAll", "IsNull", "IsNotNull", "MapFromEntries", "Explode", "Inline",
    "ArraySize", "Count",
}  # fmt: skip
# The result is as ordered as the array: look further up.
_CARRIES = {
    "Alias", "AggregateExpression", "WindowExpression", "AttributeReference", "Cast", "Coalesce", "If", "CaseWhen",
    "CreateNamedStruct", "GetStructField", "UpdateFields", "ArrayDistinct", "ArrayFilter", "ArrayTransform",
    "ArrayCompact", "ArrayUnion", "ArrayExcept", "ArrayIntersect", "ArrayRemove", "Concat", "Flatten", "Nvl",
    "CreateArray", "KnownNotNull", "KnownNullable",
}  # fmt: skip
_FLOAT_SUMS = {
    "Sum", "TrySum", "Average", "TryAverage", "StddevSamp", "StddevPop", "VarianceSamp", "VariancePop",
    "Skewness", "Kurtosis", "Corr", "CovSample", "CovPopulation", "RegrSlope", "RegrIntercept", "RegrR2",
    "RegrSXX", "RegrSXY", "RegrSYY", "RegrReplacement", "Product",
}  # fmt: skip
# They throw coins, and do not say so.
_COINS = {
    f"Kll{what}Agg{kind}": f"kll_{word}_agg_{kind.lower()}()"
    for what, word in (("Sketch", "sketch"), ("Merge", "merge"))
    for kind in ("Bigint", "Double", "Float")
}
# Of rows that tie, the order decides which is taken, or which comes first; so it does for what Python makes of many rows,
# and for sketches. They get them in canonical order, in one chunk and one partition: then it is the values that decide.
_ORDERED = {
    "MaxBy", "MinBy", "MaxMinByK", "ListAgg", "GlobalLimit", "Offset", "Tail", "PythonUDAF", "FlatMapGroupsInPandas",
    "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow", "MapInPandas", "MapInArrow",
    "ApproximatePercentile", "HistogramNumeric", "ApproxTopK", "ApproxTopKAccumulate", "ApproxTopKCombine", "CollectTopK",
    "HllSketchAgg", "HllUnionAgg", "ThetaSketchAgg", "ThetaUnionAgg", "ThetaIntersectionAgg",
}  # fmt: skip
# Functions in Python may follow, which no plan shows.
_RDDS = {"LogicalRDD", "ExternalRDD", "LogicalRDDWithStats"}
# In a window, equal rows get equal answers from these.
_EQUAL_FOR_TIES = {"Rank", "DenseRank", "PercentRank", "CumeDist"}


@dataclass
class Determinism:
    """What was found; each text is what the user wrote, as far as the plan tells."""

    chance: list[str] = field(default_factory=list)
    clocks: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    float_sums: bool = False
    pinned: bool = False  # needs one chunk and one partition
    ordered: bool = False  # and its rows in canonical order
    columns_from_data: bool = False  # a pivot without values: which columns there are, the rows decide


def look(df: DataFrame) -> Determinism:
    """Walk the analysed plan of a DataFrame."""
    walk = _Walk()
    plan = df._jdf.queryExecution().analyzed()
    marks = walk.plan(plan)
    walk.output(plan, marks)
    walk.found.pinned = walk.found.ordered or walk.found.float_sums
    return walk.found


@dataclass(frozen=True)
class _Mark:
    """A column whose content depends on the order of rows, and what made it so."""

    what: str
    sortable: bool


class _Walk:
    def __init__(self) -> None:
        self.found = Determinism()

    def output(self, plan: Any, marks: dict[int, _Mark]) -> None:
        for attribute in _each(plan.output()):
            mark = marks.get(attribute.exprId().id())
            if mark is not None:
                self._order(mark)

    # ---- nodes ----

    def plan(self, node: Any) -> dict[int, _Mark]:
        """Marked columns above this node, by expression id."""
        name = node.getClass().getSimpleName()
        children = list(_each(node.children()))
        if not children:
            self.found.ordered = self.found.ordered or name in _RDDS
            return {}
        below = [self.plan(child) for child in children]
        marks = {key: mark for part in below for key, mark in part.items()}
        for inner in _each(node.subqueries()):
            self.output(inner, self.plan(inner))
        self.found.ordered = self.found.ordered or name in _ORDERED
        if name == "Sample":
            self.found.chance.append("sample()")
        elif name in ("Deduplicate", "DeduplicateWithinWatermark"):
            return marks | self._deduplicated(node)
        elif name == "GlobalLimit":
            return marks | self._limited(node)
        elif name == "Union":
            return _union(node, children, below)
        grouping = {e.exprId().id() for e in _each(node.groupingExpressions()) if _is(e, "AttributeReference")} \
            if name == "Aggregate" and marks else set()  # fmt: skip
        for key in grouping & set(marks):
            self._order(marks[key])
        for expression in _each(node.expressions()):
            mark = self._expression(expression, marks)
            if mark is None or _is(expression, "AttributeReference"):
                continue
            if _is(expression, "Alias"):
                marks[expression.exprId().id()] = mark
            else:
                self._order(mark)
        return marks

    def _deduplicated(self, node: Any) -> dict[int, _Mark]:
        """Which of the rows with one key survives is arbitrary; the key itself is not."""
        keys = {key.exprId().id() for key in _each(node.keys())}
        mark = _Mark("dropDuplicates() on some of the columns", sortable=False)
        return {key: mark for each in _each(node.output()) if (key := each.exprId().id()) not in keys}

    def _limited(self, node: Any) -> dict[int, _Mark]:
        child = node.child()
        while child.getClass().getSimpleName() in ("LocalLimit", "Offset", "Project", "Filter", "SubqueryAlias"):
            child = child.child()
        if _is(child, "Sort") or node.limitExpr().toString() == "0":
            return {}
        return {each.exprId().id(): _Mark("limit()", sortable=False) for each in _each(node.output())}

    # ---- expressions ----

    def _expression(self, expression: Any, marks: dict[int, _Mark]) -> _Mark | None:
        """The mark of an expression's value, if it depends on the order of rows."""
        name = expression.getClass().getSimpleName()
        if name == "AttributeReference":
            return marks.get(expression.exprId().id()) if marks else None
        children = list(_each(expression.children()))
        self._look_at(name, expression, children)
        if name == "WindowExpression" and expression.windowSpec().orderSpec().size() > 0:
            # The order is given: what its function picks or collects is picked in order.
            self.found.ordered = self.found.ordered or not _is(expression.windowFunction(), *_EQUAL_FOR_TIES)
            for child in children:
                self._inside_ordered(child, marks)
            return None
        below = [mark for child in children if (mark := self._expression(child, marks)) is not None]
        if name in _COLLECTS:
            return next((mark for mark in below if not mark.sortable), _Mark(_COLLECTS[name], sortable=True))
        if name in _PICKS and not _has_order(name, expression, children):
            return _Mark(_PICKS[name], sortable=False)
        if not below:
            return None
        if name in _CARRIES:
            return next((mark for mark in below if not mark.sortable), below[0])
        lasting = [mark for mark in below if not mark.sortable or name not in _ORDERLESS]
        if not lasting:
            return None
        self._order(lasting[0])
        return None

    def _inside_ordered(self, expression: Any, marks: dict[int, _Mark]) -> None:
        name = expression.getClass().getSimpleName()
        children = list(_each(expression.children()))
        if name == "AttributeReference":
            if marks and (mark := marks.get(expression.exprId().id())) is not None:
                self._order(mark)
            return
        self._look_at(name, expression, children)
        for child in children:
            self._inside_ordered(child, marks)

    def _look_at(self, name: str, expression: Any, children: list[Any]) -> None:
        """What is a finding wherever it stands, and what asks for one partition."""
        if name in _CLOCKS:
            self.found.clocks.append(_CLOCKS[name])
        elif name in _FLOAT_SUMS:
            self.found.float_sums = self.found.float_sums or any(_is_float(child) for child in children)
        elif name in _ORDERED:
            self.found.ordered = True
        elif name in _COINS:
            self.found.chance.append(_COINS[name])
        elif name == "PivotFirst":
            self.found.columns_from_data = self.found.columns_from_data or expression.pivotColumnValues().size() == 0
        elif name not in _CARRIES and not expression.deterministic():
            if all(child.deterministic() for child in children):
                self.found.chance.append(_call(expression))

    def _order(self, mark: _Mark) -> None:
        if mark.what not in self.found.order:
            self.found.order.append(mark.what)


def _union(node: Any, children: list[Any], below: list[dict[int, _Mark]]) -> dict[int, _Mark]:
    """A union's columns have the ids of its first input; marks of the others go by position."""
    own = [each.exprId().id() for each in _each(node.output())]
    marks: dict[int, _Mark] = {}
    for child, part in zip(children, below, strict=True):
        if part:
            for key, each in zip(own, _each(child.output()), strict=True):
                if (mark := part.get(each.exprId().id())) is not None:
                    marks[key] = mark
    return marks


def _has_order(name: str, expression: Any, children: list[Any]) -> bool:
    if name == "ListAgg":
        return any(_is(child, "SortOrder") for child in children)
    # mode(x, deterministic=True) takes the least of the most frequent values.
    return name == "Mode" and expression.reverseOpt().isDefined()


def _call(expression: Any) -> str:
    return re.sub(r"\(.*", "()", expression.toString(), flags=re.DOTALL)


def _is(node: Any, *names: str) -> bool:
    return bool(node.getClass().getSimpleName() in names)


def _is_float(expression: Any) -> bool:
    return expression.dataType().simpleString() in ("double", "float")


def _each(seq: Any) -> Iterator[Any]:
    """A Scala sequence."""
    for at in range(seq.size()):
        yield seq.apply(at)
