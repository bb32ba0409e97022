"""A source that goes silent and a database that is killed, in one real run: what status says, what the exits are.

Rows of docs/howto/when-things-fail.md. Nothing here waits for a time; each step waits
until the run says that it has seen the last.
"""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading

import psycopg
import pytest

from tests.live.runs import HANGS_S, ROOT, environ

HOLDFAST = [sys.executable, "-c", "from holdfast.cli.main import main; main()"]


class Troubles:
    def __init__(self, folder, postgres) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._folder = folder
        (folder / "troubles.py").write_text((ROOT / "tests" / "live" / "troubles.py").read_text())
        self._env = {**environ(), "PROBES_PORT": str(self.port), "PG_URL": postgres.url, "NO_COLOR": "1"}
        self._log = open(folder / "run.log", "w")
        self.run = subprocess.Popen(
            [*HOLDFAST, "run", "troubles.py"], cwd=folder, env=self._env, stdout=self._log, stderr=self._log,
            start_new_session=True,
        )  # fmt: skip

    def said(self) -> str:
        return (self._folder / "run.log").read_text()

    def status(self) -> tuple[dict, int]:
        shown = subprocess.run(
            [*HOLDFAST, "status", "troubles.py", "--json"], cwd=self._folder, env=self._env, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        return (json.loads(shown.stdout) if shown.returncode in (0, 1) else {}), shown.returncode

    def until(self, holds) -> tuple[dict, int]:
        """The first status of which this holds. One that never comes is a failure, not a hang."""
        seen = {}
        for _ in range(HANGS_S):
            assert self.run.poll() is None, self.said()
            seen, code = self.status()
            if seen and holds(seen):
                return seen, code
        raise AssertionError(f"never reported; last: {json.dumps(seen)}\n{self.said()}")

    def connect(self) -> socket.socket:
        pause = threading.Event()
        for _ in range(HANGS_S * 10):
            assert self.run.poll() is None, self.said()
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=60)
            except ConnectionRefusedError:
                pause.wait(0.1)
        raise AssertionError("nobody listens\n" + self.said())

    def stop(self) -> int:
        self.run.send_signal(signal.SIGTERM)
        return self.run.wait(HANGS_S)

    def close(self) -> None:
        self.run.kill()
        self.run.wait()
        self._log.close()


@pytest.fixture
def troubles(tmp_path, postgres):
    made = Troubles(tmp_path, postgres)
    yield made
    made.close()


def send(line: socket.socket, seconds) -> None:
    """Two rows a second, and wait until they are on disk."""
    rows = [
        {"ts": f"2026-01-01T00:00:{s:02}.{part}00Z", "zone": s % 3, "celsius": 50.0 + s}
        for s in seconds
        for part in (1, 6)
    ]
    line.sendall("".join(json.dumps(row) + "\n" for row in rows).encode())
    answer = b""
    while not answer.rstrip().endswith(f"ok {len(rows)}".encode()):
        part = line.recv(4096)
        assert part, f"closed after {answer!r}"
        answer += part


def sink(status: dict, name: str) -> dict:
    return next(each for each in status["sinks"] if each["name"] == name)


def test_silence_and_a_database_that_is_killed(troubles, postgres, tmp_path):
    with troubles.connect() as line:
        send(line, range(12))
    status, code = troubles.until(lambda status: sink(status, "hot")["written"] >= 11)
    status, code = troubles.until(lambda status: "silent" in status["units"][0]["why"])
    assert status["units"][0]["why"].startswith("held: source probes is silent")
    assert sink(status, "hot")["written"] == 11  # the twelfth is held, not sealed empty

    postgres.kill()
    with troubles.connect() as line:
        send(line, range(12, 24))
    status, code = troubles.until(
        lambda status: sink(status, "hot")["state"] == "AWAY" and sink(status, "beside")["written"] >= 23
    )
    assert code == 1
    assert "sink hot" in status["degraded"]
    assert sink(status, "hot")["written"] < 23
    assert {each["state"] for each in status["promises"]} == {"kept"}

    postgres.start()
    status, code = troubles.until(lambda status: sink(status, "hot")["written"] >= 23)
    assert sink(status, "hot")["state"] == "OK"
    assert troubles.stop() == 0, troubles.said()

    with sqlite3.connect(tmp_path / "hot.db") as db:
        beside = db.execute("select zone, celsius, count(*) from hot group by 1, 2 order by 2").fetchall()
    with psycopg.connect(postgres.url) as server:
        table = server.execute("select zone, celsius, count(*) from hot group by 1, 2 order by 2").fetchall()
    assert table == beside
    assert table == [(s % 3, 50.0 + s, 2) for s in range(10, 23)]
