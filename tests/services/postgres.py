"""A real PostgreSQL server in a temporary folder: started, killed, started again.

Not in pytest's own folders: those are closed to the user the server runs as. It listens on a Unix socket in that folder and on a free port of the loopback
interface. It refuses to run as root, so root hands it to the user `postgres`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.services.programs import postgres_folder

__all__ = ["PostgresServer"]

#: Starting takes a second; a machine that is busy may need more.
_START_S_MAX = 120


class PostgresServer:
    """Use as a context manager; its folder is gone afterwards."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
        self.data = self.folder / "data"
        self._bin, self._environment = postgres_folder()
        self.port = _free_port()
        self.password = "correct-horse"
        self._server: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> PostgresServer:
        secret = self.folder / "password"
        secret.write_text(self.password)
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            for each in (self.folder, secret):
                os.chown(each, user.pw_uid, user.pw_gid)
        self._run(
            "initdb", "--pgdata", str(self.data), "--username=postgres", "--auth=scram-sha-256",
            "--pwfile", str(secret), "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)  # "immediate": no last checkpoint, it is thrown away
            self._server.wait(timeout=60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Returns when it takes connections. After a kill it first recovers from its log."""
        command = [str(self._bin / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}"]
        with open(self.folder / "log", "a") as log:
            # A child of ours, not of pg_ctl: a killed one has to be reaped before the next may start.
            self._server = subprocess.Popen(
                self._as_user(command), cwd="/", env=self._environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        until = time.monotonic() + _START_S_MAX
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, env=self._environment).returncode:
            running = self._server.poll() is None and time.monotonic() < until
            assert running, (self.folder / "log").read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to the server and its children: no clean-up, as when the machine loses power."""
        assert self._server is not None, "the server does not run"
        pid = self._server.pid
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        handles = []
        for each in children:
            with contextlib.suppress(ProcessLookupError):
                handles.append(os.pidfd_open(each))
        self._server.kill()
        self._server.wait()
        self._server = None
        for handle in handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            ready, _, _ = select.select([handle], [], [], 60)
            assert ready, "a killed process of the server is still there"
            os.close(handle)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            self._as_user([str(self._bin / program), *arguments]),
            cwd="/", env=self._environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    @staticmethod
    def _as_user(command: list[str]) -> list[str]:
        if os.geteuid() != 0:
            return command
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--reset-env", *command]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
