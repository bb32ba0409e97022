"""The command ends with its own exit code, whatever threads of the background are doing."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import io, sys, threading
import pyarrow.csv as csv
from holdfast.cli.main import main
began = threading.Barrier(5)
def read():
    csv.read_csv(io.BytesIO(DATA))
    began.wait()
    while True:
        csv.read_csv(io.BytesIO(DATA))
DATA = b"a,b\\n" + b"1,2\\n" * 200_000
for _ in range(4):
    threading.Thread(target=read, daemon=True).start()
began.wait()
sys.argv = ["holdfast", *sys.argv[1:]]
import atexit
atexit.register(print, "last words")
main()
"""


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["check", "nowhere.py"], 2), (["--version"], 0)])
def test_a_thread_inside_a_library_does_not_end_the_command(words, code):
    """'terminate called without an active exception': 134 instead of the code that says what happened."""
    ended = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (code, "last words"), ended.stderr
