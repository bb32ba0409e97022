"""Reach a running process from another shell: one JSON request, one JSON answer.

The socket lies in a private folder of the temporary directory, because a path of
a Unix socket may have 107 characters at most; the state folder says where.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from holdfast.engine.folder import StateFolder
from holdfast.errors import HoldfastError, UsageError

__all__ = ["ControlServer", "call", "not_begun"]


class ControlServer(threading.Thread):
    def __init__(self, note: Path, answer: Callable[[dict], dict]) -> None:
        super().__init__(name="control", daemon=True)
        self._note, self._answer = note, answer
        # Named like the session's sockets: should this process be killed, the next one sweeps it away.
        self._folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{os.getpid()}-"))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = self._folder / "control"
        self._socket.bind(str(path))
        self._socket.listen(8)
        whole = note.with_suffix(".tmp")
        whole.write_text(json.dumps({"socket": str(path), "pid": os.getpid()}))
        os.replace(whole, note)

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.settimeout(5)
                    request = json.loads(_read_line(connection))
                    answer = self._answer(request)
                except HoldfastError as error:
                    answer = {"error": str(error), "code": error.code, "exit": error.exit_code}
                except (OSError, ValueError, KeyError) as error:
                    answer = {"error": f"{type(error).__name__}: {error}", "code": "", "exit": 2}
                try:
                    connection.sendall(json.dumps(answer, default=str).encode() + b"\n")
                except OSError:
                    continue

    def close(self) -> None:
        self._note.unlink(missing_ok=True)
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def call(state_dir: Path, request: dict) -> dict:
    """Ask the run that holds this state folder. UsageError HF-U040 if none answers."""
    note = state_dir / "control.json"
    try:
        path = json.loads(note.read_text())["socket"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(30)
            connection.connect(path)
            connection.sendall(json.dumps(request, default=str).encode() + b"\n")
            return json.loads(_read_line(connection))
    except (OSError, ValueError) as error:
        raise _no_answer(state_dir, note.exists(), error) from None


def _no_answer(state_dir: Path, left_a_note: bool, error: Exception) -> UsageError:
    """Who has just typed `run` in the other shell must not be told to start it: a session takes a while."""
    if StateFolder(state_dir).in_use:
        holder = f"process id {(state_dir / 'lock').read_text().strip()}"
        why = f"{holder} holds it and does not answer: {error}" if left_a_note else f"{holder} is starting or ending"
        do = "ask again in a moment"
    elif left_a_note:
        why, do = "the last run was killed", "holdfast run FILE: it goes on with the next frame"
    else:
        why, do = "it has ended, or was never started here", "start it: holdfast run FILE"
    return UsageError(
        "HF-U040",
        "NotRunning",
        "no run answers for this state folder.",
        where=str(state_dir),
        why=why,
        effect="nothing was asked of anybody",
        do=do,
    )


def not_begun(why: str) -> UsageError:
    """Asked to stop before the first element came: there is no frame yet to stop after."""
    return UsageError(
        "HF-U042",
        "NotBegun",
        "the run has not begun yet.",
        why=why,
        effect="it goes on waiting; nothing was made",
        do=f"end it where it runs with Ctrl-C, or: kill -INT {os.getpid()}",
    )


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(65536)
        if not part:
            break
        data += part
    return data
