"""Builds reference.md from the docstrings of the public face; `--check` only compares.

Public is what `holdfast.__all__`, `hf.read`, `hf.write` and `holdfast.testing` name, and
what a user does with a process and a run. The shell's part is what `--help` says.
"""

from __future__ import annotations

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
INTERNAL = {"activate", "release"}


def public_methods(kind: type) -> list[tuple[str, Any]]:
    return [
        (name, thing)
        for name, thing in vars(kind).items()
        if not name.startswith("_")
        and name not in INTERNAL
        and (inspect.isfunction(thing) or isinstance(thing, property))
    ]


def class_part(name: str, kind: type) -> list[str]:
    parts = [entry(name, kind)]
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
    from holdfast.engine.observe.status import SinkStatus, SourceStatus, Status, UnitStatus
    from holdfast.engine.run.run import Run
    from holdfast.graph import protections

    parts = [HEAD, "## A process\n", *class_part("hf.StreamProcess", hf.StreamProcess)]
    parts += ["## A run\n", *class_part("Run", Run)]
    parts.append("## What a run says of itself\n\n`run.status()`, `holdfast status --json`.\n")
    parts += [fields_part(kind) for kind in (Status, SourceStatus, UnitStatus, SinkStatus)]
    parts.append("## Words for declarations\n")
    skipped = {"StreamProcess", "read", "write", "__version__"}
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


def fields_part(kind: type) -> str:
    """The fields of a typed answer, with the comments beside them."""
    source = inspect.getsource(kind)
    lines = [f"### `{kind.__name__}`\n", text_of(kind), ""]
    for name, annotation, comment in re.findall(
        r"^    (\w+): ([^=#\n]+?)(?: = [^#\n]*)?(?:  # (.*))?$", source, flags=re.MULTILINE
    ):
        lines.append(f"- `{name}`: `{annotation.strip()}`" + (f": {comment}" if comment else ""))
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
