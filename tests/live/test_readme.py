"""The README's tour works as printed, and the tutorial after it.

Its shell blocks are run one after the other in an empty folder, by a bash whose PATH
has `holdfast` and `python` of this environment. Two comments in them ask a reader to
act, and so the test does: "press Ctrl-C", and "leave it running" while the next
blocks are typed in a second terminal. What is printed below a block must come out of
it, line by line and in order. Numbers and the user's name may differ, except in what
is read from the tables at the end.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.engine.observe.control import call
from holdfast.errors import HoldfastError
from tests.live.runs import environ

README = Path(__file__).resolve().parents[2] / "README.md"
# A command takes seconds; one that takes this long on a busy machine hangs.
HANGS_S = 300


TUTORIAL = README.parent / "docs" / "tutorial.md"


def steps_of(text: str) -> list[tuple[str, list[str]]]:
    """(commands, lines they print) in order."""
    steps: list[tuple[str, list[str]]] = []
    for kind, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        if kind == "sh":
            steps.append((body, []))
        else:
            assert kind == "text"
            steps[-1][1].extend(line for line in body.splitlines() if line.strip() not in ("", "..."))
    return steps


def without_numbers(line: str) -> str:
    """Numbers become #, runs of blanks one blank, and the name in the log of changes "you"."""
    line = re.sub(r"\d[\d,.:TZ+-]*", "#", line)
    line = re.sub(r"(limit = #) \S+ (night shift)", r"\1 you \2", re.sub(r"\s+", " ", line))
    return line.strip()


@pytest.fixture(scope="module")
def terminal(tmp_path_factory):
    """Starts bash as a terminal would, in one folder for tour and tutorial; ends what is left of it."""
    tmp_path = tmp_path_factory.mktemp("terminal")
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "python").symlink_to(sys.executable)
    (commands / "holdfast").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c "from holdfast.cli.main import main; main()" "$@"\n'
    )
    (commands / "holdfast").chmod(0o755)
    folder = tmp_path / "tour"
    folder.mkdir()
    env = {**environ(), "PATH": f"{commands}:{os.environ['PATH']}", "NO_COLOR": "1"}
    started: list[subprocess.Popen] = []

    def start(block: str) -> subprocess.Popen:
        started.append(
            subprocess.Popen(
                ["bash", "-c", block],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    start.folder = folder
    yield start
    for each in started:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)


def await_frames(folder: Path, running: subprocess.Popen, count: int) -> None:
    """Until the run has written so many frames more than when it was first reached."""
    first = None
    deadline = time.monotonic() + HANGS_S
    while running.poll() is None and time.monotonic() < deadline:
        try:
            frame = call(folder / ".holdfast" / "hot", {"do": "status"})["frame"]
        except HoldfastError:
            frame = None
        if frame is not None:
            first = frame if first is None else first
            if frame - first >= count:
                return
        time.sleep(0.1)
    raise AssertionError(f"the run did not get {count} frames further:\n{running.stdout.read()}")


def compare(block: str, printed: list[str], output: str) -> None:
    actual = iter(output.splitlines())
    for line in printed:
        exact = "sqlite3" in block and "night shift" not in line
        begins = line.endswith(" ...")  # the rest of the line is left out
        wanted = without_numbers(line.removesuffix(" ..."))
        assert any(
            found == line if exact else without_numbers(found)[: len(wanted) if begins else None] == wanted
            for found in actual
        ), f"{line!r} did not come out of:\n{block}\n{output}"


def test_the_tour_works_as_printed(terminal):
    left_running = None
    for block, printed in steps_of(README.read_text().split("## Five-minute tour")[1].split("\n## ")[0]):
        shell = terminal(block)
        if "# leave it running" in block:
            left_running = shell
            await_frames(terminal.folder, shell, 1)
            continue
        if "# press Ctrl-C" in block:
            await_frames(terminal.folder, shell, 2)  # the page says frames, and one is not many
            os.killpg(shell.pid, signal.SIGINT)
        output, _ = shell.communicate(timeout=HANGS_S)
        if "kill -9" in block:
            left_running.communicate(timeout=HANGS_S)
            assert left_running.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        compare(block, printed, output)
    assert left_running is not None


def test_the_tutorial_goes_on_from_there(terminal):
    """In the folder the tour has left; without the tour there is nothing to go on from."""
    for block, printed in steps_of(TUTORIAL.read_text()):
        output, _ = terminal(block).communicate(timeout=HANGS_S)
        compare(block, printed, output)
