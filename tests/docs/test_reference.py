"""The reference is built from the docstrings, and is the one they give now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_reference_is_current():
    answer = subprocess.run(
        [sys.executable, str(DOCS / "build_reference.py"), "--check"], capture_output=True, text=True
    )

    assert answer.returncode == 0, answer.stderr


def test_everything_public_says_what_it_is():
    """A heading without a word below it is no reference."""
    lines = [line for line in (DOCS / "reference.md").read_text().splitlines() if line]
    bare = [
        line
        for line, below in zip(lines, lines[1:], strict=False)
        if line.startswith("### ") and below.startswith("### ")
    ]
    bare += [
        line
        for line, below in zip(lines, lines[1:], strict=False)
        if line.startswith("#### ") and below.startswith("#")
    ]

    assert bare == []
