"""Whether a function may change what it is handed: read off its source, in doubt it may.

Rows that Spark hands to a function of Python's are lists and dictionaries where a column is an array or a map. A copy
for every row costs as much as a small function; most functions change nothing, and for most the source shows it.

Pure: reads source text through `inspect`, nothing else.
"""

from __future__ import annotations

import ast
import types

from holdfast.graph.functions import tree_of
from holdfast.graph.memory import CHANGES

__all__ = ["may_change"]

# They look at what they are given, and hand it to nobody.
_LOOKS = frozenset(
    {
        "abs", "all", "any", "bool", "dict", "enumerate", "float", "format", "frozenset", "hash", "int", "isinstance", "len",
        "list", "max", "min", "ord", "pow", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip",
    }
)  # fmt: skip
_CHANGES_ITEMS = CHANGES | {
    "sort_values",
    "fillna",
    "drop",
    "rename",
    "set_index",
    "reset_index",
    "replace",
    "where",
    "mask",
}


def may_change(function: object) -> bool:
    """Whether a call may leave an argument other than it was."""
    if not isinstance(function, types.FunctionType):
        return True  # an object with a call of its own, a partial
    tree = tree_of(function)
    if tree is None:
        return True
    walk = _Walk(tree)
    return walk.may


class _Walk(ast.NodeVisitor):
    def __init__(self, tree: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        arguments = tree.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self._held = {each.arg for each in named if each is not None}  # names that are, or hold, something handed in
        self.may = False
        body = tree.body if isinstance(tree.body, list) else [tree.body]
        for _ in range(2):  # a name may be bound below the place where it is used, in a loop
            for each in body:
                self.visit(each)

    def _is_held(self, node: ast.expr) -> bool:
        """A name for what was handed in, or a part of it."""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._held

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        holds = any(isinstance(each, ast.Name) and each.id in self._held for each in ast.walk(value))
        for each in ast.walk(target):
            if (
                isinstance(each, ast.Name)
                and isinstance(each.ctx, ast.Store)
                and holds
                and not isinstance(value, ast.BinOp | ast.Compare)
            ):
                self._held.add(each.id)
        if isinstance(target, ast.Attribute | ast.Subscript) and self._is_held(target):
            self.may = True

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.may = self.may or self._is_held(node.target)  # a list grows in place
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self.may = self.may or any(self._is_held(each) and not isinstance(each, ast.Name) for each in node.targets)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and self._is_held(function.value):
            self.may = self.may or function.attr in _CHANGES_ITEMS
        looks = isinstance(function, ast.Name) and function.id in _LOOKS
        if not looks and any(
            self._is_held(each) for each in (*node.args, *(keyword.value for keyword in node.keywords))
        ):
            self.may = True  # whoever gets it may change it
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.may = True  # what an inner function does, and when, is not followed

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.may = self.may or any(isinstance(each, ast.Name) and each.id in self._held for each in ast.walk(node.body))

    def visit_With(self, node: ast.With) -> None:
        self.may = True

    def visit_Match(self, node: ast.Match) -> None:
        self.may = True
