"""docs/howto/models.md: every program is run as printed, in order, and answers what is printed below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "models.md"
PROGRAM = re.compile(r"```python\n(.*?)```\n```text\n(.*?)```", re.DOTALL)


def test_the_page_on_models_says_what_its_programs_answer():
    programs = PROGRAM.findall(PAGE.read_text())
    names: dict = {}
    for program, expected in programs:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(program, PAGE.name, "exec"), names)

        assert said.getvalue() == expected
    assert len(programs) == PAGE.read_text().count("```python")
