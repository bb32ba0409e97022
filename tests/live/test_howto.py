"""The how-to on tests is itself a test file: it is run as printed, beside the example it tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points

from tests.live.runs import ROOT, environ


def test_the_test_file_of_the_howto_passes(tmp_path):
    page = (ROOT / "docs" / "howto" / "test-your-process.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "test_ward.py").write_text(program)
    shutil.copy(ROOT / "examples" / "ward.py", tmp_path)
    shutil.copytree(ROOT / "examples" / "ward_data", tmp_path / "ward_data")

    # The installed package brings the plug-in; a bare source tree on the path does not.
    installed = entry_points(group="pytest11", name="holdfast")
    plugin = [] if installed else ["-p", "holdfast.testing.plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "test_ward.py"],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
