"""Who may come in at a line source, how many at once, how much they may hold and how long they may take.

Nobody on the other side of a socket is trusted: a connection costs a thread and memory,
so both are counted. When all places are taken, the connection that has brought nothing
yet for longest gives way to the new one, then the one that has been silent longest; one
whose lines are being logged never does. So a crowd of idle connections cannot keep an
honest sender out. A line or a request that was begun has a time to be finished in. Bytes
that are held beyond a little for each come out of one store for all.

Pure but for the sockets it closes; time comes from outside.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from holdfast.sources.connectors.addresses import Address

__all__ = ["Door", "Guest", "Limits", "bearer_is", "is_own_host", "is_own_origin"]


@dataclass(frozen=True, slots=True)
class Limits:
    connections: int = 256  # a thread each
    line_bytes: int = 64 << 20  # a line without an end, a body: more is taken for a mistake
    free_bytes: int = 64 << 10  # what each may hold, whatever others hold
    held_bytes: int = 128 << 20  # what all may hold together beyond that
    greet_s: float = 10.0  # until the token has come
    finish_s: float = 60.0  # from the first byte of a line or request to its last
    idle_s: float = 60.0  # between two requests of one HTTP connection


@dataclass(eq=False, slots=True)
class Guest:
    """One connection, as the door sees it."""

    socket: socket.socket
    since_s: float  # when it came or last brought something
    due_s: float | None = None  # when it must have finished what it began
    brought: bool = False  # something was logged for it
    is_busy: bool = False  # its lines are on their way to disk
    held: int = 0  # bytes it holds beyond what is free
    why: str = field(default="")  # why it was shown out


class Door:
    def __init__(
        self, limits: Limits, monotonic: Callable[[], float], refuse: Callable[[socket.socket, str], None]
    ) -> None:
        """`refuse(socket, why)`: say so to whoever is shown out; called without a lock, must not block."""
        self.limits, self._monotonic, self._refuse = limits, monotonic, refuse
        self._lock = threading.Lock()
        self._guests: set[Guest] = set()
        self._held = 0

    @property
    def guests(self) -> int:
        return len(self._guests)

    @property
    def held_bytes(self) -> int:
        return self._held

    def admit(self, client: socket.socket, within_s: float | None) -> Guest | None:
        """A place, if need be that of another who does less with it; None: there is none."""
        now_s = self._monotonic()
        guest = Guest(client, now_s, None if within_s is None else now_s + within_s)
        out = None
        with self._lock:
            if len(self._guests) >= self.limits.connections:
                waiting = [each for each in self._guests if not each.is_busy]
                if not waiting:
                    return None
                out = min(waiting, key=lambda each: (each.brought, each.since_s))
                self._drop(out)
            self._guests.add(guest)
        if out is not None:
            self._show_out(out, "too many connections")
        return guest

    def leave(self, guest: Guest) -> None:
        with self._lock:
            self._drop(guest)

    def begins(self, guest: Guest, within_s: float | None) -> None:
        """It has begun something that must be finished in time; None: nothing is owed."""
        guest.due_s = None if within_s is None else self._monotonic() + within_s

    def logs(self, guest: Guest, is_busy: bool) -> None:
        guest.is_busy = is_busy
        if not is_busy:
            guest.brought, guest.since_s = True, self._monotonic()

    def hold(self, guest: Guest, size: int) -> bool:
        """Whether it may hold so many bytes now; it holds as many as before if it may not."""
        beyond = max(0, size - self.limits.free_bytes)
        with self._lock:
            if guest not in self._guests:
                return False
            if beyond > guest.held and self._held + beyond - guest.held > self.limits.held_bytes:
                return False
            self._held += beyond - guest.held
            guest.held = beyond
        return True

    def show_out_late(self) -> None:
        """End whatever was not finished in time."""
        now_s = self._monotonic()
        with self._lock:
            late = [each for each in self._guests if each.due_s is not None and each.due_s < now_s and not each.is_busy]
            for each in late:
                self._drop(each)
        for each in late:
            self._show_out(each, "too slow")

    def close(self) -> None:
        """Wake all who wait; one whose lines were being logged is answered by its own thread."""
        with self._lock:
            waiting = [each for each in self._guests if not each.is_busy]
        for each in waiting:
            _shut(each.socket)

    def _drop(self, guest: Guest) -> None:
        if guest in self._guests:
            self._guests.discard(guest)
            self._held -= guest.held
            guest.held = 0

    def _show_out(self, guest: Guest, why: str) -> None:
        guest.why = why
        self._refuse(guest.socket, why)
        _shut(guest.socket)  # its thread wakes up and goes


def _shut(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


# -- who is asked ------------------------------------------------------------------


def bearer_is(token: str, said: str | bytes) -> bool:
    """In a time that does not tell how much of it was right."""
    said = said.encode("utf-8", "surrogateescape") if isinstance(said, str) else said
    return hmac.compare_digest(token.encode(), said)


def is_own_host(said: str, address: Address, allowed: Collection[str], machine: str = "") -> bool:
    """Whether a request meant us: a page whose name was bent to our address says its own name (DNS rebinding)."""
    try:
        host = urlsplit(f"//{said.strip()}").hostname or ""
    except ValueError:
        return False
    return _is_own(host, address, allowed, machine)


def is_own_origin(said: str, address: Address, allowed: Collection[str], machine: str = "") -> bool:
    """Whether a page that a browser says is behind a request is one of ours; 'null' is nobody's."""
    said = said.strip()
    if said.rstrip("/") in allowed:
        return True
    try:
        found = urlsplit(said)
        host = found.hostname or ""
    except ValueError:
        return False
    return found.scheme in ("http", "https") and _is_own(host, address, allowed, machine)


def _is_own(host: str, address: Address, allowed: Collection[str], machine: str) -> bool:
    host = host.rstrip(".").lower()
    names = {"localhost", address.host.lower(), *(each.lower() for each in allowed)}
    is_everywhere = address.host in ("0.0.0.0", "::")
    if is_everywhere and machine:
        names.add(machine.lower())
    if not host:
        return False
    if host in names:
        return True
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return False
    # A number cannot be bent to another address as a name can.
    return number.is_loopback or is_everywhere
