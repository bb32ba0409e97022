"""Tells somebody outside that a run is degraded, and when it is well again.

`on_degraded` is a command (gets the status as JSON on standard input), a webhook (gets
it by POST) or a Python function (gets it as a dict). It runs in a thread of its own: a
slow or broken receiver never holds a frame. That it failed is logged, and no more.
"""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import threading
import urllib.request
from collections.abc import Mapping
from typing import Any

from holdfast.graph.restarting import OnDegraded

__all__ = ["Alerts"]

_log = logging.getLogger("holdfast.alerts")
_PATIENCE_S = 30.0


class Alerts:
    def __init__(self, receiver: OnDegraded) -> None:
        self._receiver = receiver
        self._is_degraded = False
        self._threads: list[threading.Thread] = []

    def state(self, reason: str, story: Mapping[str, Any]) -> None:
        """`reason` is empty while all is well. Tells when that changes."""
        if bool(reason) == self._is_degraded:
            return
        self._is_degraded = bool(reason)
        if self._receiver is None:
            return
        message = {**story, "degraded": bool(reason), "reason": reason}
        thread = threading.Thread(target=self._send, args=(message,), name="alert", daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def close(self) -> None:
        for thread in self._threads:
            thread.join(timeout=_PATIENCE_S)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            if callable(self._receiver):
                self._receiver(message)
            elif self._receiver.startswith(("http://", "https://")):
                body = json.dumps(message, default=str).encode()
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(self._receiver, body, headers)
                urllib.request.urlopen(request, timeout=_PATIENCE_S).close()
            else:
                text = json.dumps(message, default=str)
                subprocess.run(
                    shlex.split(self._receiver),
                    input=text,
                    text=True,
                    timeout=_PATIENCE_S,
                    check=True,
                    capture_output=True,
                )
        except Exception as error:
            _log.error("on_degraded failed: %s: %s", type(error).__name__, error)
