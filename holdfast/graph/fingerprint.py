"""What decides an operator's state and output, as one short hash.

A resumed run compares the fingerprints it finds with the ones it has: an operator
whose code, options or wiring changed cannot silently continue with old state. Comments,
blank lines, docstrings, annotations and decorators do not count; constants, defaults,
closures and functions of the same file that it calls do.

Pure: reads source text through `inspect`, nothing else.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.graph.model import Operator
from holdfast.graph.schemas import Schema

__all__ = ["fingerprint", "function_text"]


def fingerprint(operator: Operator) -> str:
    """32 hex digits."""
    content = {
        "name": operator.name,
        "kind": operator.kind,
        "inputs": [
            [edge.port, edge.stream, edge.feedback_frames, edge.schema.ddl if edge.schema else None]
            for edge in operator.inputs
        ],
        "outputs": list(operator.outputs),
        "params": list(operator.params),
        "options": _plain(operator.options),
        "function": None if operator.function is None else function_text(operator.function),
    }
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def function_text(function: Callable[..., Any]) -> list[Any]:
    """The function and the functions of its file that it reaches, each as a syntax tree and its constants."""
    return _described(inspect.unwrap(function), {})


def _described(function: Callable[..., Any], seen: dict[int, int]) -> list[Any]:
    code = getattr(function, "__code__", None)
    if code is None:
        return ["object", type(function).__qualname__, _constant(getattr(function, "__dict__", {}), seen, {})]
    seen[id(function)] = len(seen)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    closure = {name: _cell(cell) for name, cell in cells}
    used = {name: function.__globals__[name] for name in sorted(_names(code)) if name in function.__globals__}
    home = function.__globals__
    return [
        _tree(function),
        [_constant(value, seen, home) for value in function.__defaults__ or ()],
        {k: _constant(v, seen, home) for k, v in sorted((function.__kwdefaults__ or {}).items())},
        {k: _constant(v, seen, home) for k, v in sorted((closure | used).items())},
    ]


def _cell(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _names(code: types.CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*(_names(each) for each in inner))


def _tree(function: Callable[..., Any]) -> object:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        # Typed at a prompt: there is no source, the byte code has to do.
        return ["code", function.__code__.co_code.hex(), _consts(function.__code__)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.decorator_list, node.returns = [], None
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                argument.annotation = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _has_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree, annotate_fields=False)


def _has_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    first = node.body[0]
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _consts(code: types.CodeType) -> list[str]:
    return [str(_consts(const)) if isinstance(const, types.CodeType) else repr(const) for const in code.co_consts]


def _constant(value: object, seen: dict[int, int], home: Mapping[str, object]) -> object:
    """What of a value may go into a hash: nothing that holds an address."""
    if isinstance(value, types.ModuleType):
        return ["module", value.__name__]
    if isinstance(value, types.FunctionType):
        if value.__globals__ is not home:
            return ["from", value.__module__, value.__qualname__]
        return ["again", seen[id(value)]] if id(value) in seen else _described(value, seen)
    if isinstance(value, type):
        return ["class", value.__module__.rpartition(".")[2], value.__qualname__]
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(_constant(each, seen, home) for each in value)]
    if isinstance(value, set | frozenset):
        return ["set", *sorted(json.dumps(_constant(each, seen, home)) for each in value)]
    if isinstance(value, Mapping):
        return [[repr(key), _constant(each, seen, home)] for key, each in value.items()]
    return ["object", type(value).__qualname__]


def _plain(value: object) -> object:
    """Options as JSON: schemas by their text, orders kept."""
    if isinstance(value, Schema):
        return value.ddl
    if isinstance(value, Mapping):
        return [[str(key), _plain(each)] for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
