"""Hostile clients of line sources: nothing of theirs is taken, memory stays flat, and an honest one is served."""

import contextlib
import http.client
import resource
import socket
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import UsageError
from holdfast.sources import read
from holdfast.sources.connectors.addresses import Address
from holdfast.sources.connectors.door import Door, Limits, is_own_host, is_own_origin

from .test_lines import Listening, answers, line

TOKEN = "5f1c0ffee"


class Guarded(Listening):
    """With limits that a test can reach."""

    def __init__(self, driver, url, *, limits=None, **options):
        self._limits = limits or {}
        super().__init__(driver, url, **options)

    def opened(self, reader):
        source = reader.open(self.driver.context)
        feed = source._feed
        feed.limits = feed.door.limits = replace(feed.limits, **self._limits)
        return source

    def request(self, body, method="POST", path="/probes", **headers):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as client:
            client.putrequest(method, path, skip_host="Host" in headers)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                client.putheader(name.replace("_", "-"), value)
            client.endheaders()
            with contextlib.suppress(OSError):  # it may be refused before all was sent
                client.send(body)
            answer = client.getresponse()
            return answer.status, answer.read().decode()


def said(client):
    """Everything until it is closed."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(10_000):
            found += more
    return found.decode()


# -- who is asked --------------------------------------------------------------------


def test_a_tcp_client_says_the_token_first(driver, monkeypatch):
    monkeypatch.setenv("PROBE_TOKEN", TOKEN)
    with Guarded(driver, "tcp://127.0.0.1:0", token=hf.secret("PROBE_TOKEN")) as listening:
        for wrong in (
            line(1),
            f"token {TOKEN}x\n",
            f"token {TOKEN[:-1]}\n",
            "token\n",
            "\n",
            f"{TOKEN}\n",
            f"token\t{TOKEN}\n",
        ):
            with listening.tcp() as client:
                client.sendall((wrong + line(2)).encode())
                assert said(client).startswith("error token refused")
        with listening.tcp() as client:
            client.sendall(b"\x00\xff" * 4000)  # no line at all
            assert said(client).startswith("error token refused")
        with listening.tcp() as client:
            client.sendall(f"token {TOKEN}\r\n{line(3)}".encode())
            assert answers(client, 1) == ["ok 0", "ok 1"]
        assert listening.zones() == [3]


def test_an_http_client_says_the_token_with_every_request(driver):
    with Guarded(driver, "http://127.0.0.1:0/probes", token=TOKEN) as listening:
        body = line(1).encode()
        for headers in (
            {},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": TOKEN},
            {"Authorization": "Basic eDp5"},
        ):
            assert listening.request(body, **headers)[0] == 401
        assert listening.request(line(2).encode(), Authorization=f"Bearer {TOKEN}") == (200, "ok 1\n")
        assert listening.zones() == [2]


def test_the_token_is_shown_nowhere():
    reader = read.lines("tcp://127.0.0.1:9000", token=hf.secret("PROBE_TOKEN"))
    assert "token" not in reader.describe().lower()
    for token in ("", "q x", "q\nx", "\u00e4"):
        with pytest.raises(UsageError, match="HF-C034") as refused:
            read.lines("tcp://127.0.0.1:9000", token=token)
        assert not token or token not in str(refused.value)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://localhost.evil.example"}, 403),
        ({"Origin": "http://[::1"}, 403),
        ({"Host": "evil.example:9123"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "user@evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "http://127.0.0.1:9001"}, 200),
        ({"Origin": "https://ward.example.org"}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "probes.example.org"}, 200),
        ({"Host": "[::1]:9001"}, 200),
    ],
)
def test_pages_of_others_and_names_bent_to_us_are_refused(driver, headers, status):
    """A page in a browser on this machine could write: text/plain needs no preflight."""
    options = {"hosts": ["probes.example.org"], "origins": ["https://ward.example.org"]}
    with Guarded(driver, "http://127.0.0.1:0/probes", **options) as listening:
        assert listening.request(line(1).encode(), **{"Content-Type": "text/plain", **headers})[0] == status
        assert listening.zones() == ([1] if status == 200 else [])


def test_a_page_cannot_write_to_a_port_for_lines(driver):
    """Its request line and headers were bad lines, its body was taken."""
    driver.set(bad="drop")
    with Guarded(driver, "tcp://127.0.0.1:0") as listening:
        status, text = listening.request(line(1).encode())
        assert status == 400 and "takes lines" in text
        assert listening.zones() == []


def test_own_names_of_an_address_that_is_everywhere():
    everywhere = Address("http", "0.0.0.0", 9001, "")
    assert is_own_host("10.1.2.3:9001", everywhere, (), "edge-3")
    assert is_own_host("edge-3", everywhere, (), "edge-3")
    assert not is_own_host("evil.example", everywhere, (), "edge-3")
    assert not is_own_host("10.1.2.3", Address("http", "10.9.9.9", 9001, ""), ())
    assert is_own_host("10.9.9.9", Address("http", "10.9.9.9", 9001, ""), ())
    assert not is_own_origin("file://", everywhere, ())


# -- how much, how long ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "status"),
    [("x", 411), ("-1", 411), ("\u00b2".encode().decode("latin-1"), 411), ("9" * 40, 413), (str(65 << 20), 413)],
)
def test_a_length_that_cannot_be_is_answered(driver, length, status):
    with Guarded(driver, "http://127.0.0.1:0/probes") as listening:
        assert listening.request(b"", **{"Content-Length": length})[0] == status
        assert listening.request(line(1).encode())[0] == 200


def test_a_line_without_an_end_is_answered(driver):
    with Guarded(driver, "tcp://127.0.0.1:0", limits={"line_bytes": 1 << 20}) as listening, listening.tcp() as client:
        with contextlib.suppress(OSError):
            client.sendall(b"x" * (5 << 20))
        assert said(client) == "error line too long: at most 1 MB\n"


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "http://127.0.0.1:0/probes"])
def test_many_who_hold_much_are_refused_and_a_small_one_is_served(driver, url):
    """Six connections with 60 MB and no newline held 410 MB."""
    with Guarded(driver, url, limits={"held_bytes": 2 << 20}) as listening:
        clients = [listening.tcp() for _ in range(6)]
        head = (
            b""
            if url.startswith("tcp")
            else b"POST /probes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n"
        )
        tracemalloc.start()
        for client in clients:
            with contextlib.suppress(OSError):
                client.sendall(head + b"x" * (2 << 20))
        told = ""
        for client in clients:
            client.settimeout(2)
            with contextlib.suppress(OSError):
                told += client.recv(1000).decode()
        assert "too much is held" in told
        assert listening.source._feed.door.held_bytes <= 2 << 20
        assert tracemalloc.get_traced_memory()[0] < 40 << 20
        tracemalloc.stop()
        if head:
            assert listening.request(line(1).encode())[0] == 200
        else:
            with listening.tcp() as client:
                client.sendall(line(1).encode())
                answers(client, 1)
        assert listening.zones() == [1]
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("url", "begun", "limits", "told"),
    [
        ("tcp://127.0.0.1:0", b'{"ts":', {"finish_s": 0.3}, "error too slow\n"),
        ("http://127.0.0.1:0/probes", b"POST /probes HT", {"idle_s": 0.3}, "HTTP/1.1 408 "),
        (
            "http://127.0.0.1:0/probes",
            b"POST /probes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc",
            {"finish_s": 0.3},
            "HTTP/1.1 408 ",
        ),
    ],
)
def test_who_does_not_finish_is_told_and_goes(driver, url, begun, limits, told):
    with Guarded(driver, url, limits=limits) as listening, listening.tcp() as client:
        client.sendall(begun)
        assert said(client).startswith(told)


def test_who_never_says_the_token_goes(driver):
    with (
        Guarded(driver, "tcp://127.0.0.1:0", token=TOKEN, limits={"greet_s": 0.2}) as listening,
        listening.tcp() as client,
    ):
        assert said(client) == "error too slow\n"


# A process of its own: it may have as many sockets as we, and does not wait for our interpreter.
CROWD = """
import socket, sys
port, wave = int(sys.argv[1]), int(sys.argv[2])
junk = [b"", b"\\x00\\xff\\x16\\x03\\x01", b'{"ts":', b"x" * 1000]
for command in sys.stdin:
    crowd = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(wave)]
    for number, each in enumerate(crowd):
        try:
            each.send(junk[number % 4])
        except OSError:
            pass
    print("open", flush=True)
    sys.stdin.readline()
    told = crowd[0].recv(1000)
    print(told.decode(), end="", flush=True)
    for each in crowd:
        each.close()
"""


def test_ten_thousand_connections_keep_no_honest_client_out(driver, caplog):
    """In waves, for a process may not have as many sockets: whoever brought nothing gives way. One line in the log."""
    driver.set(bad="drop")
    wave = 100  # fewer than the queue of those who wait to be accepted: nobody has to knock again
    with Guarded(driver, "tcp://127.0.0.1:0", connections=64) as listening, listening.tcp() as early:
        early.sendall(line(1).encode())
        answers(early, 1)
        run = [sys.executable, "-c", CROWD, str(listening.port), str(wave)]
        with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
            opened, before = 0, None
            while opened < 10_000:
                print("come", file=crowd.stdin, flush=True)
                assert crowd.stdout.readline() == "open\n"
                opened += wave
                with listening.tcp() as honest:
                    honest.sendall(line(opened).encode())
                    assert answers(honest, 1) == ["ok 1"]
                assert listening.source._feed.door.guests <= 64
                print("go", file=crowd.stdin, flush=True)
                assert crowd.stdout.readline() == "error too many connections\n"
                resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
                before = before or resident  # after the first wave: threads and buffers are there
            crowd.stdin.close()
        assert resident - before < 32 << 20, "memory is flat"
        early.sendall(line(2).encode())  # who brought something before keeps his place
        answers(early, 2)
        listening.source._log.settle()
        assert len(listening.zones()) == 2 + opened // wave
    assert caplog.text.count("too many connections") <= 3, "once a minute, however many there were"


def test_a_door_counts_what_is_held_and_gives_it_back():
    a, b = socket.socketpair()
    told = []
    door = Door(Limits(connections=1, free_bytes=10, held_bytes=100), lambda: 0.0, lambda client, why: told.append(why))
    with a, b:
        first = door.admit(a, None)
        assert door.hold(first, 110) and not door.hold(first, 111)
        assert door.held_bytes == 100
        door.logs(first, True)
        assert door.admit(b, None) is None, "whose lines are being logged keeps his place"
        door.logs(first, False)
        second = door.admit(b, None)
        assert second is not None and told == ["too many connections"]
        assert door.held_bytes == 0 and not door.hold(first, 1)
        door.leave(second)
        assert door.guests == 0
