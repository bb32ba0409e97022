"""Asking a run from another shell: who gets no answer is told why, and what to do."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.engine.observe import control
from holdfast.engine.observe.control import ControlServer, call
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import UsageError


def test_a_run_that_is_starting_is_not_said_to_be_absent(tmp_path):
    """The second shell is quicker than a Spark session: told to start it, a user would start it twice."""
    folder = StateFolder(tmp_path)
    folder.acquire("hot")
    with pytest.raises(UsageError, match="is starting or ending\n.*\n.*ask again"):
        call(tmp_path, {"do": "status"})
    folder.release()

    with pytest.raises(UsageError, match="it has ended, or was never started here"):
        call(tmp_path, {"do": "status"})


def test_a_killed_run_is_named_as_such(tmp_path):
    """Its note stays behind: the socket in it answers nobody."""
    (tmp_path / "control.json").write_text(json.dumps({"socket": str(tmp_path / "gone")}))

    with pytest.raises(UsageError, match="the last run was killed"):
        call(tmp_path, {"do": "status"})


@pytest.fixture
def served(tmp_path):
    def answer(request: dict) -> dict:
        if request["do"] == "raise":
            raise RuntimeError("a defect")
        return {"heard": request}

    server = ControlServer(tmp_path / "control.json", answer)
    server.start()
    yield tmp_path
    server.close()


def ask(folder, data: bytes, *, ends: bool = True) -> dict:
    path = json.loads((folder / "control.json").read_text())["socket"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(30)
        connection.connect(path)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not hear all of it
            connection.sendall(data)
        if ends:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        said = b""
        while part := connection.recv(65536):
            said += part
        return json.loads(said)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]\n", b"{}\n", b"null\n", b"1\n", b'"do"\n', b'{"do": 1}\n', b'{"do": ["status"]}\n', b"\xff\xfe\n", b"{\n",
     b'{"do": "status"', b"[" * 100_000 + b"\n", b'{"do": "raise"}\n', b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000 + b"\n"],
)  # fmt: skip
def test_any_request_is_answered_and_the_next_one_too(served, data):
    """`[]` used to end the thread: status, stop and set were deaf for the rest of the run."""
    assert ask(served, data)["code"] == "HF-U080"

    assert call(served, {"do": "status"}) == {"heard": {"do": "status"}}


@given(data=st.binary(max_size=300))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_end_the_control_thread(served, data):
    assert ask(served, data).get("code", "") in ("HF-U080", "")
    assert call(served, {"do": "status"}) == {"heard": {"do": "status"}}


def test_a_request_too_long_is_refused_before_it_is_held(served, monkeypatch):
    monkeypatch.setattr(control, "REQUEST_BYTES_MAX", 100_000)
    monkeypatch.setattr(control, "REQUEST_SECONDS", 0.3)

    assert "longer than" in ask(served, b"x" * 200_000, ends=False)["error"]
    assert "longer than" in ask(served, b"x" * 200_000)["error"]


def test_half_a_line_is_answered_and_keeps_nobody_waiting(served, monkeypatch):
    """More of them than there are places: they have to give theirs back."""
    monkeypatch.setattr(control, "REQUEST_SECONDS", 0.3)
    path = json.loads((served / "control.json").read_text())["socket"]
    slow = []
    for _ in range(3 * control.ASKING_MAX):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(30)
        connection.connect(path)
        connection.sendall(b'{"do": ')
        slow.append(connection)

    assert call(served, {"do": "status"}) == {"heard": {"do": "status"}}
    for connection in slow:
        assert b"HF-U080" in connection.recv(65536)
        connection.close()


def test_a_closed_server_leaves_no_thread_and_no_descriptor(tmp_path):
    """Closing a socket does not wake accept(): every run of one program left a thread for ever."""

    def once() -> tuple[int, int]:
        server = ControlServer(tmp_path / "control.json", lambda request: request)
        server.start()
        held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        held.connect(json.loads((tmp_path / "control.json").read_text())["socket"])
        assert call(tmp_path, {"do": "x"}) == {"do": "x"}
        server.close()
        held.close()
        assert not server.is_alive()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    first = once()
    assert {once() for _ in range(10)} == {first}
