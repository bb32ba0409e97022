"""What a user's function keeps between its calls: globals, closures, defaults, class and function attributes.

A function is called once for many frames, in several os processes, and again after a restart.
What it keeps anywhere but in its declared state is of other frames, or gone. `kept` reads the
source of the function and of the user's functions it reaches, and says what they change that
outlives the call. `graph.watched` looks at the same things before and after a call; it also sees
what was changed under another name.

Memory that cannot change an answer is no finding: `functools.lru_cache` around a function of
its arguments, a module imported late. Neither sees a file the function writes, or a value
inside a library.

Pure: reads source text, nothing else.
"""

from __future__ import annotations

import ast
import dis
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import Finding, OperatorError
from holdfast.graph.functions import (
    codes_of,
    is_container,
    is_moving,
    is_users_code,
    mutable_defaults,
    outer_of,
    plain,
    tree_of,
)
from holdfast.graph.model import Graph

__all__ = ["CHANGES", "check_memory", "kept", "kept_between_frames"]

_EFFECT = "nothing was started, nothing was read"
_WHY = (
    "it is called once for many frames, in several processes, and again after a restart: "
    "what it keeps there is of other frames, or gone"
)
_DO = (
    "keep it where it is part of the frame: the state of a keyed operator; "
    "what is only made once and never changes: in a function with functools.lru_cache"
)
CHANGES = frozenset(
    {
        "append", "appendleft", "add", "update", "extend", "extendleft", "insert", "pop", "popleft", "popitem",
        "remove", "discard", "clear", "setdefault", "sort", "reverse", "rotate", "subtract",
        "difference_update", "intersection_update", "symmetric_difference_update", "__setitem__", "__delitem__",
        "fill", "put", "itemset", "resize",
    }
)  # fmt: skip
_MISSING = object()


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


def kept_between_frames(whose: str, name: str, where: str, effect: str) -> OperatorError:
    """What `Watch` has seen; `whose` is "operator 'name'", or a function that one hands to Spark."""
    what = f"{whose} changed {name!r}, which outlives the call."
    return OperatorError("HF-U070", "KeptBetweenFrames", what, where=where, why=_WHY, effect=effect, do=_DO)


def kept(function: Callable[..., Any]) -> list[Kept]:
    """What the function, and the user's functions it reaches, change that outlives a call."""
    search = _Search()
    search.function(function, {})
    if search.makes_views and search.asks_once is not None:
        search.keeps("remembers what a view of one frame said", *search.asks_once)
    return search.found


class _Search:
    def __init__(self) -> None:
        self.found: list[Kept] = []
        self.makes_views = False
        self.asks_once: tuple[types.FunctionType, int] | None = (
            None  # a function with a cache that asks tables or views
        )
        self._seen: set[Any] = set()

    def function(self, function: object, given: dict[str, object]) -> None:
        """`given`: parameters that hold something which outlives the call."""
        is_cached = hasattr(function, "cache_info")
        function = plain(function)
        if isinstance(function, types.MethodType):
            first = next(iter(function.__code__.co_varnames), "self")
            given, function = {**given, first: function.__self__}, function.__func__
        if not isinstance(function, types.FunctionType):
            call = getattr(type(function), "__call__", None)
            if isinstance(call, types.FunctionType) and is_users_code(call):
                self.function(types.MethodType(call, function), given)
            return
        if (key := (function.__code__, *sorted(given))) in self._seen or not is_users_code(function):
            return
        self._seen.add(key)
        given = {**mutable_defaults(function), **given}
        tree = tree_of(function)
        if tree is not None and is_cached and _asks(tree):
            self.asks_once = function, function.__code__.co_firstlineno
        if tree is None:
            self._by_code(function)
        else:
            _Walk(self, function, given).visit_function(tree)

    def keeps(self, what: str, function: types.FunctionType, line: int) -> None:
        self.found.append(Kept(what, f"{_shown(function.__code__.co_filename)}:{line}"))

    def klass(self, klass: type) -> None:
        """Methods of a class of the user's: what they do to an instance is the instance's, to the class it is not."""
        if klass in self._seen or not any(
            is_users_code(each) for each in vars(klass).values() if isinstance(each, types.FunctionType)
        ):
            return
        self._seen.add(klass)
        if any(base.__name__ == "StatefulProcessor" for base in klass.__mro__[1:]):
            self._processor(klass)
        for each in vars(klass).values():
            if isinstance(each, classmethod):
                self.function(types.MethodType(each.__func__, klass), {})
            elif isinstance(each, types.FunctionType | staticmethod):
                self.function(each, {})

    def _processor(self, klass: type) -> None:
        """One object of it serves all keys of a task and is gone with it: what it keeps itself is of other keys."""
        kept = _Held()
        for name in ("__init__", "init"):
            tree = tree_of(vars(klass)[name]) if isinstance(vars(klass).get(name), types.FunctionType) else None
            for each in ast.walk(tree) if tree is not None else ():
                if isinstance(each, ast.Assign) and _is_new_container(each.value):
                    for target in each.targets:
                        if isinstance(target, ast.Attribute):
                            setattr(kept, target.attr, [])
        for name, each in vars(klass).items():
            if isinstance(each, types.FunctionType) and name not in ("__init__", "init", "close"):
                self.function(types.MethodType(each, kept), {})

    def _by_code(self, function: types.FunctionType) -> None:
        """Typed at a prompt: there is no source, the byte code has to do."""
        outer = outer_of(function)
        for code in codes_of(function.__code__):
            loaded = _MISSING
            for step in dis.get_instructions(code):
                name = str(step.argval)
                line = step.positions.lineno or 0 if step.positions else 0
                if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                    self.keeps(f"assigns global {name!r}", function, line)
                elif step.opname in ("STORE_DEREF", "DELETE_DEREF") and name in function.__code__.co_freevars:
                    self.keeps(f"assigns {name!r} of the function around it", function, line)
                elif step.opname in ("LOAD_METHOD", "LOAD_ATTR") and name in CHANGES and is_container(loaded):
                    self.keeps("changes an object outside it", function, line)
                loaded = outer.get(name, _MISSING) if step.opname in ("LOAD_GLOBAL", "LOAD_DEREF") else _MISSING
        for name in {name for code in codes_of(function.__code__) for name in (*code.co_names, *code.co_freevars)}:
            if isinstance(plain(outer.get(name)), types.FunctionType):
                self.function(outer[name], {})


class _Walk(ast.NodeVisitor):
    """One function with the functions inside it."""

    def __init__(self, search: _Search, function: types.FunctionType, given: dict[str, object]) -> None:
        self._search, self._function, self._given = search, function, given
        self._outer = outer_of(function)
        self._first = function.__code__.co_firstlineno
        self._offset: int | None = None
        self._scopes: list[set[str]] = []
        self._declared: list[set[str]] = []  # by scope: names said to be global, or nonlocal beyond the function

    # ---- scopes ----

    def visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        if self._offset is None:
            self._offset = self._first - min(
                [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]
            )
        body = node.body if isinstance(node.body, list) else [node.body]
        local, said = _names_of(node, [*body])
        if self._scopes:  # inside: what it says to be nonlocal may be the function's own
            own = set().union(*self._scopes)
            declared = {name for name, is_global in said.items() if is_global or name not in own}
        else:
            declared = set(said)
            local -= set(self._given)
        self._scopes.append(local)
        self._declared.append(declared)
        for each in body:
            self.visit(each)
        self._scopes.pop()
        self._declared.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
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
            return (
                vars(type(value)).get(node.attr, _MISSING)
                if not isinstance(value, type | types.ModuleType)
                else _MISSING
            )
        if isinstance(node, ast.Subscript):
            value = self._value(node.value)
            return value if is_container(value) else _MISSING  # what lies in it lies outside too
        return _MISSING

    # ---- what is found ----

    def _keeps(self, what: str, node: ast.stmt | ast.expr) -> None:
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
            self._search.makes_views = self._search.makes_views or node.func.attr in (
                "createTempView",
                "createOrReplaceTempView",
            )
            owner = self._value(node.func.value)
            if is_container(owner) and node.func.attr in CHANGES:
                self._keeps(f"changes {ast.unparse(node.func.value)!r}", node)
            elif owner is not _MISSING:
                self._moves(node.func.value)
                self._method(owner, node.func.attr)
        self.generic_visit(node)

    def _moves(self, node: ast.expr) -> None:
        value = self._value(node)
        if is_moving(value):
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
        elif value is not _MISSING and isinstance(plain(value), types.FunctionType):
            self._search.function(value, {})


def _asks(tree: ast.AST) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr in ("sql", "table") for each in ast.walk(tree))


class _Held:
    """Stands for an object that lives longer than a call."""


def _is_new_container(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return _named(node.func) in ("list", "dict", "set", "Counter", "defaultdict", "deque", "bytearray")
    return isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


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
        elif (isinstance(each, ast.ExceptHandler) and each.name) or (
            isinstance(each, ast.MatchAs | ast.MatchStar) and each.name
        ):
            local.add(each.name)
        waiting += ast.iter_child_nodes(each)
    return local - set(declared), declared


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _shown(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
