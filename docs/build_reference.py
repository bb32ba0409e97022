"""Builds reference.md from the docstrings of the public face; `--check` only compares.

Public is what `holdfast.__all__`, `hf.read`, `hf.write` and `holdfast.testing` name, and
what a user does with a process and a run. The shell's part is what `--help` says.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

HEAD = """# Reference

Built from the docstrings by `docs/build_reference.py`; a test keeps it current. `import holdfast as hf` throughout.
"""


def text_of(thing: Any) -> str:
    found = inspect.getdoc(thing) or ""
    # Of a dataclass without words of its own Python says its signature, which stands above.
    return "" if found.startswith(f"{getattr(thing, '__name__', '')}(") else found


def signature_of(thing: Any) -> str:
    try:
        found = inspect.signature(thing, eval_str=False)
    except (TypeError, ValueError):
        return ""
    parameters = [each for each in found.parameters.values() if each.name != "self"]
    shown = []
    starred = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred = starred or each.kind is each.VAR_POSITIONAL
        mark = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f"={_plain(each.default)}"
        shown.append(f"{mark}{each.name}{default}")
    return f"({', '.join(shown)})"


def _plain(value: Any) -> str:
    text = repr(value)
    return "..." if " at 0x" in text or len(text) > 40 else text


# Constants have no docstring of their own, and that of their class says something more general.
VALUES = {
    "hf.lossless": "Nothing is missing and nothing is wrong.",
    "hf.none": "No protection: a unit's state is on this host alone.",
}


def entry(name: str, thing: Any, level: int = 3) -> str:
    if not callable(thing):
        return f"{'#' * level} `{name}`\n\n{VALUES.get(name) or text_of(type(thing))}\n"
    return f"{'#' * level} `{name}{signature_of(thing)}`\n\n{text_of(thing)}\n"


# Of a run: called by those who start it.
INTERNAL = {"activate", "keep", "release"}


def public_methods(kind: type) -> list[tuple[str, Any]]:
    """Its own first, then those of the classes it is made of."""
    found: dict[str, Any] = {}
    for each in kind.__mro__:
        for name, thing in vars(each).items() if each.__module__.startswith("holdfast.") else ():
            if name.startswith("_") or name in INTERNAL or name in found:
                continue
            if inspect.isfunction(thing) or isinstance(thing, property):
                found[name] = thing
    return list(found.items())


def class_part(name: str, kind: type, *, is_made: bool = True) -> list[str]:
    """`is_made`: by users; of the others nobody needs the arguments."""
    parts = [entry(name, kind) if is_made else f"### `{name}`\n\n{text_of(kind)}\n"]
    for method, thing in public_methods(kind):
        if isinstance(thing, property):
            parts.append(f"#### `.{method}`\n\n{text_of(thing)}\n")
        else:
            parts.append(entry(f".{method}", thing, 4))
    return parts


def commands() -> list[str]:
    import typer

    from holdfast.cli.main import app

    parts = []
    root = typer.main.get_command(app)

    def visit(command: Any, words: str) -> None:
        inner = getattr(command, "commands", None)
        if inner:
            for name, each in inner.items():
                visit(each, f"{words} {name}")
            return
        lines = [f"### `{words}`\n", f"{(command.help or '').strip()}\n"]
        for option in command.params:
            if getattr(option, "hidden", False):  # a word of an earlier version, which is answered with the new one
                continue
            names = f"`{option.metavar or option.name.upper()}`"
            if option.param_type_name == "option":
                names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
            if names != "`--help`":
                lines.append(f"- {names}: {option.help or ''}".rstrip(": "))
        parts.append("\n".join(lines) + "\n")

    visit(root, "holdfast")
    return parts


def build() -> str:
    import holdfast as hf
    from holdfast import testing
    from holdfast.graph import protections

    parts = [HEAD, "## A process\n", *class_part("hf.StreamProcess", hf.StreamProcess)]
    parts += ["## A run\n", *class_part("hf.Run", hf.Run, is_made=False)]
    answers = [
        name
        for name in hf.__all__
        if dataclasses.is_dataclass(getattr(hf, name)) and isinstance(getattr(hf, name), type)
    ]
    parts.append("## What is answered\n\nTyped objects; what the shell prints with `--json` has the same fields.\n")
    parts += [fields_part(f"hf.{name}", getattr(hf, name)) for name in answers]
    parts.append("## Words for declarations\n")
    skipped = {"StreamProcess", "Run", "read", "write", "__version__", *answers}
    # `hf.frames` is a package that can be called; its words are those of the function behind it.
    words = {name: getattr(hf, name) for name in hf.__all__ if name not in skipped} | {"frames": protections.frames}
    parts += [entry(f"hf.{name}", thing) for name, thing in words.items()]
    for title, module, prefix in (
        ("Sources", hf.read, "hf.read"),
        ("Sinks", hf.write, "hf.write"),
        ("Testing", testing, "holdfast.testing"),
    ):
        parts.append(f"## {title}\n")
        parts += [entry(f"{prefix}.{name}", getattr(module, name)) for name in module.__all__]
    parts += ["## The shell\n", *commands()]
    text = "\n".join(part.rstrip() + "\n" for part in parts)
    return re.sub(r"\n{3,}", "\n\n", text)


def fields_part(called: str, kind: type) -> str:
    """The fields of a typed answer, with the comments beside them, then what it can be asked."""
    comments = dict(re.findall(r"^    (\w+): [^#\n]+?  # (.*)$", inspect.getsource(kind), flags=re.MULTILINE))
    lines = [f"### `{called}`\n", text_of(kind), ""]
    for each in dataclasses.fields(kind):
        comment = comments.get(each.name)
        lines.append(f"- `{each.name}`: `{each.type}`" + (f": {comment}" if comment else ""))
    for name, thing in public_methods(kind):
        said = text_of(thing).split("\n\n")[0].replace("\n", " ")
        call = name if isinstance(thing, property) else name + signature_of(thing)
        lines.append(f"- `.{call}`" + (f": {said}" if said else ""))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    built, page = build(), HERE / "reference.md"
    if "--check" in sys.argv:
        sys.exit(
            0
            if page.exists() and page.read_text() == built
            else "docs/reference.md is not current: run docs/build_reference.py"
        )
    page.write_text(built)
