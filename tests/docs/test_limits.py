"""What the page of limits says is shown by a test, is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "platforms-and-limits.md").read_text()


def test_every_test_the_page_names_exists():
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), flags=re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", PAGE))

    assert len(named) > 20
    assert named - there == set()


def test_every_promise_is_shown_by_a_test():
    """A promise nobody tests is a wish. Limits may go without: not everything can be tried here."""
    table = PAGE.split("## What it promises now")[1].split("\n\nNot through power loss")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]

    assert len(rows) > 8
    assert [row for row in rows if "`test_" not in row] == []


def test_what_is_said_not_to_be_there_is_not_there():
    from typer.main import get_command

    from holdfast.cli.main import app

    missing = PAGE.split("## What is not there yet")[1].split("\n## ")[0]
    commands = set(get_command(app).commands)

    assert [word for word in re.findall(r"`holdfast (\w+)`", missing) if word in commands] == []
    assert {"trace", "du", "clean", "quarantine"} <= commands


def test_versions_are_those_that_are_pinned():
    pinned = (ROOT / "pyproject.toml").read_text()
    spark = re.search(r"pyspark==([\d.]+)", pinned)[1]

    assert f"PySpark {spark}" in PAGE
