"""What a user's function keeps between its calls: globals, closures, defaults, class and function attributes.

A function is called once for many frames, in several os processes, and again after a restart.
What it keeps anywhere but in its declared state is of other frames, or gone. `kept` reads the
source of the function and of the user's functions it reaches, and says what they change that
outlives the call. `Watch` looks at the same things before and after a call; it also sees what
was changed under another name.

Memory that cannot change an answer is no finding: `functools.lru_cache` around a function of
its arguments, a module imported late. Neither sees a file the function writes, or a value
inside a library.

Pure: reads source text through `inspect`, nothing else.
"""

from __future__ import annotations

import array
import ast
import collections
import contextlib
import dis
import inspect
import itertools
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import Finding, OperatorError
from holdfast.graph.model import Graph

__all__ = ["Watch", "check_memory", "kept", "kept_between_frames"]

_EFFECT = "nothing was started, nothing was read"
_WHY = (
    "it is called once for many frames, in several processes, and again after a restart: "
    "what it keeps there is of other frames, or gone"
)
_DO = (
    "keep it where it is part of the frame: the state of a keyed operator; "
    "what is only made once and never changes: in a function with functools.lru_cache"
)
_CONTAINERS = (list, dict, set, bytearray, collections.deque, array.array)
_CHANGES = frozenset(
    {
        "append", "appendleft", "add", "update", "extend", "extendleft", "insert", "pop", "popleft", "popitem",
        "remove", "discard", "clear", "setdefault", "sort", "reverse", "rotate", "subtract",
        "difference_update", "intersection_update", "symmetric_difference_update", "__setitem__", "__delitem__",
        "fill", "put", "itemset", "resize",
    }
)  # fmt: skip
# Each call gives another value than the one before.
_MOVING = (types.GeneratorType, itertools.count, itertools.cycle, itertools.accumulate)
_MOVING_NAMES = frozenset({("random", "Random"), ("random", "SystemRandom"), ("numpy.random", "Generator"), ("numpy.random", "RandomState")})
_LIBRARY = tuple({sysconfig.get_paths()[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")})
_HERE = str(Path(__file__).resolve().parents[1])
_MISSING = object()
# Larger ones are compared by their size: a look-up table of a million entries is not walked for every frame.
_WALKED_MAX = 1000
_DEPTH_MAX = 4


@dataclass(frozen=True, slots=True)
class Kept:
    what: str  # "changes global 'seen'"
    where: str  # file:line


def check_memory(graph: Graph) -> Iterator[Finding]:
    for operator in graph.operators:
        if operator.function is None or operator.kind not in ("frame", "stream", "keyed"):
            continue
        for found in kept(operator.function)[:1]:
            yield Finding(
                "HF-G040",
                "KeepsBetweenFrames",
                f"operator {operator.name!r} {found.what}, which outlives the call.",
                where=f"{found.where}, operator {operator.name!r}",
                why=_WHY,
                effect=_EFFECT,
                do=_DO,
            )


def kept_between_frames(operator: str, name: str, where: str, effect: str) -> OperatorError:
    """What `Watch` has seen."""
    what = f"operator {operator!r} changed {name!r}, which outlives the call."
    return OperatorError("HF-U070", "KeptBetweenFrames", what, where=where, why=_WHY, effect=effect, do=_DO)


def kept(function: Callable[..., Any]) -> list[Kept]:
    """What the function, and the user's functions it reaches, change that outlives a call."""
    search = _Search()
    search.function(function, {})
    return search.found


class _Search:
    def __init__(self) -> None:
        self.found: list[Kept] = []
        self._seen: set[Any] = set()

    def function(self, function: object, given: dict[str, object]) -> None:
        """`given`: parameters that hold something which outlives the call."""
        function = _plain(function)
        if isinstance(function, types.MethodType):
            first = next(iter(function.__code__.co_varnames), "self")
            given, function = {**given, first: function.__self__}, function.__func__
        if not isinstance(function, types.FunctionType):
            call = getattr(type(function), "__call__", None)
            if isinstance(call, types.FunctionType) and _is_users(call):
                self.function(types.MethodType(call, function), given)
            return
        if (key := (function.__code__, *sorted(given))) in self._seen or not _is_users(function):
            return
        self._seen.add(key)
        given = {**_mutable_defaults(function), **given}
        tree = _tree(function)
        if tree is None:
            self._by_code(function)
        else:
            _Walk(self, function, given).visit_function(tree)

    def keeps(self, what: str, function: types.FunctionType, line: int) -> None:
        self.found.append(Kept(what, f"{_shown(function.__code__.co_filename)}:{line}"))

    def klass(self, klass: type) -> None:
        """Methods of a class of the user's: what they do to an instance is the instance's, to the class it is not."""
        if klass in self._seen or not any(_is_users(each) for each in vars(klass).values() if isinstance(each, types.FunctionType)):
            return
        self._seen.add(klass)
        for each in vars(klass).values():
            if isinstance(each, classmethod):
                self.function(types.MethodType(each.__func__, klass), {})
            elif isinstance(each, types.FunctionType | staticmethod):
                self.function(each, {})

    def _by_code(self, function: types.FunctionType) -> None:
        """Typed at a prompt: there is no source, the byte code has to do."""
        outer = _outer(function)
        for code in _codes(function.__code__):
            loaded = _MISSING
            for step in dis.get_instructions(code):
                name = str(step.argval)
                line = step.positions.lineno or 0 if step.positions else 0
                if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                    self.keeps(f"assigns global {name!r}", function, line)
                elif step.opname in ("STORE_DEREF", "DELETE_DEREF") and name in function.__code__.co_freevars:
                    self.keeps(f"assigns {name!r} of the function around it", function, line)
                elif step.opname in ("LOAD_METHOD", "LOAD_ATTR") and name in _CHANGES and _is_container(loaded):
                    self.keeps("changes an object outside it", function, line)
                loaded = outer.get(name, _MISSING) if step.opname in ("LOAD_GLOBAL", "LOAD_DEREF") else _MISSING
        for name in {name for code in _codes(function.__code__) for name in (*code.co_names, *code.co_freevars)}:
            if isinstance(_plain(outer.get(name)), types.FunctionType):
                self.function(outer[name], {})


class _Walk(ast.NodeVisitor):
    """One function with the functions inside it."""

    def __init__(self, search: _Search, function: types.FunctionType, given: dict[str, object]) -> None:
        self._search, self._function, self._given = search, function, given
        self._outer = _outer(function)
        self._first = function.__code__.co_firstlineno
        self._offset: int | None = None
        self._scopes: list[set[str]] = []
        self._declared: list[set[str]] = []  # by scope: names said to be global, or nonlocal beyond the function

    # ---- scopes ----

    def visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        if self._offset is None:
            self._offset = self._first - min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        body = node.body if isinstance(node.body, list) else [node.body]
        local, declared = _names_of(node, body)
        if self._scopes:  # inside: what it says to be nonlocal may be the function's own
            own = set().union(*self._scopes)
            declared = {name for name, is_global in declared.items() if is_global or name not in own}
        else:
            declared = set(declared)
            local -= set(self._given)
        self._scopes.append(local)
        self._declared.append(declared)
        for each in body:
            self.visit(each)
        self._scopes.pop()
        self._declared.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for each in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(each)
        self.visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_function(node)

    def _value(self, node: ast.expr) -> object:
        """What a name or a chain of attributes stands for, if it lies outside the call."""
        if isinstance(node, ast.Name):
            if any(node.id in scope for scope in self._scopes) and node.id not in self._declared[-1]:
                return _MISSING
            return self._given.get(node.id, self._outer.get(node.id, _MISSING))
        if isinstance(node, ast.Attribute):
            value = self._value(node.value)
            if value is _MISSING:
                return _MISSING
            own = vars(value) if hasattr(value, "__dict__") else {}
            if node.attr in own:
                return own[node.attr]
            return vars(type(value)).get(node.attr, _MISSING) if not isinstance(value, type | types.ModuleType) else _MISSING
        if isinstance(node, ast.Subscript):
            value = self._value(node.value)
            return value if _is_container(value) else _MISSING  # what lies in it lies outside too
        return _MISSING

    # ---- what is found ----

    def _keeps(self, what: str, node: ast.AST) -> None:
        self._search.keeps(what, self._function, node.lineno + (self._offset or 0))

    def _assigned(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._assigned(each)
        elif isinstance(target, ast.Starred):
            self._assigned(target.value)
        elif isinstance(target, ast.Name):
            if target.id in self._declared[-1]:
                self._keeps(f"assigns {target.id!r}", target)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            value = self._value(_root(target))
            if isinstance(target.value, ast.Call) and _named(target.value.func) == "globals":
                self._keeps("assigns a global", target)
            elif value is not _MISSING:
                self._keeps(f"changes {ast.unparse(target.value)!r}", target)

    def visit_Assign(self, node: ast.Assign) -> None:
        for each in node.targets:
            self._assigned(each)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assigned(node.target)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned(node.target)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        for each in node.targets:
            self._assigned(each)

    def visit_For(self, node: ast.For) -> None:
        self._assigned(node.target)
        self._moves(node.iter)
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._assigned(node.optional_vars)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assigned(node.target)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _named(node.func)
        if name in ("setattr", "delattr") and node.args and self._value(node.args[0]) is not _MISSING:
            self._keeps(f"changes {ast.unparse(node.args[0])!r}", node)
        elif name == "next" and node.args:
            self._moves(node.args[0])
        elif isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value)
            if _is_container(owner) and node.func.attr in _CHANGES:
                self._keeps(f"changes {ast.unparse(node.func.value)!r}", node)
            elif owner is not _MISSING:
                self._moves(node.func.value)
                self._method(owner, node.func.attr)
        self.generic_visit(node)

    def _moves(self, node: ast.expr) -> None:
        value = self._value(node)
        if _is_moving(value):
            self._keeps(f"draws from {ast.unparse(node)!r}, which moves on with every call", node)

    def _method(self, owner: object, name: str) -> None:
        method = getattr(type(owner), name, None)
        if isinstance(method, types.FunctionType) and not isinstance(owner, type | types.ModuleType):
            self._search.function(types.MethodType(method, owner), {})

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._reached(self._value(node))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self._reached(self._value(node))
        self.generic_visit(node)

    def _reached(self, value: object) -> None:
        if isinstance(value, type):
            self._search.klass(value)
        elif value is not _MISSING and isinstance(_plain(value), types.FunctionType):
            self._search.function(value, {})


def _plain(function: object) -> object:
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


def _is_users(function: types.FunctionType) -> bool:
    file = function.__code__.co_filename
    return not file.startswith(_LIBRARY) and not (file.startswith(_HERE) and "/apps/" not in file) and not file.startswith("<frozen")


def _tree(function: types.FunctionType) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node
    lambdas = [each for each in ast.walk(node) if isinstance(each, ast.Lambda)]
    return lambdas[0] if len(lambdas) == 1 else None


def _outer(function: types.FunctionType) -> Mapping[str, object]:
    """Every name it may mean that is not its own: closures before globals."""
    closed = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # not filled yet
            closed[name] = cell.cell_contents
    return collections.ChainMap(closed, function.__globals__)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def _mutable_defaults(function: types.FunctionType) -> dict[str, object]:
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    return {name: value for name, value in {**defaults, **(function.__kwdefaults__ or {})}.items() if _is_container(value)}


def _names_of(node: Any, body: list[ast.AST]) -> tuple[set[str], dict[str, bool]]:
    """Names a function makes its own; those it declares to be others', and whether as global."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    local = {each.arg for each in named if each is not None}
    declared: dict[str, bool] = {}
    waiting = list(body)
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            local.add(each.name)
            continue
        if isinstance(each, ast.Lambda):
            continue
        if isinstance(each, ast.Global | ast.Nonlocal):
            declared |= dict.fromkeys(each.names, isinstance(each, ast.Global))
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            local.add(each.id)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            local |= {(alias.asname or alias.name).split(".")[0] for alias in each.names}
        elif isinstance(each, ast.ExceptHandler) and each.name:
            local.add(each.name)
        elif isinstance(each, ast.MatchAs | ast.MatchStar) and each.name:
            local.add(each.name)
        waiting += ast.iter_child_nodes(each)
    return local - set(declared), declared


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_container(value: object) -> bool:
    return isinstance(value, _CONTAINERS) or _kind(value) in (
        ("numpy", "ndarray"), ("pandas", "DataFrame"), ("pandas", "Series"),
    )  # fmt: skip


def _is_moving(value: object) -> bool:
    return isinstance(value, _MOVING) or _kind(value) in _MOVING_NAMES


def _kind(value: object) -> tuple[str, str]:
    module = type(value).__module__
    if module.startswith("numpy.random"):
        return "numpy.random", type(value).__name__
    return module.partition(".")[0], type(value).__name__


def _shown(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


class Watch:
    """What a function refers to and could change, compared before and after a call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._roots: dict[str, object] = {}
        self._gather(_plain(function), "", set())

    def _gather(self, function: object, of: str, seen: set[int]) -> None:
        if isinstance(function, types.MethodType):
            self._roots[f"{of}self"] = function.__self__
            function = function.__func__
        if not isinstance(function, types.FunctionType):
            if not isinstance(function, type | types.ModuleType) and hasattr(function, "__dict__"):
                self._roots[f"{of}self"] = function
            return
        if id(function) in seen or not _is_users(function):
            return
        seen.add(id(function))
        outer = _outer(function)
        used = {name for code in _codes(function.__code__) for name in (*code.co_names, *code.co_freevars)}
        values = {name: outer[name] for name in used if name in outer} | _mutable_defaults(function)
        self._roots[f"{of}{function.__name__}"] = function.__dict__
        for name, value in values.items():
            if _is_container(value) or _is_moving(value) or self._is_users_own(value):
                self._roots[f"{of}{name}"] = value
            elif isinstance(value, type) and self._is_users_own(value):
                self._roots[f"{of}{name}"] = value
            elif isinstance(_plain(value), types.FunctionType):
                self._gather(_plain(value), f"{name}: ", seen)
            elif value is None or isinstance(value, bool | int | float | str | bytes | tuple | frozenset):
                self._roots[f"{of}{name}"] = (function, name)

    @staticmethod
    def _is_users_own(value: object) -> bool:
        kind = value if isinstance(value, type) else type(value)
        return any(isinstance(each, types.FunctionType) and _is_users(each) for each in vars(kind).values())

    def look(self) -> dict[str, object]:
        return {name: _shape(self._now(value), 0) for name, value in self._roots.items()}

    @staticmethod
    def _now(value: object) -> object:
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], types.FunctionType):
            return _outer_one(value[0], value[1])
        return value

    def changed(self, before: dict[str, object]) -> str | None:
        """The first name whose value is another one than before."""
        after = self.look()
        return next((name for name, value in before.items() if after.get(name) != value), None)


def _outer_one(function: types.FunctionType, name: str) -> object:
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return None
    return function.__globals__.get(name)


def _shape(value: object, depth: int) -> object:
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
    if _kind(value) == ("random", "Random"):
        return "random", value.getstate()
    if isinstance(value, itertools.count):
        return "count", repr(value)
    if _kind(value) == ("numpy", "ndarray"):
        return "array", value.shape, value.tobytes() if value.nbytes <= 8 * _WALKED_MAX and value.dtype != object else None
    if isinstance(value, type):
        return id(value), tuple(
            (name, _shape(each, depth + 1))
            for name, each in vars(value).items()
            if not name.startswith("__") and not callable(each) and not isinstance(each, classmethod | staticmethod | property)
        )
    if hasattr(value, "__dict__") and Watch._is_users_own(value):
        return id(value), tuple((name, _shape(each, depth + 1)) for name, each in vars(value).items())
    return id(value)
