"""What README shows first is a process that `check` lets pass, and its table leads to what shows each line."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.declare.loading import load

ROOT = Path(__file__).resolve().parents[2]
SCREEN = (ROOT / "README.md").read_text().partition("## Start")[0]


def test_the_first_program_is_a_process_without_errors(tmp_path):
    (tmp_path / "plant.py").write_text(re.search(r"```python\n(.*?)```", SCREEN, re.DOTALL)[1])

    findings = load(str(tmp_path / "plant.py")).check()

    assert all(finding.warning for finding in findings)


def test_the_first_screen_is_one():
    assert len(SCREEN.splitlines()) <= 60
    assert len(re.findall(r"```python\n(.*?)```", SCREEN, re.DOTALL)[0].splitlines()) <= 16
