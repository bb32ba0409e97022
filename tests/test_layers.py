"""Arrows between packages point down, imports inside functions and for types included. There are no exceptions.

What is listed first knows nothing of what follows. A package or module may import what stands before it, and itself.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "holdfast"

# Those of one row do not know each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("redaction",),
    ("errors",),
    ("atomic", "failpoints", "quoting"),
    ("graph",),
    ("frames",),
    ("levels", "protocols"),
    ("journals", "simulation"),
    ("operators", "sinks", "sources"),
    ("hosts",),
    ("records",),
    ("engine",),
    ("declare",),
    ("faults",),
    ("oracle",),
    ("verify",),
    ("testing", "apps"),
    ("cli",),
)
ENGINE: tuple[tuple[str, ...], ...] = (
    ("trusted",),
    ("reboot",),
    ("state_folder", "profile"),
    ("session",),
    ("flow",),
    ("unit",),
    ("protect",),
    ("recover",),
    ("observe",),
    ("check",),
    ("run",),
    ("plain",),
)
SOURCES: tuple[tuple[str, ...], ...] = (
    ("parse",),
    ("identity", "pace"),
    ("reference",),
    ("reader",),
    ("index",),
    ("assembly",),
    ("sealed",),
    ("live",),
    ("files",),
    ("connectors",),
    ("read",),
)
# holdfast/__init__.py is the face of all of it.
FACE = {"__init__.py"}


def imported(path: Path) -> set[tuple[str, ...]]:
    """Modules of ours that a file imports anywhere in it, as parts after `holdfast`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {tuple(each.name.split(".")) for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            base = tuple((node.module or "").split("."))
            # `from holdfast.engine import torn` names a module.
            found |= {(*base, each.name) if is_package(base) else base for each in node.names}
    return {each[1:] for each in found if each[0] == "holdfast" and len(each) > 1}


def is_package(parts: tuple[str, ...]) -> bool:
    return parts[0] == "holdfast" and PACKAGE.joinpath(*parts[1:]).is_dir()


def rank(layers: tuple[tuple[str, ...], ...], name: str, where: str) -> int:
    for number, row in enumerate(layers):
        if name in row:
            return number
    raise AssertionError(f"{where}: '{name}' has no place in the layers")


def upward(inside: tuple[str, ...], layers: tuple[tuple[str, ...], ...]) -> list[str]:
    """Imports among the parts of one package that do not point down."""
    folder, found = PACKAGE.joinpath(*inside), []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts == ("__init__",) and (not inside or len(ast.parse(path.read_text()).body) == 1):
            continue
        for target in imported(path):
            if target[: len(inside)] != inside or len(target) <= len(inside):
                continue
            own, other = parts[0], target[len(inside)]
            if own == other or (
                not inside and not (PACKAGE / other).exists() and not (PACKAGE / f"{other}.py").exists()
            ):
                continue
            if rank(layers, other, str(path)) >= rank(layers, own, str(path)):
                found.append(f"{path.relative_to(PACKAGE.parent)} imports {'.'.join(target)}")
    return sorted(found)


@pytest.mark.parametrize(
    ("inside", "layers"),
    [((), LAYERS), (("engine",), ENGINE), (("sources",), SOURCES)],
    ids=lambda e: ".".join(e) if e and isinstance(e[0], str) else "",
)
def test_arrows_point_down(inside, layers):
    assert upward(inside, layers) == []


@pytest.mark.parametrize(
    ("inside", "layers"),
    [((), LAYERS), (("engine",), ENGINE), (("sources",), SOURCES)],
    ids=lambda e: ".".join(e) if e and isinstance(e[0], str) else "",
)
def test_every_layer_exists(inside, layers):
    """A name that is left over here would hide where something went."""
    folder = PACKAGE.joinpath(*inside)
    assert [
        name for row in layers for name in row if not (folder / name).is_dir() and not (folder / f"{name}.py").exists()
    ] == []
