"""A function that is handed to a worker: it may change its arguments, and others have theirs; it may keep nothing.

What is called here is what PySpark pickles and calls in the worker.
"""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.util import PythonEvalType as Kind

from holdfast.engine.unit.handed import Handed, handed
from holdfast.errors import OperatorError

SEEN: list = []
NAMES = {1: "one"}

IN_PLACE = {
    "adds": lambda v: v.__iadd__(100),
    "sets": lambda v: v.__setitem__(slice(None), 0),
    "by place": lambda v: v.iloc.__setitem__(0, -1),
    "its array": lambda v: v.to_numpy().__setitem__(slice(None), 0),
    "numpy": lambda v: np.multiply(v.to_numpy(), 0, out=v.to_numpy()),
    "sorts": lambda v: v.sort_values(inplace=True, ascending=False),
    "fills": lambda v: v.mask(v > 1, 7, inplace=True),
    "drops": lambda v: v.drop(v.index[0], inplace=True),
    "renames": lambda v: v.rename("w", inplace=True),
    "index": lambda v: setattr(v, "index", range(10, 10 + len(v))),
}


@pytest.mark.parametrize(
    "kind", [Kind.SQL_SCALAR_PANDAS_UDF, Kind.SQL_GROUPED_AGG_PANDAS_UDF, Kind.SQL_WINDOW_AGG_PANDAS_UDF]
)
@pytest.mark.parametrize("way", IN_PLACE)
def test_a_series_that_is_changed_in_place_is_the_functions_own(way, kind):
    """Spark hands one Series to all functions of a projection."""

    def changes(v: pd.Series) -> pd.Series:
        IN_PLACE[way](v)
        return v

    shared = pd.Series([3, 1, 2], name="v")
    handed(changes, kind)(shared)
    pd.testing.assert_series_equal(shared, pd.Series([3, 1, 2], name="v"))


def test_arrays_and_structs_inside_are_the_functions_own():
    def changes(lists: pd.Series, structs: pd.DataFrame) -> pd.Series:
        for each in lists:
            each[:] = 0
        structs["a"] = 0
        return lists.map(len)

    lists, structs = pd.Series([np.array([1, 2]), np.array([3]), None]).dropna(), pd.DataFrame({"a": [1, 2]})
    handed(changes, Kind.SQL_SCALAR_PANDAS_UDF)(lists, structs)
    assert [each.tolist() for each in lists] == [[1, 2], [3]]
    assert structs["a"].tolist() == [1, 2]


@pytest.mark.parametrize("kind", [Kind.SQL_BATCHED_UDF, Kind.SQL_ARROW_BATCHED_UDF])
def test_a_list_of_a_row_that_is_changed_is_the_functions_own(kind):
    def changes(tags, names):
        tags.append(50)
        names["x"] = [1]
        names["y"].append(2)
        return len(tags)

    tags, names = [1], {"y": []}
    assert handed(changes, kind)(tags, names) == 2
    assert (tags, names) == ([1], {"y": []})


def hides_in_rows(v):
    known = SEEN
    known.append(v)
    return v


def hides_in_parts(parts):
    for part in parts:
        for each in (SEEN,):
            each.append(len(part))
        yield part


class Counter:
    def __init__(self):
        self.n = 0

    def add(self, v):
        self.n += 1
        return v + self.n

    def __call__(self, v):
        self.n += 1
        return v + self.n


@pytest.mark.parametrize(
    "kind",
    [Kind.SQL_BATCHED_UDF, Kind.SQL_ARROW_BATCHED_UDF, Kind.SQL_SCALAR_PANDAS_UDF, Kind.SQL_GROUPED_MAP_PANDAS_UDF],
)
@pytest.mark.parametrize(
    "function", [hides_in_rows, Counter().add, Counter()], ids=["a global", "a method", "an object"]
)
def test_what_it_keeps_under_another_name_is_told(function, kind):
    with pytest.raises(OperatorError) as told:
        for v in range(4):
            handed(function, kind)(
                pd.Series([v]) if kind not in (Kind.SQL_BATCHED_UDF, Kind.SQL_ARROW_BATCHED_UDF) else v
            )
    assert told.value.code == "HF-U070"


@pytest.mark.parametrize(
    "kind", [Kind.SQL_MAP_PANDAS_ITER_UDF, Kind.SQL_MAP_ARROW_ITER_UDF, Kind.SQL_SCALAR_PANDAS_ITER_UDF]
)
def test_what_a_function_over_parts_keeps_is_told_at_its_end(kind):
    with pytest.raises(OperatorError) as told:
        list(handed(hides_in_parts, kind)(iter([[1], [2]])))
    assert told.value.code == "HF-U070" and "'hides_in_parts'" in told.value.what


def test_it_travels_and_looks_like_the_function():
    def two(key, rows):
        """Of a group."""
        return rows.assign(n=len(NAMES))

    made = cloudpickle.loads(cloudpickle.dumps(handed(two, Kind.SQL_GROUPED_MAP_PANDAS_UDF)))
    assert isinstance(made, Handed)
    assert inspect.getfullargspec(made).args == ["key", "rows"]
    assert (made.__name__, made.__doc__) == ("two", "Of a group.")
    assert made(1, pd.DataFrame({"v": [1]}))["n"].tolist() == [1]


def test_what_is_harmless_or_not_the_users_is_handed_as_it_is():
    def doubled(v):
        return v * 2

    assert handed(doubled, Kind.SQL_ARROW_BATCHED_UDF) is doubled
    assert handed(len, Kind.SQL_BATCHED_UDF) is len
    assert handed(pd.isna, Kind.SQL_SCALAR_PANDAS_UDF) is pd.isna
    assert handed(handed, Kind.SQL_SCALAR_PANDAS_UDF) is handed  # ours
