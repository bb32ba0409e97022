"""Functions that are handed to Spark's workers: each call has arguments of its own and keeps nothing.

Spark computes all Python functions of a projection over one batch, and hands every one of them the same Series, or the
same list of a row. One that changes its argument in place changes what the others are handed, also those of another
operator that came to stand in the same projection. And what a function keeps in its worker is there for the next frame,
or gone. So PySpark pickles a function of the user's as `Handed`: it copies arguments that others have too, and looks at
what the function could have changed as `graph.watched.Watch` does for operators.

Changes `UserDefinedFunction` of PySpark once, for this os process; functions of Holdfast and of libraries are left alone.
"""

from __future__ import annotations

import copy
import gc
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.graph.arguments import may_change
from holdfast.graph.functions import is_users
from holdfast.graph.memory import kept_between_frames
from holdfast.graph.watched import Watch

__all__ = ["Handed", "guard_functions", "handed"]

_CONTAINERS = (list, dict, set, bytearray, tuple)


class Handed:
    """A function of the user's, as the worker calls it."""

    def __init__(self, function: Callable[..., Any], copies: bool, by_row: bool) -> None:
        self._function, self._copies, self._by_row = function, copies, by_row
        self._watch: Watch | None = None
        self._before: dict[str, object] = {}
        self._calls = 0
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__doc__ = getattr(function, "__doc__", None)
        self.__signature__ = inspect.signature(function)  # PySpark counts the parameters of some

    def __reduce__(self) -> tuple[Any, ...]:
        return Handed, (self._function, self._copies, self._by_row)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._watch is None:
            self._watch = Watch(self._function)
            self._before = self._watch.look()
        if self._copies:
            args, kwargs = tuple(map(_own, args)), {name: _own(value) for name, value in kwargs.items()}
        result = self._function(*args, **kwargs)
        if isinstance(result, Iterator):
            return self._to_its_end(result)
        self._calls += 1
        # Row by row a look would cost more than the function; what is kept is there at the next power of two as well.
        if not self._by_row or self._calls & (self._calls - 1) == 0:
            self._look()
        return result

    def _to_its_end(self, parts: Iterator[Any]) -> Iterator[Any]:
        yield from parts
        self._look()

    def _look(self) -> None:
        changed = self._watch.changed(self._before) if self._watch is not None else None
        if changed is not None:
            code = getattr(self._function, "__code__", None)
            where = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
            whose = f"function {self.__name__!r}"
            raise kept_between_frames(whose, changed, where, "the frame was not sealed; its input is kept")


def handed(function: Callable[..., Any], kind: int) -> Callable[..., Any]:
    """The function as it is pickled; as it is if nothing of it could be seen by others."""
    from pyspark.util import PythonEvalType as Kind

    if isinstance(function, Handed) or not is_users(function):
        return function
    by_row = kind in (Kind.SQL_BATCHED_UDF, Kind.SQL_ARROW_BATCHED_UDF)
    shared = (
        Kind.SQL_SCALAR_PANDAS_UDF, Kind.SQL_GROUPED_AGG_PANDAS_UDF, Kind.SQL_GROUPED_AGG_PANDAS_ITER_UDF, Kind.SQL_WINDOW_AGG_PANDAS_UDF,
    )  # fmt: skip
    copies = may_change(function) if by_row else kind in shared
    if by_row and not copies and not Watch(function).has_any:
        return function
    try:
        return Handed(function, copies, by_row)
    except (TypeError, ValueError):  # no signature: a function of C's
        return function


def guard_functions() -> None:
    """From now on PySpark pickles functions as `handed` gives them. Safe to call again."""
    from pyspark.sql.udf import UserDefinedFunction

    create = UserDefinedFunction._create_judf
    if getattr(create, "_is_guarded", False):
        return

    def guarded(self: Any, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return create(self, handed(func, self.evalType), *args, **kwargs)

    guarded._is_guarded = True  # type: ignore[attr-defined]
    UserDefinedFunction._create_judf = guarded  # type: ignore[method-assign]
    for each in gc.get_objects():
        if type(each) is UserDefinedFunction:
            each._judf_placeholder = None  # pickled before, when it was tried by hand


def _own(value: Any) -> Any:
    """A copy that nobody else has."""
    if isinstance(value, _CONTAINERS):
        return copy.deepcopy(value)
    if type(value).__module__.partition(".")[0] in ("pandas", "numpy"):
        mine = value.copy()
        if getattr(mine, "dtype", None) == object and any(_is_mutable(each) for each in mine):  # noqa: E721 (a dtype, not a type)
            mine[:] = [copy.deepcopy(each) for each in mine]
        return mine
    return map(_own, value) if isinstance(value, Iterator) else value


def _is_mutable(value: object) -> bool:
    return isinstance(value, _CONTAINERS) or (type(value).__module__ == "numpy" and hasattr(value, "__len__"))
