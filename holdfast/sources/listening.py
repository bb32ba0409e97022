"""Lines on a socket as a feed: one thread per client, which answers when its lines are synced.

TCP: lines in, and after each lot that was synced `ok N`, N being all lines of this
connection so far. HTTP: lines as the body of a POST, `200 ok N` when they are
synced. Whoever got no answer sends again; `id=` recognises what was logged after
all. A line counts when it ends with a newline: half a line of a client that died
is never taken for a whole one.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections import deque
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from holdfast.errors import SourceError
from holdfast.sources.addresses import Address
from holdfast.sources.feed import Delivery, Known
from holdfast.sources.records import Record, split_payload

__all__ = ["LineFeed"]

BATCH_ROWS_MAX = 100_000
RECEIVE_BYTES = 1 << 20
# A body, or a line without an end: more than this is taken for a mistake.
BYTES_MAX = 64 << 20


class _Lot:
    """Lines of one client on their way to disk."""

    def __init__(self) -> None:
        self.synced = threading.Event()


class LineFeed:
    small = True

    def __init__(self, address: Address, source: str, format: str, delimiter: str, note: Path) -> None:
        self._address, self._source, self._note = address, source, note
        self._format, self._delimiter = format, delimiter
        self._changed = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._stopped = threading.Event()
        self._server: socketserver.BaseServer | None = None

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def start(self, known: Known) -> None:
        feed, path = self, "/" + self._address.path

        class Tcp(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                feed._lines_of(self.request)

        class Http(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                feed._post(self, path)

            def log_message(self, *args: object) -> None:
                """The terminal is not ours."""

        over_http = self._address.scheme == "http"
        kind = ThreadingHTTPServer if over_http else socketserver.ThreadingTCPServer
        family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
        settings = {"allow_reuse_address": True, "daemon_threads": True, "block_on_close": False}
        # A client that goes away is no news, and the terminal is not ours.
        settings |= {"address_family": family, "handle_error": lambda server, request, client: None}
        made = type("_Server", (kind,), settings)
        try:
            self._server = made((self._address.host, self._address.port), Http if over_http else Tcp)
        except OSError as error:
            raise SourceError(
                "HF-S017",
                "CannotListen",
                f"nothing can be listened to at {self._address}.",
                where=f"source {self._source!r}",
                why=error.strerror or str(error),
                effect="nothing was read; what was logged stands",
                do="end the program that has the port, or declare another",
            ) from error
        self._note.parent.mkdir(parents=True, exist_ok=True)
        self._note.write_text(f"{self._address.scheme}://{self._address.host}:{self.port}/{self._address.path}\n")
        name = f"holdfast-lines-{self._source}"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name=name, daemon=True).start()

    def take(self, wait_s: float) -> list[Delivery]:
        taken: list[Delivery] = []
        rows = 0
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, wait_s)
            while self._waiting and rows < BATCH_ROWS_MAX:
                taken.append(self._waiting.popleft())
                rows += len(taken[-1].items)
        return taken

    def logged(self, token: object) -> None:
        token.synced.set()

    def has_ended(self) -> bool:
        return False

    def part(self, delivery: Delivery, items: int) -> None:
        """Nothing: what a client sent is whole."""

    def remark(self) -> str:
        return ""

    def stop(self) -> None:
        self._stopped.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            self._note.unlink(missing_ok=True)

    # -- the clients' threads ------------------------------------------------------

    def _deliver(self, lines: Sequence[bytes], where: str) -> bool:
        """True when they are synced; False if the source stopped before."""
        if self._format == "csv":
            items = [Record(line, {}, "csv", self._delimiter, where) for line in lines]
        else:
            items = [each for line in lines for each in split_payload(line, where=where)]
        lot = _Lot()
        with self._changed:
            self._waiting.append(Delivery(items, lot))
            self._changed.notify_all()
        while not lot.synced.wait(0.2):
            if self._stopped.is_set():
                return lot.synced.is_set()
        return True

    def _lines_of(self, client: socket.socket) -> None:
        held, count, where = b"", 0, "a client"
        client.settimeout(0.5)
        with contextlib.suppress(OSError):
            where = "client {}:{}".format(*client.getpeername()[:2])
            while not self._stopped.is_set():
                try:
                    more = client.recv(RECEIVE_BYTES)
                except TimeoutError:
                    continue
                if not more or len(held) > BYTES_MAX:
                    return
                *lines, held = (held + more).split(b"\n")
                if not lines:
                    continue
                whole = [line for line in lines if line.strip()]
                if whole and not self._deliver(whole, where):
                    return
                count += len(lines)
                client.sendall(b"ok %d\n" % count)

    def _post(self, request: BaseHTTPRequestHandler, path: str) -> None:
        length = request.headers.get("Content-Length", "")
        if request.path != path or not length.isdigit() or int(length) > BYTES_MAX:
            request.close_connection = True
            status = 404 if request.path != path else 411 if not length.isdigit() else 413
            return _answer(request, status, f"POST lines to {path}, at most {BYTES_MAX >> 20} MB, with their length\n")
        body = request.rfile.read(int(length))
        if len(body) < int(length):
            return None  # it died on the way
        one = self._format == "json" and body.lstrip().startswith(b"[")
        lines = [body] if one else [line for line in body.split(b"\n") if line.strip()]
        if lines and not self._deliver(lines, f"client {request.client_address[0]}"):
            request.close_connection = True
            return _answer(request, 503, "stopped before it was synced: send it again\n")
        return _answer(request, 200, f"ok {len(lines)}\n")


def _answer(request: BaseHTTPRequestHandler, status: int, text: str) -> None:
    request.send_response(status)
    request.send_header("Content-Type", "text/plain; charset=utf-8")
    request.send_header("Content-Length", str(len(text.encode())))
    request.end_headers()
    request.wfile.write(text.encode())
