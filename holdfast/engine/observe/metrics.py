"""A run for a monitoring system: /metrics for Prometheus and /healthz, from the run's own status.

Every scrape takes one status, so what is scraped and what `holdfast status` shows
cannot differ. A registry of its own per run: nothing of other libraries, and two runs
in one os_process do not mix. Off unless asked for; on loopback unless that is asked for
as well, since names of streams and the pace of a ward are nobody else's business.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from holdfast.errors import EnvironmentRefused, UsageError

__all__ = ["MetricsServer", "address_of", "health", "registry_of"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Ask = Callable[[], Mapping[str, Any]]  # a status in its JSON form

# (metric, help, part of the status, field, label, is a counter)
_FIGURES = (
    ("holdfast_frames_sealed", "Highest frame a source has sealed.", "sources", "sealed", "source", True),
    ("holdfast_rows_sealed", "Rows a source has sealed in this run.", "sources", "rows", "source", True),
    ("holdfast_rows_late", "Rows that came late in this run.", "sources", "late", "source", True),
    ("holdfast_rows_bad", "Records that could not be read in this run.", "sources", "bad", "source", True),
    ("holdfast_frames_waiting", "Frames sealed and not yet taken.", "sources", "waiting", "source", False),
    ("holdfast_bytes_waiting", "Bytes of frames not yet taken.", "sources", "waiting_bytes", "source", False),
    ("holdfast_bytes_waiting_max", "Bound of the queue in bytes.", "sources", "bytes_bound", "source", False),
    ("holdfast_frames_processed", "Highest frame a unit has done.", "units", "processed", "unit", True),
    (
        "holdfast_frame_milliseconds",
        "What a frame takes a unit, a moving mean.",
        "units",
        "ms_per_frame",
        "unit",
        False,
    ),
    (
        "holdfast_frames_behind",
        "Frames sealed at the sources that a unit has not done.",
        "units",
        "behind",
        "unit",
        False,
    ),
    ("holdfast_restarts", "Restarts of a unit in this run.", "units", "restarts", "unit", True),
    ("holdfast_rows_too_late", "Rows too late for a window of the unit, dropped.", "units", "too_late", "unit", True),
    ("holdfast_frames_lost", "Frames of a sink's stream that are LOST.", "sinks", "lost", "sink", True),
    (
        "holdfast_frames_tainted",
        "Frames of a sink's stream made from something missing.",
        "sinks",
        "tainted",
        "sink",
        True,
    ),
    ("holdfast_frames_written", "Highest frame a sink has.", "sinks", "written", "sink", True),
    ("holdfast_rows_written", "Rows a sink was given in this run.", "sinks", "rows", "sink", True),
)


class _Collector:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def describe(self) -> list:
        return []  # so that registering asks for no status

    def collect(self) -> Iterator[Any]:
        status = self._ask()
        process = status["process"]
        for name, words, part, field, label, counts in _FIGURES:
            kind = CounterMetricFamily if counts else GaugeMetricFamily
            family = kind(name, words, labels=["process", label])
            for each in status.get(part, ()):
                if field in each:
                    family.add_metric([process, each["name"]], each[field])
            if family.samples:
                yield family
        state = GaugeMetricFamily(
            "holdfast_unit_state", "1 for the state a unit is in.", labels=["process", "unit", "state"]
        )
        for unit in status.get("units", ()):
            state.add_metric([process, unit["name"], unit["state"]], 1)
        yield state
        kept = GaugeMetricFamily("holdfast_promise_kept", "1 kept, 0 broken.", labels=["process", "sink", "promise"])
        for each in status.get("promises", ()):
            if each["state"] in ("kept", "BROKEN"):
                kept.add_metric([process, each["sink"], each["promise"]], each["state"] == "kept")
        yield kept
        for name, words, value in (
            ("holdfast_degraded", "1 while the run goes on and not as declared.", bool(status.get("degraded"))),
            ("holdfast_running", "1 while frames are worked off.", status["state"] == "running"),
        ):
            gauge = GaugeMetricFamily(name, words, labels=["process"])
            gauge.add_metric([process], value)
            yield gauge
        frame = GaugeMetricFamily("holdfast_frame", "Lowest frame that every sink has.", labels=["process"])
        frame.add_metric([process], status["frame"])
        yield frame


def registry_of(ask: Ask) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Collector(ask))
    return registry


def health(status: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """200 while the run goes on as declared; 503 with the reason otherwise."""
    why = status.get("degraded") or ""
    if status["state"] != "running":
        why = f"the run is {status['state']}"
    elif not why and status.get("error"):
        why = str(status["error"]).splitlines()[0]
    answer = {
        "process": status["process"],
        "healthy": not why,
        "state": status["state"],
        "frame": status["frame"],
        "why": why,
        "broken": [
            f"{each['sink']}: {each['promise']}" for each in status.get("promises", ()) if each["state"] == "BROKEN"
        ],
    }
    return (503 if why else 200), answer


def address_of(text: str, *, may_be_open: bool = False) -> tuple[str, int]:
    """HOST:PORT, [HOST]:PORT or :PORT; refused if others can reach it and nobody said they may."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not colon or not port.isdigit() or not int(port) < 65536:
        raise UsageError(
            "HF-E023",
            "NotAnAddress",
            f"metrics = {text!r} is no address.",
            effect="nothing was started",
            do="write HOST:PORT, e.g. 127.0.0.1:9464; port 0 takes a free one",
        )
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)}
    except OSError as error:
        raise _not_served(text, str(error)) from None
    if not may_be_open and not all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found):
        raise UsageError(
            "HF-E024",
            "MetricsOpen",
            f"{text} can be reached from other machines.",
            why="metrics have neither a login nor encryption",
            effect="nothing was started",
            do="take 127.0.0.1:PORT, or say that it is meant: --metrics-open, metrics_open = true",
        )
    return host, int(port)


class MetricsServer:
    """Serves until closed. `port` is the one taken, should 0 have been asked for."""

    def __init__(self, address: tuple[str, int], ask: Ask) -> None:
        registry = registry_of(ask)

        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # a client that says nothing does not hold a thread for ever

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._send(200, CONTENT_TYPE, generate_latest(registry))
                elif path == "/healthz":
                    code, answer = health(ask())
                    self._send(code, "application/json", json.dumps(answer).encode() + b"\n")
                else:
                    self._send(404, "text/plain", b"/metrics or /healthz\n")

            def _send(self, code: int, kind: str, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                """A scrape every few seconds is no news."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

            def handle_error(self, request: object, client: object) -> None:
                """A client that hangs up in the middle is no news either."""

        try:
            self._server = Server(address, Handler)
        except OSError as error:
            raise _not_served(f"{address[0]}:{address[1]}", error.strerror or str(error)) from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _not_served(address: str, why: str) -> EnvironmentRefused:
    return EnvironmentRefused(
        "HF-E025",
        "MetricsNotServed",
        f"metrics cannot be served at {address}.",
        why=why,
        effect="nothing was started",
        do="take another port, or 0 for any free one",
    )
