"""What a function of the user's is made of: its source, the names it means, and whose it is.

Pure: reads source text through `inspect`, nothing else.
"""

from __future__ import annotations

import array
import ast
import collections
import contextlib
import inspect
import itertools
import sysconfig
import textwrap
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = [
    "codes_of",
    "is_container",
    "is_moving",
    "is_users",
    "is_users_code",
    "kind_of",
    "mutable_defaults",
    "outer_of",
    "plain",
    "tree_of",
]

_CONTAINERS = (list, dict, set, bytearray, collections.deque, array.array)
# Each call gives another value than the one before.
_MOVING = (types.GeneratorType, itertools.count, itertools.cycle, itertools.accumulate)
_MOVING_NAMES = frozenset(
    {("random", "Random"), ("random", "SystemRandom"), ("numpy.random", "Generator"), ("numpy.random", "RandomState")}
)
_LIBRARY = tuple({sysconfig.get_paths()[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")})
_HERE = str(Path(__file__).resolve().parents[1])


def plain(function: object) -> object:
    """Without decorators that say what they wrap; a user-defined function of Spark is one."""
    seen = 0
    while seen < 20:
        inner = getattr(function, "__wrapped__", None) if not isinstance(function, type) else None
        if inner is None and isinstance(function, staticmethod):
            inner = function.__func__
        if inner is None and type(function).__name__ in ("partial", "UserDefinedFunction"):
            inner = getattr(function, "func", None)
        if inner is None:
            break
        function, seen = inner, seen + 1
    return function


def is_users(function: object) -> bool:
    """Whether it is a function, a method or an object of the user's, not of a library or ours."""
    function = plain(function)
    function = function.__func__ if isinstance(function, types.MethodType) else function
    if not isinstance(function, types.FunctionType):
        function = getattr(type(function), "__call__", None)
    return isinstance(function, types.FunctionType) and is_users_code(function)


def is_users_code(function: types.FunctionType) -> bool:
    file = function.__code__.co_filename
    return (
        not file.startswith(_LIBRARY)
        and not (file.startswith(_HERE) and "/apps/" not in file)
        and not file.startswith("<frozen")
    )


def tree_of(function: types.FunctionType) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node
    lambdas = [each for each in ast.walk(node) if isinstance(each, ast.Lambda)]
    return lambdas[0] if len(lambdas) == 1 else None


def outer_of(function: types.FunctionType) -> Mapping[str, object]:
    """Every name it may mean that is not its own: closures before globals."""
    closed = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # not filled yet
            closed[name] = cell.cell_contents
    return collections.ChainMap(closed, function.__globals__)


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes_of(const)


def mutable_defaults(function: types.FunctionType) -> dict[str, object]:
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    return {
        name: value for name, value in {**defaults, **(function.__kwdefaults__ or {})}.items() if is_container(value)
    }


def is_container(value: object) -> bool:
    return isinstance(value, _CONTAINERS) or kind_of(value) in (
        ("numpy", "ndarray"), ("pandas", "DataFrame"), ("pandas", "Series"),
    )  # fmt: skip


def is_moving(value: object) -> bool:
    return isinstance(value, _MOVING) or kind_of(value) in _MOVING_NAMES


def kind_of(value: object) -> tuple[str, str]:
    module = type(value).__module__
    if module.startswith("numpy.random"):
        return "numpy.random", type(value).__name__
    return module.partition(".")[0], type(value).__name__
