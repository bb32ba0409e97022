"""Reach a running process from another shell: one JSON request, one JSON answer.

The socket lies in a private folder of the temporary directory, because a path of
a Unix socket may have 107 characters at most; the state folder says where.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.atomic import write_whole
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import HoldfastError, UsageError

__all__ = ["ControlServer", "call", "not_begun"]


# A request is a line of some hundred bytes; values of parameters may be long, files they are not.
REQUEST_BYTES_MAX = 1024 * 1024
# For the whole request, however it drips in: another shell sends it at once.
REQUEST_SECONDS = 5.0
# Asked at the same time; more wait until one of these has its answer.
ASKING_MAX = 16


class ControlServer(threading.Thread):
    """Answers every request, whatever it is, and goes on; who is slow keeps nobody else waiting."""

    def __init__(self, note: Path, answer: Callable[[dict], dict]) -> None:
        super().__init__(name="control", daemon=True)
        self._note, self._answer = note, answer
        # Named like the session's sockets: should this process be killed, the next one sweeps it away.
        self._folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{os.getpid()}-"))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = self._folder / "control"
        self._socket.bind(str(path))
        self._socket.listen(128)
        self._places = threading.Semaphore(ASKING_MAX)
        self._asking: dict[threading.Thread, socket.socket] = {}
        self._changed = threading.Lock()  # guards _asking and _is_closed
        self._is_closed = False
        write_whole(note, json.dumps({"socket": str(path), "pid": os.getpid()}))

    def run(self) -> None:
        while True:
            self._places.acquire()
            try:
                connection, _ = self._socket.accept()
            except OSError:
                self._places.release()
                if self._is_closed:
                    return
                time.sleep(0.1)  # no descriptor left, say: others give theirs back
                continue
            asking = threading.Thread(target=self._serve, args=(connection,), name="control request", daemon=True)
            with self._changed:
                if self._is_closed:
                    connection.close()
                    return
                self._asking[asking] = connection
            asking.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                answer = self._answered(connection)
                with contextlib.suppress(OSError):  # it did not wait for its answer
                    connection.settimeout(REQUEST_SECONDS)
                    connection.sendall(json.dumps(answer, default=str).encode() + b"\n")
        finally:
            with self._changed:
                self._asking.pop(threading.current_thread(), None)
            self._places.release()

    def _answered(self, connection: socket.socket) -> dict:
        try:
            return self._answer(_request(_read_line(connection, REQUEST_BYTES_MAX, REQUEST_SECONDS)))
        except HoldfastError as error:
            return {"error": str(error), "code": error.code, "exit": error.exit_code}
        except Exception as error:  # whatever was asked, the next one is answered
            refused = _not_a_request(f"{type(error).__name__}: {error}")
            return {"error": str(refused), "code": refused.code, "exit": refused.exit_code}

    def close(self) -> None:
        self._note.unlink(missing_ok=True)
        with self._changed:
            self._is_closed = True
            asking = dict(self._asking)
        for each in (self._socket, *asking.values()):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept() and recv(); closing alone does not
        self._socket.close()
        self._places.release()  # the thread may wait for a place
        for thread in (self, *asking):
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(timeout=REQUEST_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)


def _request(line: bytes) -> dict:
    request = json.loads(line)
    if not isinstance(request, dict) or not isinstance(request.get("do"), str):
        raise _not_a_request("it is no object with a word 'do'")
    return request


def _not_a_request(why: str) -> UsageError:
    return UsageError(
        "HF-U080",
        "NotARequest",
        "the run was asked something it does not understand.",
        why=why[:300],
        effect="nothing was changed; the run goes on",
        do="ask with the holdfast command of the environment the process was started from",
    )


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
        effect="no run was reached, nothing was changed",
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
        # Not -INT: a shell starts what it puts into the background with that one ignored.
        do=f"end it where it runs with Ctrl-C, or: kill {os.getpid()}",
    )


def _read_line(connection: socket.socket, bytes_max: int | None = None, seconds: float | None = None) -> bytes:
    """Up to the end of the line, or of what the other side sends; bounded in bytes and in time where that is given."""
    until = None if seconds is None else time.monotonic() + seconds
    data, is_too_long = bytearray(), False
    while not data.endswith(b"\n"):
        if until is not None:
            connection.settimeout(max(0.001, until - time.monotonic()))
        try:
            part = connection.recv(65536)
        except TimeoutError:
            if not is_too_long:
                raise TimeoutError(f"it did not end within {seconds:g} s") from None
            break
        if not part:
            break
        # The rest of one that is too long is heard and not held: who still speaks when we close hears no answer.
        data = bytearray(part[-1:]) if is_too_long else data + part
        is_too_long = is_too_long or (bytes_max is not None and len(data) > bytes_max)
    if is_too_long:
        raise ValueError(f"it is longer than {bytes_max} bytes")
    return bytes(data)
