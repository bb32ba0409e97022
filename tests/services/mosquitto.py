"""A real Mosquitto broker on a free port of this machine: started, killed, started again where it was."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import paho.mqtt.client as mqtt

from tests.services.programs import mosquitto

__all__ = ["Mosquitto"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Mosquitto:
    """`with Mosquitto(folder) as broker:`; sessions and queued messages are kept in the folder."""

    def __init__(self, folder: Path, *, login: str | None = None, tls: tuple[Path, Path] | None = None) -> None:
        """`login`: user:password that clients must give. `tls`: certificate and key."""
        self.folder, self.port = Path(folder), free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._login = login
        lines = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {self.folder}/",
            # Written at once: what it has accepted it still has after a SIGKILL, all but the last moment.
            "autosave_interval 1",
            "autosave_on_changes true",
            # By default it throws away all but a thousand messages for a client that is not there.
            "max_queued_messages 0",
            "max_inflight_messages 1000",
            f"allow_anonymous {'false' if login else 'true'}",
        ]
        if os.getuid() == 0:
            lines.append("user root")
        if tls is not None:
            lines += [f"certfile {tls[0]}", f"keyfile {tls[1]}"]
        if login is not None:
            passwords = self.folder / "passwords"
            user, _, password = login.partition(":")
            passwords.write_text(_hashed(user, password))
            passwords.chmod(0o600)
            lines.append(f"password_file {passwords}")
        self.config = self.folder / "mosquitto.conf"
        self.config.write_text("\n".join(lines) + "\n")

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> Mosquitto:
        path, environment = mosquitto()
        with open(self.folder / "mosquitto.log", "ab") as log:
            self._process = subprocess.Popen([path, "-c", str(self.config)], stdout=log, stderr=log, env=environment)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError((self.folder / "mosquitto.log").read_text())

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            self._process.wait(20)
            self._process = None

    def __enter__(self) -> Mosquitto:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def publish(self, messages: Iterable[tuple[str, bytes | str]], qos: int = 1) -> None:
        """Returns when they are out; with QoS 1, when the broker has acknowledged all of them."""
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        if self._login is not None:
            client.username_pw_set(*self._login.split(":", 1))
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        try:
            assert connected.wait(20)
            sent = [client.publish(topic, payload, qos=qos) for topic, payload in messages]
            for each in sent:
                each.wait_for_publish(30)
                assert each.is_published()
        finally:
            client.disconnect()
            client.loop_stop()


def _hashed(user: str, password: str) -> str:
    """A line of a password file, as mosquitto_passwd writes it."""
    import base64
    import hashlib

    salt = os.urandom(12)
    found = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
    return f"{user}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(found).decode()}\n"
