"""The page on using a process from Python is run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "from-python.md").read_text()
README = (ROOT / "README.md").read_text()


def tour(folder: Path) -> None:
    """hot.py and readings.csv, as the tour of the README makes them, with its typo corrected."""
    [script] = re.findall(r"```sh\n(python - > readings\.csv.*?)```", README, flags=re.DOTALL)
    subprocess.run(["sh", "-c", script.replace("python -", f"{sys.executable} -")], cwd=folder, check=True)
    hot = folder / "hot.py"
    hot.write_text(hot.read_text().replace("flaged", "flagged"))


def test_the_page_does_what_it_says(tmp_path):
    """A page that does not run is worse than none."""
    tour(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 3
    said = []
    for number, block in enumerate(blocks):
        # What it starts are os processes that import the file again: they must not start others.
        program = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in block.splitlines())
        (tmp_path / f"block_{number}.py").write_text(program)
        answer = subprocess.run(
            [sys.executable, f"block_{number}.py"], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert answer.returncode == 0, answer.stdout + answer.stderr
        said.append(answer.stdout)

    assert "unit seen" in said[0]
    lines = said[0].splitlines()
    change, frame = map(int, lines[-5].split())
    assert change > 10 and frame == 20
    assert sorted(lines[-4:-2]) == ["flagged 20", "seen 20"]
    assert lines[-2:] == ["60 ['readings']", "stopped"]
