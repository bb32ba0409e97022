"""Plays recordings to a broker as the devices of a ward would send them.

A message holds a second of one stream of one bed, as a JSON array; every element has a serial number. Messages go out
in order of time, with QoS 1, a few at once; when the broker goes away the devices wait for it and then repeat their
last half minute, because a broker that was killed may have forgotten what it had acknowledged last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
import pyarrow.parquet as pq

__all__ = ["Devices", "Message", "messages"]

REPEATED_S = 30
_AT_ONCE = 20
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Message:
    second: int
    topic: str
    payload: str


def messages(folder: Path, names: tuple[str, ...], seconds: int | None = None) -> list[Message]:
    """The Parquet files of these streams as messages, in the order in which they are sent."""
    found = []
    for name in names:
        table = pq.read_table(folder / f"{name}.parquet").to_pandas()
        start = table.ts.min().floor("min")
        table["serial"] = range(len(table))
        table["second"] = (table.ts - start).dt.total_seconds().astype(int)
        table["ts"] = table.ts.dt.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        levels = ["patient", "lead"] if "lead" in table else ["patient"]
        for (second, *parts), own in table.groupby(["second", *levels], sort=True):
            if seconds is None or second < seconds:
                topic = "/".join(["ward4", parts[0], name, *parts[1:]])
                rows = own.drop(columns=["second", *levels]).to_dict("records")
                found.append(Message(second, topic, json.dumps(rows)))
    return sorted(found, key=lambda message: message.second)


class Devices:
    """One connection to the broker, re-established whenever it breaks."""

    def __init__(self, broker: str) -> None:
        self._address = urlsplit(broker)
        self._client: mqtt.Client | None = None

    def play(
        self,
        sent: list[Message],
        *,
        ready: Callable[[], bool],
        speed: float = 20.0,
        at: Callable[[int], None] = lambda second: None,
    ) -> None:
        """Send all. `ready` says that a subscriber listens: until then only the first second is sent, again and
        again. `at` is called once at the beginning of each second of the recording.
        """
        first = [message for message in sent if message.second == 0]
        while not ready():
            self._send(first)
            time.sleep(0.5)  # a device's pause; nothing waits for it
        began, here, told = time.monotonic(), 0, -1
        while here < len(sent):
            second = sent[here].second
            if second > told:
                told = second
                at(second)
                time.sleep(max(0.0, began + second / speed - time.monotonic()))
            part = [message for message in sent[here : here + _AT_ONCE] if message.second == second]
            if self._send(part):
                here += len(part)
            else:
                here = next(i for i, message in enumerate(sent) if message.second >= second - REPEATED_S)
        self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
            self._client = None

    def _send(self, part: list[Message]) -> bool:
        """Whether the broker has acknowledged all of them."""
        if self._client is None and not self._connect():
            return False
        client = self._client
        try:
            waiting = [client.publish(message.topic, message.payload, qos=1) for message in part]
            until = time.monotonic() + _ANSWER_S
            while not all(each.is_published() for each in waiting):
                if not client.is_connected() or time.monotonic() > until:
                    raise ConnectionError
                time.sleep(0.002)
        except (ConnectionError, RuntimeError, ValueError):
            self.close()
            return False
        return True

    def _connect(self) -> bool:
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
        client.max_inflight_messages_set(_AT_ONCE)
        try:
            client.connect(self._address.hostname or "127.0.0.1", self._address.port or 1883)
        except OSError:
            time.sleep(0.2)
            return False
        client.loop_start()
        self._client = client
        until = time.monotonic() + _ANSWER_S
        while not client.is_connected():
            if time.monotonic() > until:
                self.close()
                return False
            time.sleep(0.01)
        return True
