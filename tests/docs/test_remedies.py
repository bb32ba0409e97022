"""Every error says what to do; a test does it. The table in docs/errors.d/remedies.md says which.

A row names tests, or says why nothing can be applied. A named test exists and knows the code: its own text, its
parameters or its module names it. So a new error cannot come without its remedy being tried.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_tidy import used

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "errors.d" / "remedies.md"
ROW = re.compile(r"^\| (HF-[A-Z]\d{3}) \| (.*) \|$", re.MULTILINE)
# A code may stand for a rule of `check`, whose remedy is a file beside the broken one.
BROKEN = ROOT / "examples" / "broken"


def rows() -> dict[str, str]:
    found = ROW.findall(TABLE.read_text())
    assert len({code for code, _ in found}) == len(found), "a code has two rows"
    return dict(found)


@cache
def defined() -> dict[str, list[tuple[Path, str]]]:
    """name -> the files that define it, with their text."""
    found: dict[str, list[tuple[Path, str]]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.setdefault(node.name, []).append((path, text))
    return found


def test_every_error_has_a_remedy_that_is_applied_or_a_reason_why_not():
    assert sorted(rows()) == sorted(used())


@pytest.mark.parametrize("code", sorted(rows()))
def test_the_tests_that_apply_a_remedy_are_there_and_know_the_error(code):
    said = rows()[code]
    named = re.findall(r"`(test_\w+)`", said)
    if not named:
        assert len(said) > 20, "neither a test nor a reason"
    for name in named:
        assert name in defined(), f"there is no {name}"
        knows = any(code in text for _, text in defined()[name])
        is_a_rule = any(f"# {code}" in path.read_text() for path in BROKEN.glob("*.py"))
        assert knows or is_a_rule, f"{name} does not know {code}"
