"""The page that a newcomer reads first names files that are there, and stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "architecture.md", ROOT / "docs" / "contributing.md"]
FILE = re.compile(r"`([\w./]+/[\w./]+\.(?:py|java))`")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_file_it_names_is_there(page):
    named = set(FILE.findall(page.read_text())) - {"sources/connectors/NAME.py", "sinks/NAME.py", "protocols/NAME.py"}

    assert named
    assert [
        name for name in sorted(named) if not any((base / name).exists() for base in (ROOT / "holdfast", ROOT))
    ] == []


def test_each_walk_has_at_most_twelve_steps_and_each_step_a_module():
    text = PAGES[0].read_text()
    for walk in ("Life of an element", "Life of a lost host"):
        steps = re.findall(r"^\d+\. (.+?)(?=^\d+\. |\Z)", text.split(f"## {walk}")[1].split("\n## ")[0], re.M | re.S)

        assert 0 < len(steps) <= 12
        assert [step for step in steps if not FILE.search(step)] == []


def test_it_is_one_page():
    assert len(PAGES[0].read_text().splitlines()) <= 110
