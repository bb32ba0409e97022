"""Who may call Python back: only who says the token, whole and in time. Without a JVM; with one in tests/spark/test_neighbour.py."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j import protocol

from holdfast.engine.session import callbacks
from holdfast.engine.session.callbacks import _Connection, _Strangers

TOKEN = "0123456789abcdef" * 4


def said(data: bytes) -> tuple[bool, bytes]:
    """Whether a connection that says this is let in, and what it hears."""
    ours, theirs = socket.socketpair()
    connection = _Connection.__new__(_Connection)
    connection.socket, connection.stream, connection.python_server = ours, None, None
    connection.initiated_from_client = False
    connection.python_parameters = SimpleNamespace(auth_token=TOKEN)
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        try:
            knows = connection._says_token()
        except OSError:
            knows = False
        connection.socket = None
        ours.close()
        return knows, theirs.recv(100)


def test_who_says_the_token_is_let_in():
    assert said(f"A\n{TOKEN}\ne\n".encode()) == (True, protocol.OUTPUT_VOID_COMMAND.encode())


@pytest.mark.parametrize(
    "data", [b"", b"A\n", b"A\n\ne\n", b"A\nwrong\ne\n", f"B\n{TOKEN}\ne\n".encode(), f"A\n{TOKEN[:-1]}\ne\n".encode(),
             f"A\n{TOKEN}\n".encode(), b"c\np0\ntoString\ne\n", b"g\np0\ne\n", b"x" * 10_000],
)  # fmt: skip
def test_who_does_not_hears_nothing(data):
    try:
        assert said(data) == (False, b"")
    except ConnectionResetError:
        pass  # it said more than was read


@given(data=st.binary(max_size=150))
@settings(max_examples=100, deadline=None)
def test_no_other_words_let_anybody_in(data):
    try:
        assert said(data) == (False, b"")
    except ConnectionResetError:
        pass


def test_of_too_many_strangers_the_oldest_goes(monkeypatch):
    monkeypatch.setattr(callbacks, "_STRANGERS_MAX", 2)
    strangers, pairs = _Strangers(), [socket.socketpair() for _ in range(3)]
    for ours, _ in pairs:
        strangers.came(Stranger(ours))
    assert pairs[0][1].recv(10) == b""  # hung up
    for _, theirs in pairs[1:]:
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(10)
    for pair in pairs:
        for each in pair:
            each.close()


class Stranger:
    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
