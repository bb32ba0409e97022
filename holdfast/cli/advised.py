"""What `holdfast advise` says, and how it puts its protections into the process's file.

Only protections that the file can declare are considered. Writing changes no other line: statements `NAME.protect(...)` are
replaced by those of the plan, after the last of them or after the last operator. Operators that carry `protect=` themselves
are left to the person: such a file is refused.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.atomic import write_whole
from holdfast.cli.predicted import percent
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.models.advising import Advice, Considered
    from holdfast.models.options import Option
    from holdfast.models.predicting import Promise
    from holdfast.models.stream import StreamModel

__all__ = ["advice_fields", "advice_lines", "changed", "declarable", "written"]


def declarable(model: StreamModel) -> list[Option]:
    """What this version of Holdfast lets a file declare."""
    import holdfast as hf
    from holdfast.models.options import options_for

    skips = "behind" in inspect.signature(hf.checkpoint).parameters
    copies = [("", 1)]
    if hasattr(hf, "ha"):
        copies.append(("ha", 2))
    if hasattr(hf, "replicate"):
        copies += [("replicate", 2), ("replicate", 3)]
    every = sorted({max(model.frame_s, each) for each in (1.0, 5.0, 30.0)})
    return options_for(model, every_s=every, copies=copies, skips=skips)


def advice_lines(advice: Advice) -> list[str]:
    if advice.chosen is None:
        return [f"no plan keeps all promises (of {advice.plans:,} plans)", *(f"  {line}" for line in _cannot(advice))]
    chosen = advice.chosen
    lines = [f"cheapest that keeps all promises (of {advice.plans:,} plans; checked by simulation)"]
    width = max(len(unit) for unit in chosen.options)
    for unit, option in chosen.options.items():
        if unit in advice.buys:
            buys = ", ".join(
                f"{percent(value)} less {promise.share}" for promise, value in advice.buys[unit].items() if value > 1e-9
            )
            more = _unit_cost(advice, unit)
            lines.append(f"  {unit:<{width}}  {option!s:<34} {more}   buys {buys or 'nothing that is promised'}")
    others = [unit for unit in chosen.options if unit not in advice.buys]
    if others:
        lines.append(f"  {', '.join(others)}: none")
    kept = [
        f"{promise.share} {percent(found.mean)} of {percent(promise.at_most)}" for promise, found in _promised(chosen)
    ]
    lines.append(
        f"  costs {advice.times(chosen.cost):.3f}x CPU, {chosen.cost.bytes / 1000:,.1f} kB/s   {', '.join(kept) or 'nothing is promised'}"
    )
    for each in advice.cheaper[:2]:
        lines.append(
            f"cheaper and not enough: {_differs(chosen, each)} ({advice.times(each.cost):.3f}x CPU): {_breaks(each)}"
        )
    for each in advice.next_best[:1]:
        said = _breaks(each) if each.broken else "keeps all promises too"
        lines.append(f"next: {_differs(chosen, each)} ({advice.times(each.cost):.3f}x CPU): {said}")
    for promise, share in advice.saves.items():
        name = advice.model.outputs[promise.output].operator
        lines.append(f"if {promise.share} of {name} might be 10 % more: {percent(share)} of the cost is saved")
    if not advice.saves and _promised(chosen):
        lines.append("no promise is in the way of a cheaper plan by 10 %")
    return lines


def _promised(considered: Considered) -> list[tuple[Promise, Any]]:
    from holdfast.models.predicting import promises_of

    prediction = considered.prediction
    return [(promise, prediction.found(promise)) for promise in promises_of(prediction.model)]


def _unit_cost(advice: Advice, unit: str) -> str:
    from holdfast.models.options import Option, Prices, blocks_of, cost_of

    units = blocks_of(advice.model)[unit]
    now = cost_of(advice.model, units, advice.chosen.options[unit], Prices())
    plain = cost_of(advice.model, units, Option(), Prices())
    share = (now.cpu - plain.cpu) / advice.base.cpu if advice.base.cpu else 0.0
    return f"+{percent(share)} CPU, {now.bytes / 1000:,.1f} kB/s"


def _differs(chosen: Considered, other: Considered) -> str:
    return ", ".join(f"{unit} {option}" for unit, option in other.options.items() if option != chosen.options[unit])


def _breaks(considered: Considered) -> str:
    outputs = considered.prediction.model.outputs
    return "; ".join(
        f"{promise.share} of {outputs[promise.output].operator} {percent(value)}, promised {percent(promise.at_most)}"
        for promise, value in considered.broken
    )


def _cannot(advice: Advice) -> list[str]:
    found = []
    for each in advice.cannot:
        if each.promise is None:
            unit = "x CPU" if each.what == "cpu" else " bytes a second"
            found.append(
                f"{each.what} <= {each.bound:.4g}{unit} is not enough: the nearest plan needs {each.best:.4g}{unit}"
            )
            continue
        more = each.best - each.bound
        alone = "with any protection" if each.alone else "beside the other bounds"
        if each.promise.share == "late" and advice.model.faults:
            longest = max(advice.model.faults, key=lambda fault: fault.repair_s)
            alone += f" ({longest.kind}: recovery takes {longest.repair_s:g} s here)"
        found.append(
            f"{each.what}: promised {percent(each.bound)}, at best {percent(each.best)} {alone}: {percent(more)} too much"
        )
    return found


def advice_fields(advice: Advice) -> dict[str, Any]:
    def plan(considered: Considered) -> dict[str, Any]:
        return {
            "options": {unit: str(option) for unit, option in considered.options.items()},
            "cpu": advice.times(considered.cost),
            "bytes": considered.cost.bytes,
            "broken": [
                {"share": promise.share, "output": promise.output, "found": value}
                for promise, value in considered.broken
            ],
        }

    return {
        "process": advice.model.name,
        "plans": advice.plans,
        "chosen": None if advice.chosen is None else plan(advice.chosen),
        "next": [plan(each) for each in advice.next_best],
        "cheaper": [plan(each) for each in advice.cheaper],
        "saves": [
            {"share": promise.share, "output": promise.output, "cost": share} for promise, share in advice.saves.items()
        ],
        "cannot": [{"what": each.what, "bound": each.bound, "best": each.best} for each in advice.cannot],
    }


# -- into the file -----------------------------------------------------------------


def written(path: Path, model: StreamModel, advice: Advice) -> str:
    """Change the file; the difference, as `diff -u` shows it."""
    before = path.read_text(encoding="utf-8")
    after = changed(before, model, advice.chosen.options, str(path))
    if after != before:
        write_whole(path, after.encode())
    return "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(path), str(path)))


def changed(text: str, model: StreamModel, options: Mapping[str, Option], where: str) -> str:
    tree = ast.parse(text)
    name = _variable(tree, model.name)
    if name is None:
        raise _not_written(
            where, f"no line NAME = hf.StreamProcess({model.name!r}, ...) was found at the top of the file"
        )
    own = [
        call
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and any(each.arg == "protect" for each in call.keywords)
    ]
    if own:
        raise _not_written(where, f"line {own[0].lineno} declares protect= at an operator itself")
    calls = [node for node in tree.body if isinstance(node, ast.Expr) and _method(node.value, name)]
    old = [node for node in calls if _method(node.value, name) == "protect"]
    others: list[ast.stmt] = [node for node in calls if _method(node.value, name) not in ("protect", "sink")]
    # Operators by decorator are functions.
    others += [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(_method(each, name) for each in node.decorator_list)
    ]
    place = max((node.end_lineno for node in old or others), default=None)
    if place is None:
        raise _not_written(where, "no operator is declared at the top of the file")
    lines = text.splitlines(True)
    gone = {number for node in old for number in range(node.lineno, node.end_lineno + 1)}
    kept = [line for number, line in enumerate(lines[:place], 1) if number not in gone]
    return "".join([*kept, *_declarations(name, model, options), *lines[place:]])


def _declarations(name: str, model: StreamModel, options: Mapping[str, Option]) -> list[str]:
    by_word: dict[str, list[str]] = {}
    # Plain ecoc is refused on a cycle; extended is the same elsewhere.
    extended = ", extended=True" if any(note.startswith("feedback of") for note in model.notes) else ""
    for unit, option in options.items():
        if option.n > 1 or option.protect.behind_s != float("inf"):
            continue  # not declarable by protect(): never chosen where the file cannot say it
        protect = option.protect
        more = extended if protect.kind == "ecoc" else ""
        word = "hf.none" if protect.kind == "none" else f'hf.{protect.kind}(every="{protect.every_s:g} seconds"{more})'
        by_word.setdefault(word, []).extend(dict.fromkeys(each.partition(".")[0] for each in model.units[unit]))
    if len(by_word) == 1:
        return [f"{name}.protect({word})\n" for word in by_word]
    return [
        f"{name}.protect({word}, {', '.join(repr(each) for each in names)})\n".replace("'", '"')
        for word, names in by_word.items()
    ]


def _variable(tree: ast.Module, process: str) -> str | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            called, given = node.value.func, node.value.args
            is_process = (
                called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            ) == "StreamProcess"
            if is_process and given and isinstance(given[0], ast.Constant) and given[0].value == process:
                return node.targets[0].id
    return None


def _method(node: ast.expr, name: str) -> str:
    """'filter' of `ward.filter(...)` or `ward.filter`."""
    called = node.func if isinstance(node, ast.Call) else node
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == name:
        return called.attr
    return ""


def _not_written(where: str, why: str) -> UsageError:
    return UsageError(
        "HF-M005",
        "AdviceNotWritten",
        "the protections cannot be put into the file.",
        where=where,
        why=why,
        effect="the file was not changed",
        do="put them in by hand: holdfast advise without --write says which",
    )
