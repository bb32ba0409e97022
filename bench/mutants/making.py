"""Every single change of a module that a tired programmer could make: an edit of its source text, found in its AST.

What cannot change behaviour is left alone: annotations, docstrings, texts of errors (f-strings, the story of an
`invariant`, what `raise` says), decorators, imports, `__all__`, protocols (typing), branches that `assert_never` proves
unreachable. What is left may still be equivalent; only bench/mutants/equivalent.toml says so, with a reason.

A mutant is named by its file, the function it lies in, the line as it was and as it becomes: names that survive
changes elsewhere in the file. Where a function has the same line twice, the second is `function #2`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path

__all__ = ["Mutant", "mutants_of"]

_NEIGHBOUR = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_OPPOSITE = {
    ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_SIGN = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.Pow: "*",
    ast.BitOr: "&",
}
_SWAPPED = {
    "max": "min",
    "min": "max",
    "any": "all",
    "all": "any",
    "sorted": "list",
    "reversed": "list",
    "frozenset": "list",
}
# Members of enums that decide: each becomes the next one.
_ENUMS = {
    "Stage": ("FINAL", "PREPARE", "COMMIT"),
    "Verdict": ("STORED", "MISSING", "REFUSED"),
    "Kind": ("STABLE", "LOST"),
    "Arrival": ("NEW", "DUPLICATE", "GAP"),
}
_TEXTS = {"invariant", "assert_never", "BrokenInvariant", "ProtocolRefused"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit of one module; `source` is the module as it becomes. `is_default`: of a parameter, not in the body."""

    file: str
    within: str
    kind: str
    line_number: int
    line: str
    becomes: str
    source: str
    is_default: bool = False
    nth: int = 1

    @property
    def name(self) -> tuple[str, str, str, str]:
        where = self.within if self.nth == 1 else f"{self.within} #{self.nth}"
        return self.file, where, self.line, self.becomes

    def diff(self, original: str) -> str:
        lines = unified_diff(original.splitlines(), self.source.splitlines(), lineterm="", n=0)
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


class _Edit:
    """Offsets in the text from the line and column (in bytes) that a node has."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def begin(self, node: ast.AST) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.AST) -> int:
        return self.at(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.AST) -> str:
        return self.source[self.begin(node) : self.end(node)]

    def indent(self, node: ast.AST) -> str:
        line = self._lines[node.lineno - 1]
        return line[: len(line) - len(line.lstrip())]


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """In the order of the source; no two with the same result."""
    source = path.read_text()
    tree = ast.parse(source)
    file = path.relative_to(root).as_posix()
    found: dict[str, Mutant] = {}
    for kind, within, begin, end, text in _Finder(source).find(tree):
        changed = source[:begin] + text + source[end:]
        if changed in found or changed == source:
            continue
        first = source.count("\n", 0, begin)
        last = source.count("\n", 0, end)
        was = " ".join(part.strip() for part in source.splitlines()[first : last + 1])
        more = changed.count("\n") - source.count("\n")
        now = " ".join(part.strip() for part in changed.splitlines()[first : last + 1 + more])
        found[changed] = Mutant(file, within, kind, first + 1, was, now, changed, kind == "default")
    seen: Counter[tuple[str, str, str]] = Counter()
    mutants = []
    for mutant in sorted(found.values(), key=lambda m: (m.line_number, m.kind, m.becomes)):
        place = (mutant.within, mutant.line, mutant.becomes)
        seen[place] += 1
        mutants.append(replace(mutant, nth=seen[place]))
    return mutants


_Found = tuple[str, str, int, int, str]


class _Finder:
    def __init__(self, source: str) -> None:
        self._edit = _Edit(source)

    def find(self, tree: ast.Module) -> Iterator[_Found]:
        for node in tree.body:
            yield from self._statement(node, "", None)

    # ---- statements ---------------------------------------------------------------------

    def _body(self, body: Iterable[ast.stmt], within: str, function: ast.FunctionDef | None) -> Iterator[_Found]:
        for node in body:
            yield from self._statement(node, within, function)

    def _statement(self, node: ast.stmt, within: str, function: ast.FunctionDef | None) -> Iterator[_Found]:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Pass():
                return
            case ast.ClassDef(name=name, bases=bases):
                if any(isinstance(base, ast.Name) and base.id in ("Protocol", "Enum") for base in bases):
                    return
                yield from self._body(node.body, name, None)
            case ast.FunctionDef(name=name):
                yield from self._function(node, f"{within}.{name}" if within else name)
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                return
            case ast.Expr(value=ast.Constant()):
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
                return
            case ast.Raise():
                yield self._replace("raise removed", within, node, "pass")
            case ast.Match(subject=subject, cases=cases):
                yield from self._expression(subject, within)
                for case in cases:
                    yield from self._case(case, within, function)
            case ast.If() | ast.While() | ast.For():
                yield from self._compound(node, within, function)
            case _:
                yield from self._simple(node, within, function)

    def _function(self, node: ast.FunctionDef, within: str) -> Iterator[_Found]:
        for default in [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]:
            for _, *rest in self._expression(default, within):
                yield "default", *rest
        first = next((each for each in node.body if not _is_docstring(each)), None)
        if first is None or all(_is_ellipsis(each) or _is_docstring(each) for each in node.body):
            return
        nothing = _nothing(node)
        if nothing is not None and not isinstance(first, (ast.Return, ast.Raise)):
            begin = self._edit.begin(first)
            yield "early return", within, begin, begin, f"{nothing}\n{self._edit.indent(first)}"
        yield from self._body(node.body, within, node)

    def _case(self, case: ast.match_case, within: str, function: ast.FunctionDef | None) -> Iterator[_Found]:
        if isinstance(case.pattern, ast.MatchAs) and any("assert_never" in ast.dump(each) for each in case.body):
            return
        if case.guard is not None:
            yield from self._condition(case.guard, within)
            yield from self._expression(case.guard, within)
        nothing = _nothing(function) if function is not None else None
        if nothing is not None and not (len(case.body) == 1 and isinstance(case.body[0], ast.Return)):
            begin = self._edit.begin(case.body[0])
            yield "case does nothing", within, begin, begin, f"{nothing}\n{self._edit.indent(case.body[0])}"
        yield from self._body(case.body, within, function)

    def _compound(
        self, node: ast.If | ast.While | ast.For, within: str, function: ast.FunctionDef | None
    ) -> Iterator[_Found]:
        if isinstance(node, ast.For):
            yield from self._expression(node.iter, within)
        else:
            yield from self._condition(node.test, within)
            yield from self._expression(node.test, within)
        yield from self._body(node.body, within, function)
        yield from self._body(node.orelse, within, function)

    def _condition(self, test: ast.expr, within: str) -> Iterator[_Found]:
        text = self._edit.text(test)
        walrus = any(isinstance(each, ast.NamedExpr) for each in ast.walk(test))
        if not _has_opposite(test):
            yield self._replace("branches swapped", within, test, f"not ({text})")
        yield self._replace("always", within, test, f"({text}) or True" if walrus else "True")
        yield self._replace("never", within, test, f"({text}) and False" if walrus else "False")

    def _simple(self, node: ast.stmt, within: str, function: ast.FunctionDef | None) -> Iterator[_Found]:
        if _can_go(node, function):
            yield self._replace("statement removed", within, node, "pass")
        match node:
            case ast.Return(value=value) if value is not None:
                yield from self._returned(value, within, function)
                yield from self._expression(value, within)
            case ast.Assign(value=value) | ast.Expr(value=value):
                yield from self._expression(value, within)
            case ast.AugAssign(target=target, op=op, value=value):
                if isinstance(op, (ast.Add, ast.Sub)) and isinstance(value, (ast.Constant, ast.Name)):
                    end = self._edit.begin(value)
                    sign = "-=" if isinstance(op, ast.Add) else "+="
                    yield "arithmetic", within, self._edit.end(target), end, f" {sign} "
                yield from self._expression(value, within)
            case ast.AnnAssign(value=value) if value is not None:
                yield from self._expression(value, within)
            case ast.Delete(targets=targets):
                for target in targets:
                    yield from self._expression(target, within)
            case ast.Continue():
                yield self._replace("continue", within, node, "break")
            case ast.Break():
                yield self._replace("break", within, node, "continue")

    def _returned(self, value: ast.expr, within: str, function: ast.FunctionDef | None) -> Iterator[_Found]:
        if function is None or (isinstance(value, ast.List) and not value.elts):
            return
        kind = _returns(function)
        if kind.startswith("list"):
            yield self._replace("returns nothing", within, value, "[]")
        elif kind == "bool":
            yield self._replace("returns the opposite", within, value, f"not ({self._edit.text(value)})")

    # ---- expressions --------------------------------------------------------------------

    def _expression(self, node: ast.expr | None, within: str) -> Iterator[_Found]:
        if node is None or isinstance(node, ast.JoinedStr):
            return
        children: list[ast.expr] = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        match node:
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                ends = [left, *comparators]
                for i, op in enumerate(ops):
                    begin, end = self._edit.end(ends[i]), self._edit.begin(ends[i + 1])
                    for table in (_NEIGHBOUR, _OPPOSITE):
                        if type(op) in table:
                            between = self._edit.source[begin:end]
                            yield "comparison", within, begin, end, between.replace(_SIGN[type(op)], table[type(op)], 1)
                    if isinstance(ends[i + 1], ast.Constant) and isinstance(ends[i + 1].value, str):
                        yield self._replace("constant", within, ends[i + 1], repr(ends[i + 1].value + "?"))
            case ast.BoolOp(op=op, values=values):
                word = " or " if isinstance(op, ast.And) else " and "
                for i, value in enumerate(values):
                    if i:
                        begin, end = self._edit.end(values[i - 1]), self._edit.begin(value)
                        between = self._edit.source[begin:end]
                        old = "and" if isinstance(op, ast.And) else "or"
                        yield "and/or", within, begin, end, between.replace(old, word.strip(), 1)
                    others = [self._edit.text(each) for each in values if each is not value]
                    joined = (" and " if isinstance(op, ast.And) else " or ").join(f"({each})" for each in others)
                    yield self._replace("condition dropped", within, node, joined)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._replace("not", within, node, f"({self._edit.text(operand)})")
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
                yield self._replace("number", within, node, str(-value + 1))
                yield self._replace("number", within, node, str(-value - 1))
                return
            case ast.Constant(value=bool(value)):
                yield self._replace("constant", within, node, str(not value))
            case ast.Constant(value=int(value)):
                yield self._replace("number", within, node, str(value + 1))
                yield self._replace("number", within, node, f"({value - 1})" if value < 1 else str(value - 1))
            case ast.Constant(value=float(value)):
                yield self._replace("number", within, node, str(value * 2))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                begin, end = self._edit.end(left), self._edit.begin(right)
                old = self._edit.source[begin:end]
                sign = next((s for s in ("//", "**", "+", "-", "*", "%", "|") if s in old), None)
                if sign is not None and not _is_text(node):
                    if not (isinstance(op, ast.Add) and (_is_list(left) or _is_list(right))):
                        yield "arithmetic", within, begin, end, old.replace(sign, _ARITHMETIC[type(op)], 1)
                    if isinstance(op, (ast.Add, ast.Sub, ast.BitOr)) and not _is_number(right):
                        yield self._replace("operand dropped", within, node, self._edit.text(left))
                    if isinstance(op, (ast.Add, ast.BitOr)):
                        yield self._replace("operand dropped", within, node, self._edit.text(right))
            case ast.List(elts=elts, ctx=ast.Load()):
                for i in range(len(elts)):
                    rest = ", ".join(self._edit.text(each) for j, each in enumerate(elts) if j != i)
                    yield self._replace("element dropped", within, node, f"[{rest}]")
            case ast.Dict(keys=keys, values=values):
                yield from self._entries(node, keys, values, within)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yield from self._condition(test, within)
                yield self._replace("branches swapped", within, body, self._edit.text(orelse))
            case ast.Attribute(value=ast.Name(id=enum), attr=member) if member in _ENUMS.get(enum, ()):
                members = _ENUMS[enum]
                other = members[(members.index(member) + 1) % len(members)]
                yield self._replace("constant", within, node, f"{enum}.{other}")
            case ast.Call(func=func, args=args, keywords=keywords):
                yield from self._call(node, within)
                called = func.id if isinstance(func, ast.Name) else ""
                if called in _TEXTS:
                    children = args[:1] if called == "invariant" else []
                elif called == "field":
                    children = []
                else:
                    children = [func, *args, *(each.value for each in keywords if each.arg not in ("slots", "strict"))]
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for generator in node.generators:
                    children += [generator.iter, *generator.ifs]
                    for test in generator.ifs:
                        yield self._replace("always", within, test, "True")
                        if not _has_opposite(test):
                            yield self._replace("branches swapped", within, test, f"not ({self._edit.text(test)})")
            case ast.Subscript(slice=ast.Slice() as cut):
                children += [each for each in (cut.lower, cut.upper, cut.step) if each is not None]
                if cut.lower is not None or cut.upper is not None:
                    yield self._replace("slice dropped", within, node, self._edit.text(node.value))
            case ast.Lambda(body=body):
                children = [body]
        for child in children:
            yield from self._expression(child, within)

    def _entries(
        self, node: ast.Dict, keys: list[ast.expr | None], values: list[ast.expr], within: str
    ) -> Iterator[_Found]:
        for i in range(len(values)):
            rest = ", ".join(
                f"**{self._edit.text(v)}" if k is None else f"{self._edit.text(k)}: {self._edit.text(v)}"
                for j, (k, v) in enumerate(zip(keys, values, strict=True))
                if j != i
            )
            yield self._replace("element dropped", within, node, f"{{{rest}}}")

    def _call(self, node: ast.Call, within: str) -> Iterator[_Found]:
        if not isinstance(node.func, ast.Name):
            return
        name, args = node.func.id, node.args
        if name in _SWAPPED and name not in ("sorted", "reversed", "frozenset"):
            yield self._replace("max/min, any/all", within, node.func, _SWAPPED[name])
        if name in ("sorted", "reversed") and args:
            yield self._replace("order dropped", within, node, f"list({self._edit.text(args[0])})")
        if name == "frozenset" and args:
            yield self._replace("set emptied", within, node, "frozenset()")
        if name in ("max", "min") and len(args) == 2 and not any(isinstance(each, ast.Starred) for each in args):
            for arg in args:
                yield self._replace("bound dropped", within, node, self._edit.text(arg))

    def _replace(self, kind: str, within: str, node: ast.AST, text: str) -> _Found:
        return kind, within, self._edit.begin(node), self._edit.end(node), text


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _returns(function: ast.FunctionDef) -> str:
    return "" if function.returns is None else ast.unparse(function.returns)


def _nothing(function: ast.FunctionDef) -> str | None:
    """The statement that leaves a function with nothing done; None where there is no such value."""
    kind = _returns(function)
    if any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(function)):
        return "return"
    if kind.startswith("list"):
        return "return []"
    if kind == "None" and function.name != "__init__":
        return "return"
    return "return None" if "| None" in kind else None


def _has_opposite(test: ast.expr) -> bool:
    """Whether the change of its operator says the same as swapped branches."""
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _is_list(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.ListComp, ast.Call)) or (
        isinstance(node, ast.Name) and node.id in ("out", "lost", "unpins")
    )


def _can_go(node: ast.stmt, function: ast.FunctionDef | None) -> bool:
    """Whether a program without it still has all its names; a missing one is found by any test."""
    match node:
        case ast.Assign(targets=targets):
            return (
                function is not None
                and function.name != "__init__"
                and all(_is_kept(each, function) for each in targets)
            )
        case ast.AnnAssign() | ast.Return() | ast.Continue() | ast.Break():
            return False
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return False
    return True


def _is_kept(target: ast.expr, function: ast.FunctionDef) -> bool:
    if not isinstance(target, ast.Name):
        return not isinstance(target, ast.Tuple)
    stored = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == target.id]
    arguments = {each.arg for each in [*function.args.args, *function.args.kwonlyargs]}
    return target.id in arguments or sum(isinstance(each.ctx, ast.Store) for each in stored) > 1


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in (node.left, node.right)
    )
