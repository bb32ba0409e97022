"""Lines over TCP and HTTP: answered when they are on disk, and only then."""

import contextlib
import http.client
import json
import socket
import threading

import pytest

from holdfast.errors import SourceError, UsageError
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from tests.sources.subscriber import logged_rows

from .conftest import SCHEMA


class Listening:
    """An open source whose lines are logged by a thread, as the engine does."""

    def __init__(self, driver, url, **options):
        self.driver = driver
        self.source = self.opened(read.lines(url, **options))
        self.source._ingest(0)
        self.port = self.source._feed.port
        self.error, self._stop = None, threading.Event()
        self._thread = threading.Thread(target=self._log)
        self._thread.start()

    def opened(self, reader):
        return reader.open(self.driver.context)

    def _log(self):
        try:
            while not self._stop.is_set():
                self.source._ingest(0.02)
        except SourceError as error:
            self.error = error
            self.source.close()  # as the engine does: clients that wait get no answer

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stop.set()
        self._thread.join()
        self.source.close()

    def zones(self):
        return [row["zone"] for row in logged_rows(self.driver.context.directory / "log", SCHEMA)]

    def tcp(self):
        return socket.create_connection(("127.0.0.1", self.port), 20)

    def post(self, path, body):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as client:
            client.request("POST", path, body)
            answer = client.getresponse()
            return answer.status, answer.read().decode()


def line(zone, second=0):
    return json.dumps({"ts": f"2024-01-01T00:00:{second:02d}Z", "zone": zone, "celsius": 1.5}) + "\n"


def answers(client, until):
    """What it says, up to the answer `ok <until>`."""
    found = b""
    while not found.endswith(b"ok %d\n" % until):
        more = client.recv(1000)
        assert more, found
        found += more
    return found.decode().split("\n")[:-1]


def test_lines_over_tcp_are_answered_when_they_are_on_disk(driver):
    with Listening(driver, "tcp://127.0.0.1:0") as listening, listening.tcp() as client:
        client.sendall((line(1) + line(2)).encode())
        assert answers(client, 2)[-1] == "ok 2"
        assert listening.zones() == [1, 2]
        client.sendall((line(3) + "\n" + line(4)[:20]).encode())  # an empty line counts, half a line does not
        assert answers(client, 4)[-1] == "ok 4"
        client.sendall(line(4)[20:].encode())
        assert answers(client, 5)[-1] == "ok 5"
        assert listening.zones() == [1, 2, 3, 4]


def test_half_a_line_of_a_client_that_died_is_not_taken(driver):
    with Listening(driver, "tcp://127.0.0.1:0") as listening:
        with listening.tcp() as client:
            client.sendall(line(1).encode() + b'{"ts": null, "zone": 2, "celsius": 1}')
            answers(client, 1)
        with listening.tcp() as client:
            client.sendall(line(3).encode())
            answers(client, 1)
        assert listening.zones() == [1, 3]


def test_several_clients_are_served_at_once(driver):
    with Listening(driver, "tcp://127.0.0.1:0") as listening:
        clients = [listening.tcp() for _ in range(5)]
        for zone, client in enumerate(clients):
            client.sendall("".join(line(zone) for _ in range(100)).encode())
        for client in clients:
            answers(client, 100)
            client.close()
        assert sorted(listening.zones()) == sorted(list(range(5)) * 100)


def test_a_line_sent_again_is_left_out_by_its_id(driver):
    with Listening(driver, "tcp://127.0.0.1:0", id="zone") as listening, listening.tcp() as client:
        client.sendall((line(1) + line(2)).encode())
        answers(client, 2)
        client.sendall((line(2) + line(3)).encode())
        answers(client, 4)
        assert listening.zones() == [1, 2, 3]


def test_csv_lines_are_in_the_order_of_the_schema(driver):
    with Listening(driver, "tcp://localhost:0", format="csv") as listening, listening.tcp() as client:
        client.sendall(b"2024-01-01T00:00:00Z,7,1.5\n2024-01-01T00:00:01Z,,2\n")
        answers(client, 2)
        assert listening.zones() == [7, None]


def test_a_bad_line_stops_the_source_and_is_not_answered_as_taken(driver):
    with Listening(driver, "tcp://127.0.0.1:0") as listening, listening.tcp() as client:
        client.sendall(b"nonsense\n")
        assert client.recv(1000) == b"error stopped before it was synced: send it again\n"
    assert listening.error.code == "HF-S013"


def test_a_bad_line_in_quarantine_counts_as_taken(driver):
    driver.set(bad="quarantine")
    with Listening(driver, "tcp://127.0.0.1:0") as listening, listening.tcp() as client:
        client.sendall(b"nonsense\n")
        answers(client, 1)
        [path] = (driver.context.directory / "quarantine").iterdir()
        assert json.loads(path.read_text())["raw"] == "nonsense"


def test_a_post_is_answered_when_it_is_on_disk(driver):
    with Listening(driver, "http://127.0.0.1:0/probes") as listening:
        assert listening.post("/probes", line(1) + line(2)) == (200, "ok 2\n")
        assert listening.zones() == [1, 2]
        assert listening.post("/probes", f"[{line(3)}, {line(4)}]")[0] == 200
        assert listening.zones() == [1, 2, 3, 4]
        assert listening.post("/other", line(5))[0] == 404
        assert listening.zones() == [1, 2, 3, 4]


def test_a_post_that_cannot_be_taken_is_not_answered_as_if_it_were(driver):
    with Listening(driver, "http://127.0.0.1:0/probes") as listening:
        assert listening.post("/probes", "nonsense")[0] == 503


def test_a_port_that_is_taken_is_said(driver):
    with Listening(driver, "tcp://127.0.0.1:0") as listening:
        with pytest.raises(SourceError, match="HF-S017 CannotListen"):
            read.lines(f"tcp://127.0.0.1:{listening.port}").open(driver.context)._ingest(0)


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("tcp://0.0.0.0:9000", {}, "open_to_network"),
        ("tcp://10.1.2.3:9000", {}, "open_to_network"),
        ("tcp://127.0.0.1", {}, "HF-C033"),
        ("udp://127.0.0.1:9000", {}, "HF-C033"),
        ("tcp://127.0.0.1:9000", {"format": "xml"}, "HF-C034"),
    ],
)
def test_what_cannot_be_listened_to_is_refused_when_it_is_declared(url, options, told):
    with pytest.raises(UsageError, match=told):
        read.lines(url, **options)
    assert read.lines("tcp://0.0.0.0:9000", open_to_network=True)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Content-Encoding: gzip", 415),
        ("Content-Encoding: identity", 200),
        ("Transfer-Encoding: chunked", 411),
        ("transfer-encoding: identity", 411),
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused(driver, header, status):
    """A chunk's length is a line too; as text of CSV it would be a row."""
    with Listening(driver, "http://127.0.0.1:0/x") as listening, listening.tcp() as client:
        body = line(1)
        client.sendall(
            f"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\n{header}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 %d " % status)
        assert listening.zones() == [1] * (status == 200)


@pytest.mark.parametrize("kind", ["struct<a: int>", "array<int>", "double"])
def test_what_names_nothing_for_ever_is_no_id(kind):
    for reader in (read.lines("tcp://127.0.0.1:9000", id="serial"), read.mqtt("mqtt://127.0.0.1/a/b", id="serial")):
        with pytest.raises(UsageError, match="HF-C034"):
            reader.check_schema("probes", Schema.of(f"ts timestamp, serial {kind}"))
