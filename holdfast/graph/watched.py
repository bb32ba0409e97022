"""What a function could have changed that outlives its call, compared before and after.

It also sees what was changed under another name, which no source shows (`graph.memory` reads the source).

Pure: looks at objects in memory, nothing else.
"""

from __future__ import annotations

import array
import collections
import functools
import inspect
import itertools
import types
from collections.abc import Callable
from typing import Any

from holdfast.graph.functions import (
    codes_of,
    is_container,
    is_moving,
    is_users_code,
    kind_of,
    mutable_defaults,
    outer_of,
    plain,
)

__all__ = ["Watch"]

# Larger ones are compared by their size: a look-up table of a million entries is not walked for every frame.
_WALKED_MAX = 1000
_DEPTH_MAX = 4


class Watch:
    """What a function refers to and could change, compared before and after a call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._roots: dict[str, Any] = {}
        self._gather(plain(function), "", set())

    def _gather(self, function: Any, of: str, seen: set[int]) -> None:
        if isinstance(function, types.MethodType):
            self._roots[f"{of}self"] = function.__self__
            function = function.__func__
        if not isinstance(function, types.FunctionType):
            if not isinstance(function, type | types.ModuleType) and hasattr(function, "__dict__"):
                self._roots[f"{of}self"] = function
            return
        if id(function) in seen or not is_users_code(function):
            return
        seen.add(id(function))
        outer = outer_of(function)
        used = {name for code in codes_of(function.__code__) for name in (*code.co_names, *code.co_freevars)}
        values = {name: outer[name] for name in used if name in outer} | mutable_defaults(function)
        self._roots[f"{of}{function.__name__}"] = function.__dict__
        for name, value in values.items():
            if (
                is_container(value)
                or is_moving(value)
                or self._is_users_own(value)
                or (isinstance(value, type) and self._is_users_own(value))
            ):
                self._roots[f"{of}{name}"] = value
            elif isinstance(plain(value), types.FunctionType):
                self._gather(plain(value), f"{name}: ", seen)
            elif value is None or isinstance(value, bool | int | float | str | bytes | tuple | frozenset):
                self._roots[f"{of}{name}"] = (function, name)

    @staticmethod
    def _is_users_own(value: Any) -> bool:
        kind = value if isinstance(value, type) else type(value)
        return any(isinstance(each, types.FunctionType) and is_users_code(each) for each in vars(kind).values())

    @property
    def has_any(self) -> bool:
        """Whether there is anything that could be changed without a `global` or `nonlocal` in the source."""
        names = [name for name, value in self._roots.items() if not isinstance(value, tuple)]
        return any(self._roots[name] != {} for name in names)

    def look(self) -> dict[str, Any]:
        return {name: _shape(self._now(value), 0) for name, value in self._roots.items()}

    @staticmethod
    def _now(value: Any) -> Any:
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], types.FunctionType):
            return _outer_one(value[0], value[1])
        return value

    def changed(self, before: dict[str, Any]) -> str | None:
        """The first name whose value is another one than before."""
        after = self.look()
        return next((name for name, value in before.items() if after.get(name) != value), None)


def _outer_one(function: types.FunctionType, name: str) -> Any:
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return None
    return function.__globals__.get(name)


def _shape(value: Any, depth: int) -> Any:
    """Equal for the same content; what is not looked into is known by where it lies."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return (type(value).__name__, repr(value) if isinstance(value, float | complex) else value)
    if depth >= _DEPTH_MAX:
        return id(value)
    if isinstance(value, dict):
        if len(value) > _WALKED_MAX:
            return "dict", len(value)
        return "dict", tuple((_shape(key, depth + 1), _shape(each, depth + 1)) for key, each in value.items())
    if isinstance(value, list | tuple | collections.deque):
        if len(value) > _WALKED_MAX:
            return type(value).__name__, len(value)
        return type(value).__name__, tuple(_shape(each, depth + 1) for each in value)
    if isinstance(value, set | frozenset):
        if len(value) > _WALKED_MAX:
            return "set", len(value)
        return "set", frozenset(_shape(each, depth + 1) for each in value)
    if isinstance(value, bytearray | array.array):
        return type(value).__name__, bytes(value) if len(value) <= _WALKED_MAX else len(value)
    if kind_of(value) == ("random", "Random"):
        return "random", value.getstate()
    if isinstance(value, itertools.count):
        return "count", repr(value)
    if kind_of(value) == ("numpy", "ndarray"):
        return (
            "array",
            value.shape,
            value.tobytes() if value.nbytes <= 8 * _WALKED_MAX and value.dtype != object else None,
        )
    if isinstance(value, type):
        return id(value), tuple(
            (name, _shape(each, depth + 1))
            for name, each in vars(value).items()
            if not name.startswith("__")
            and not callable(each)
            and not isinstance(each, classmethod | staticmethod | property)
        )
    if hasattr(value, "__dict__") and Watch._is_users_own(value):
        own = ((name, each) for name, each in vars(value).items() if not _is_derived(value, name))
        return id(value), tuple((name, _shape(each, depth + 1)) for name, each in own)
    return id(value)


def _is_derived(value: Any, name: str) -> bool:
    """Computed once from the rest, when somebody asked: no other answer can come of it."""
    return isinstance(inspect.getattr_static(type(value), name, None), functools.cached_property)
