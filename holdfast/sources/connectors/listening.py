"""Lines on a socket as a feed: one thread per client, which answers when its lines are synced.

TCP: lines in, and after each lot that was synced `ok N`, N being all lines of this
connection so far; with a token, `token VALUE` comes first and is answered `ok 0`. HTTP:
lines as the body of a POST, `200 ok N` when they are synced. Whoever got no such answer
sends again; `id=` recognises what was logged after all. A line counts when it ends with
a newline: half a line of a client that died is never taken for a whole one.

Whoever is refused is told why (`error ...`, or a status), and `door` says who is.
"""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading
import time
from collections import deque
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from holdfast.atomic import make_folder
from holdfast.errors import SourceError
from holdfast.sources.connectors.addresses import Address
from holdfast.sources.connectors.door import Door, Guest, Limits, bearer_is, is_own_host, is_own_origin
from holdfast.sources.live.feed import Delivery, Known
from holdfast.sources.live.notices import Notices
from holdfast.sources.live.wire import Record, split_payload

__all__ = ["LineFeed"]

BATCH_ROWS_MAX = 100_000
RECEIVE_BYTES = 1 << 20
# A token and its word; whoever has not said it may hold no more.
GREETING_BYTES_MAX = 4096
# Whoever is refused is read on for so long, so that the answer is not lost with what is still on its way.
DRAIN_S, DRAIN_BYTES_MAX = 1.0, 64 << 20

# A page in a browser can send this to any port: its body must not be taken for lines.
_REQUEST = re.compile(rb"[A-Z]+ \S+ HTTP/\d")

_SLOW, _CROWD, _MUCH = "too slow", "too many connections", "too much is held for all senders: send again later"
_STATUS = {_SLOW: 408, _CROWD: 503, _MUCH: 429}
_REASONS = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}


class _Lot:
    """Lines of one client on their way to disk."""

    def __init__(self) -> None:
        self.synced = threading.Event()


class LineFeed:
    small = True

    def __init__(
        self,
        address: Address,
        source: str,
        format: str,
        delimiter: str,
        note: Path,
        *,
        token: str | None = None,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        self._address, self._source, self._note = address, source, note
        self._format, self._delimiter = format, delimiter
        self._token, self._hosts, self._origins = token, tuple(hosts), tuple(origins)
        self.limits = limits or Limits()
        self.door = Door(self.limits, time.monotonic, self._refuse)
        self._notices = Notices(source)
        self._machine = socket.gethostname()
        self._changed = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._stopped = threading.Event()
        self._server: Any = None

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def _is_http(self) -> bool:
        return self._address.scheme == "http"

    def start(self, known: Known) -> None:
        feed, path = self, "/" + self._address.path

        class Tcp(socketserver.BaseRequestHandler):
            server: Any

            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    feed._lines_of(self.request, self.server.places[self.request])

        class Http(BaseHTTPRequestHandler):
            server: Any
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                guest = self.server.places[self.request]
                feed.door.begins(guest, feed.limits.finish_s)
                feed._post(self, path, guest)
                feed.door.begins(guest, feed.limits.idle_s)

            def log_message(self, *args: Any) -> None:
                """The terminal is not ours."""

        made: Any = type(
            "_Server", (_Guarded, ThreadingHTTPServer if self._is_http else socketserver.ThreadingTCPServer), {}
        )
        made.address_family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
        try:
            self._server = made((self._address.host, self._address.port), Http if self._is_http else Tcp)
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
        self._server.feed = self
        make_folder(self._note.parent, sync=True)
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

    def logged(self, token: Any) -> None:
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

    # -- the server's thread -------------------------------------------------------

    def _comes_in(self, client: socket.socket) -> Guest | None:
        greet_s = self.limits.idle_s if self._is_http else None if self._token is None else self.limits.greet_s
        guest = self.door.admit(client, greet_s)
        if guest is None:
            self._refuse(client, _CROWD)
        return guest

    def _refuse(self, client: socket.socket, why: str) -> None:
        """Told without waiting, whatever the client does."""
        self._notices.say(why, f"clients are refused: {why}")
        text = f"error {why}\n".encode()
        if self._is_http:
            text = _response(_STATUS[why], text)
        with contextlib.suppress(OSError):
            client.send(text, socket.MSG_DONTWAIT)

    # -- the clients' threads ------------------------------------------------------

    def _deliver(self, lines: Sequence[bytes], where: str, guest: Guest) -> bool:
        """True when they are synced; False if the source stopped before."""
        self.door.logs(guest, True)
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
        self.door.logs(guest, False)
        return True

    def _lines_of(self, client: socket.socket, guest: Guest) -> None:
        held, count, first = bytearray(), 0, True
        where = "client {}:{}".format(*client.getpeername()[:2])
        client.settimeout(0.5)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        while not self._stopped.is_set():
            try:
                more = client.recv(RECEIVE_BYTES)
            except TimeoutError:
                continue
            if not more or guest.why:
                return
            greeted = self._token is None or not first
            if not held and greeted:
                self.door.begins(guest, self.limits.finish_s)
            held += more
            if not self.door.hold(guest, len(held)):
                return self._turn_away(client, _MUCH)
            cut = held.rfind(b"\n", len(held) - len(more))
            if cut < 0 or (not greeted and held.find(b"\n") > GREETING_BYTES_MAX):
                if len(held) > (self.limits.line_bytes if greeted else GREETING_BYTES_MAX):
                    return self._turn_away(
                        client,
                        f"line too long: at most {self.limits.line_bytes >> 20} MB" if greeted else "token refused",
                    )
                continue
            lines = bytes(held[:cut]).split(b"\n")
            if first and _REQUEST.match(lines[0]):
                self._notices.say("http", "requests of HTTP came to a port for lines and were refused")
                client.sendall(_response(400, b"error this port takes lines, not HTTP\n"))
                return _drain(client)
            if first and self._token is not None:
                if not bearer_is(f"token {self._token}", lines.pop(0).rstrip(b"\r")):
                    return self._turn_away(client, "token refused: the first line is 'token VALUE'")
                client.sendall(b"ok 0\n")
            first = False
            whole = [line for line in lines if line.strip()]
            if whole and not self._deliver(whole, where, guest):
                return self._turn_away(client, "stopped before it was synced: send it again", silent=True)
            del held[: cut + 1]
            self.door.hold(guest, len(held))
            self.door.begins(guest, self.limits.finish_s if held else None)
            if lines:
                count += len(lines)
                client.sendall(b"ok %d\n" % count)

    def _turn_away(self, client: socket.socket, why: str, *, silent: bool = False) -> None:
        if not silent:
            self._notices.say(why, f"clients are refused: {why}")
        client.sendall(f"error {why}\n".encode())
        _drain(client)

    def _post(self, request: BaseHTTPRequestHandler, path: str, guest: Guest) -> None:
        refused = self._refusal(request, path)
        if refused is not None:
            return self._answer_refused(request, *refused)
        left = int(request.headers["Content-Length"])
        body = bytearray()
        while left:
            more = request.rfile.read1(min(left, RECEIVE_BYTES))
            if not more:
                request.close_connection = True
                return None  # it died on the way, or was told that it is too slow
            body += more
            left -= len(more)
            if not self.door.hold(guest, len(body)):
                return self._answer_refused(request, 429, _MUCH)
        one = self._format == "json" and body.lstrip()[:1] == b"["
        lines = [bytes(body)] if one else [line for line in bytes(body).split(b"\n") if line.strip()]
        body.clear()
        if lines and not self._deliver(lines, f"client {request.client_address[0]}", guest):
            request.close_connection = True
            return _answer(request, 503, "stopped before it was synced: send it again\n")
        self.door.hold(guest, 0)
        return _answer(request, 200, f"ok {len(lines)}\n")

    def _refusal(self, request: BaseHTTPRequestHandler, path: str) -> tuple[int, str] | None:
        """Status and reason; None: it may be read."""
        said = request.headers
        hosts, origins, lengths = (
            said.get_all("Host", []),
            said.get_all("Origin", []),
            said.get_all("Content-Length", []),
        )
        if len(hosts) > 1 or len(set(lengths)) > 1 or (not hosts and request.request_version != "HTTP/1.0"):
            return 400, "one Host and one Content-Length are needed"
        if not all(is_own_host(each, self._address, self._hosts, self._machine) for each in hosts):
            return 403, "this Host is not ours; hosts= allows more"
        if not all(is_own_origin(each, self._address, self._origins, self._machine) for each in origins):
            return 403, "pages of other origins may not send; origins= allows more"
        if said.get("Sec-Fetch-Site", "") == "cross-site" and not origins:
            return 403, "pages of other origins may not send; origins= allows more"
        if self._token is not None and not bearer_is(f"Bearer {self._token}", said.get("Authorization", "")):
            return 401, "Authorization: Bearer TOKEN is needed"
        largest = self.limits.line_bytes
        length = lengths[0] if lengths else ""
        if request.path != path:
            return 404, f"POST lines to {path}, at most {largest >> 20} MB, with their length"
        if said.get("Content-Encoding", "identity").strip().lower() != "identity":
            return 415, "a compressed body is not read: send the lines as they are"
        if "Transfer-Encoding" in said:
            return 411, "a body in chunks is not read: send its length, Content-Length, and no Transfer-Encoding"
        if not (length.isascii() and length.isdigit()):
            return 411, "the length of the body is needed: Content-Length"
        if len(length) > 15 or int(length) > largest:
            return 413, f"at most {largest >> 20} MB"
        return None

    def _answer_refused(self, request: BaseHTTPRequestHandler, status: int, why: str) -> None:
        if status != 404:
            self._notices.say(f"{status}", f"requests are refused: {status} {why}")
        request.close_connection = True
        _answer(request, status, f"{why}\n")
        with contextlib.suppress(OSError):
            _drain(request.connection)


class _Guarded:
    """A threading server whose places are counted; `feed` is the feed it serves."""

    allow_reuse_address = daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    feed: LineFeed | None = None

    def __init__(self, *given: Any) -> None:
        self.places: dict[socket.socket, Guest] = {}
        super().__init__(*given)

    def process_request(self, request: socket.socket, client_address: Any) -> None:
        guest = self.feed._comes_in(request)
        if guest is None:
            self.shutdown_request(request)
            return
        self.places[request] = guest
        super().process_request(request, client_address)  # type: ignore[misc]

    def shutdown_request(self, request: socket.socket) -> None:
        guest = self.places.pop(request, None)
        if guest is not None:
            self.feed.door.leave(guest)
        super().shutdown_request(request)  # type: ignore[misc]

    def service_actions(self) -> None:
        if self.feed is not None:
            self.feed.door.show_out_late()

    def server_close(self) -> None:
        super().server_close()  # type: ignore[misc]
        if self.feed is not None:
            self.feed.door.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news, and the terminal is not ours."""


def _drain(client: socket.socket) -> None:
    """Read on for a moment: closed on what is still coming, the answer would be lost with it."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        client.settimeout(DRAIN_S)
        until_s, left = time.monotonic() + DRAIN_S, DRAIN_BYTES_MAX
        while left > 0 and time.monotonic() < until_s:
            more = client.recv(RECEIVE_BYTES)
            if not more:
                return
            left -= len(more)


def _response(status: int, text: bytes) -> bytes:
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return head.encode() + text


def _answer(request: BaseHTTPRequestHandler, status: int, text: str) -> None:
    request.send_response(status)
    if status == 401:
        request.send_header("WWW-Authenticate", "Bearer")
    if status in (429, 503):
        request.send_header("Retry-After", "1")
    if request.close_connection:
        request.send_header("Connection", "close")
    request.send_header("Content-Type", "text/plain; charset=utf-8")
    request.send_header("Content-Length", str(len(text.encode())))
    request.end_headers()
    request.wfile.write(text.encode())
