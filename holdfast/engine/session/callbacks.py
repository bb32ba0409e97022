"""The port on which the JVM calls Python back: only our JVM is let in, and what a query used is given back.

PySpark starts py4j's callback server without a token when the first query calls a Python function, so any
user of the machine could call or forget our functions, which ended units. Here the server is started with our session,
with a token that both sides are told through the connection they already share: it is in no command line, environment,
file or setting. Who connects has five seconds to say it, and of those who have not yet said it the oldest
goes when there are too many.

PySpark never takes back a function it gave to `foreachBatch`, and the connection its query called on stays open,
with a thread at each end. `Callback` does both when the query has ended.
"""

from __future__ import annotations

import contextlib
import copy
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from py4j import protocol
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import JavaObject
from pyspark.java_gateway import ensure_callback_server_started

__all__ = ["Callback", "asks_for_a_token", "guard_callbacks"]

_TOKEN_SECONDS = 5.0
# Our JVM says its token within milliseconds; it is never among the oldest of so many.
_STRANGERS_MAX = 64
# "A", the token, "e": three lines.
_GREETING_BYTES_MAX = 200


def guard_callbacks(gateway: Any) -> None:
    """Start the callback server of a gateway that has none yet, with a token on both sides."""
    token = secrets.token_hex(32)
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)
    # py4j copies its client without the token when PySpark tells it the port, and offers no other way to set it.
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)
    strangers = _Strangers()
    server = gateway._callback_server

    def create(accepted: socket.socket, stream: Any) -> ClientServerConnection:
        connection = _Connection(
            server.java_parameters,
            server.python_parameters,
            server.gateway_property,
            server.gateway_client,
            python_server=server,
        )
        connection.init_socket_from_python_server(accepted, stream)
        connection.strangers = strangers
        strangers.came(connection)
        return connection

    server._create_connection = create


def asks_for_a_token(gateway: Any) -> bool:
    return bool(getattr(gateway.callback_server_parameters, "auth_token", None))


class _Strangers:
    """Connections that have not said their token yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[_Connection, None] = {}  # the oldest first

    def came(self, connection: _Connection) -> None:
        with self._lock:
            self._waiting[connection] = None
            oldest = next(iter(self._waiting)) if len(self._waiting) > _STRANGERS_MAX else None
            self._waiting.pop(oldest, None)
        if oldest is not None:
            _hang_up(oldest.socket)

    def gone(self, connection: _Connection) -> None:
        with self._lock:
            self._waiting.pop(connection, None)


class _Connection(ClientServerConnection):
    strangers: _Strangers

    def wait_for_commands(self) -> None:
        try:
            knows = self._says_token()
        except (OSError, ValueError):
            knows = False
        finally:
            self.strangers.gone(self)
        if not knows:
            self.close(reset=True)
            return
        # It has been asked: py4j would ask again.
        self.python_parameters = copy.copy(self.python_parameters)  # type: ignore[has-type]
        self.python_parameters.auth_token = None
        super().wait_for_commands()

    def _says_token(self) -> bool:
        """Read by the byte: nothing that belongs to py4j's own stream is taken from it."""
        until = time.monotonic() + _TOKEN_SECONDS
        said = bytearray()
        while said.count(b"\n") < 3 and len(said) < _GREETING_BYTES_MAX:
            self.socket.settimeout(max(0.001, until - time.monotonic()))
            part = self.socket.recv(1)
            if not part:
                return False
            said += part
        expected = f"{protocol.AUTH_COMMAND_NAME}\n{self.python_parameters.auth_token}\n{protocol.END_COMMAND_PART}"
        if not hmac.compare_digest(bytes(said), expected.encode()):
            return False
        self.socket.settimeout(None)
        self.socket.sendall(protocol.OUTPUT_VOID_COMMAND.encode())
        return True


class Callback:
    """A function for `foreachBatch` that can be taken back once its query has ended."""

    def __init__(self, spark: Any, function: Callable[[Any, int], None]) -> None:
        self._gateway, self._function = spark.sparkContext._gateway, function
        self._connection: ClientServerConnection | None = None
        self._is_called = False

    def __call__(self, batch: Any, batch_id: int) -> None:
        self._connection, self._is_called = self._gateway._gateway_client.get_thread_connection(), True
        try:
            self._function(batch, batch_id)
        finally:
            self._is_called = False

    def take_back(self) -> None:
        """Forget the function, and end the connection it was called on: its thread in the JVM is gone."""
        if self._gateway is None:
            return
        pool = self._gateway.gateway_property.pool
        with pool.lock:
            for key in [key for key, proxy in pool.dict.items() if getattr(proxy, "func", None) is self]:
                del pool.dict[key]
        connection, self._connection = self._connection, None
        if connection is not None and not self._is_called and not connection.initiated_from_client:
            _hang_up(connection.socket)


def _hang_up(connected: socket.socket | None) -> None:
    """Whoever reads from it reads its end, and closes it."""
    if connected is not None:
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)
