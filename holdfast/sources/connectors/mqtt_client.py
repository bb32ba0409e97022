"""An MQTT subscription as a feed: one thread that reads, answers pings and sends acknowledgements.

The session is persistent and acknowledgements are ours to send: PUBACK goes out
when `logged` says that the rows are synced, so whatever was not logged the broker
still has and sends again. An acknowledgement belongs to the connection on which
its message came: after a reconnect the packet's number may mean another message,
so a stale one is not sent, and the message comes again.

Everything of the client runs in this feed's thread; nothing of it is shared.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import ssl
import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import xxhash

from holdfast.atomic import make_folder
from holdfast.errors import SourceError
from holdfast.sources.connectors.addresses import Address, Topic
from holdfast.sources.live.feed import Delivery, Known
from holdfast.sources.live.wire import split_payload

__all__ = ["MqttFeed"]

# A broker that is gone without a word is noticed after one and a half of these.
KEEPALIVE_S = 20
# Tries to reach a broker that is away: at once quickly, then at most so far apart.
BACK_OFF_S, BACK_OFF_S_MAX = 0.2, 15.0
CONNECT_TIMEOUT_S = 5.0
BATCH_ROWS_MAX = 100_000
# The token of a message a device sent with QoS 0: no connection has this number, and no broker sends it again.
UNACKNOWLEDGED = (0, 0)


class MqttFeed:
    small = True

    def __init__(
        self,
        address: Address,
        topic: Topic,
        *,
        source: str,
        client_id: str,
        login: str | None,
        ca: str | None,
        known_file: Path,
        tells_repeats: bool,
    ) -> None:
        self._address, self._topic, self._source = address, topic, source
        self._known_file, self._tells_repeats = known_file, tells_repeats
        self._client_id = client_id
        self._changed = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._acks: deque[tuple[int, int]] = deque()
        self._connection = 0  # counted, so that an acknowledgement knows its own
        self._goes_on = False  # the broker knows our session
        self._ready = False  # subscribed on this connection
        self._ever_ready = self._was_ready = False
        self._stopped = threading.Event()
        self._error: SourceError | None = None
        self._away_since, self._away_why = datetime.now(UTC), "not connected yet"
        self._thread: threading.Thread | None = None
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._client = self._made(login, ca)

    def _made(self, login: str | None, ca: str | None) -> mqtt.Client:
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            clean_session=False,
            manual_ack=True,
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        if login is not None:
            user, _, password = login.partition(":")
            client.username_pw_set(user, password or None)
        if self._address.scheme == "mqtts":
            context = ssl.create_default_context(cafile=ca)
            client.tls_set_context(context)
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_subscribe, client.on_message = self._on_subscribe, self._on_message
        return client

    # -- what the source's thread calls ----------------------------------------

    def start(self, known: Known) -> None:
        name = f"holdfast-mqtt-{self._source}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def take(self, wait_s: float) -> list[Delivery]:
        taken: list[Delivery] = []
        rows = 0
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._error, wait_s)
            while self._waiting and rows < BATCH_ROWS_MAX:
                taken.append(self._waiting.popleft())
                rows += len(taken[-1].items)
        return taken

    def logged(self, token: Any) -> None:
        self._acks.append(token)
        self._wake()

    def has_ended(self) -> bool:
        if self._error is not None and not self._waiting:
            raise self._error
        return False

    def part(self, delivery: Delivery, items: int) -> None:
        """Nothing: deliveries of a broker are whole."""

    def remark(self) -> str:
        if self._ready or self._stopped.is_set():
            return ""
        return f"cut off from {self._address} since {self._away_since:%Y-%m-%dT%H:%M:%SZ}: {self._away_why}"

    def stop(self) -> None:
        """Leaves; the session stays with the broker, which keeps what comes meanwhile."""
        self._stopped.set()
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CONNECT_TIMEOUT_S + 1)
            if not self._thread.is_alive() and self._wake_in >= 0:
                os.close(self._wake_in)
                os.close(self._wake_out)
                self._wake_in = self._wake_out = -1

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake
            os.write(self._wake_out, b".")

    # -- the feed's own thread ---------------------------------------------------

    def _run(self) -> None:
        wait_s = BACK_OFF_S
        try:
            while not self._stopped.is_set() and self._error is None:
                try:
                    self._connection += 1
                    self._acks.clear()  # of the connection before: those messages come again
                    self._client.connect(self._address.host, self._address.port, KEEPALIVE_S)
                    self._talk()
                except ssl.SSLCertVerificationError as error:
                    self._refused(
                        f"its certificate is not trusted: {error.verify_message}", "name the CA's file: ca='ca.pem'"
                    )
                except OSError as error:
                    self._away(error.strerror or str(error))
                if self._was_ready:
                    wait_s, self._was_ready = BACK_OFF_S, False
                self._away("")
                # Many clients come back at once when a broker does: not all in the same moment.
                self._stopped.wait(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(2 * wait_s, BACK_OFF_S_MAX)
        except Exception as error:
            with self._changed:
                self._error = SourceError(
                    "HF-S021",
                    "SourceRaised",
                    f"the subscription of source {self._source!r} raised {type(error).__name__}: {error}",
                    effect="what was logged stands; the broker keeps what was not acknowledged",
                    do="run again; if it comes again, report it with this text",
                )
                self._error.__cause__ = error
                self._changed.notify_all()
        finally:
            with contextlib.suppress(Exception):
                self._client.disconnect()

    def _talk(self) -> None:
        """Until the connection is gone, or we are asked to stop."""
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        while not self._stopped.is_set() and self._error is None:
            sock = self._client.socket()
            if sock is None:
                return
            wants = select.POLLIN | (select.POLLOUT if self._client.want_write() else 0)
            poll.register(sock.fileno(), wants)
            pending = self._address.scheme == "mqtts" and sock.pending() > 0  # type: ignore[attr-defined]
            ready = dict(poll.poll(0 if pending else 1000))
            if self._wake_in in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_in, 65536)
            if pending or ready.get(sock.fileno(), 0) & ~select.POLLOUT:
                self._client.loop_read()
            self._send_acks()
            if self._client.socket() is not None and self._client.want_write():
                self._client.loop_write()
            if self._client.loop_misc() != mqtt.MQTT_ERR_SUCCESS:
                return
        self._send_acks()

    def _send_acks(self) -> None:
        while self._acks and self._client.socket() is not None:
            connection, mid = self._acks.popleft()
            if connection == self._connection:
                self._client.ack(mid, 1)

    # -- what the client calls, in the same thread -------------------------------

    def _on_connect(self, client, userdata, flags, reason, properties) -> None:
        if reason.is_failure:
            if not self._ever_ready and "unavailable" not in str(reason):
                self._refused(str(reason), "look at login= and at what the broker allows this client")
            self._away(str(reason))
            return
        self._goes_on = bool(flags.session_present)
        if self._goes_on:
            with self._changed:  # taken by nobody, acknowledged to nobody: they come again, but for those of QoS 0
                kept = [each for each in self._waiting if each.token == UNACKNOWLEDGED]
                self._waiting.clear()
                self._waiting.extend(kept)
        wanted = {"client": self._client_id, "broker": str(self._address), "filter": self._topic.filter}
        known = self._subscribed()
        if self._goes_on and known == wanted:
            self._is_ready()  # subscribing again would bring retained messages once more
            return
        if self._goes_on and known is not None and known["filter"] != wanted["filter"]:
            client.unsubscribe(known["filter"])
        client.subscribe(self._topic.filter, qos=1)

    def _on_subscribe(self, client, userdata, mid, reasons, properties) -> None:
        if reasons[0].is_failure:
            self._refused(
                f"subscription to {self._topic.filter} was refused: {reasons[0]}", "look at the broker's access list"
            )
            return
        found = {"client": self._client_id, "broker": str(self._address), "filter": self._topic.filter}
        make_folder(self._known_file.parent, sync=True)
        self._known_file.write_text(json.dumps(found))
        self._is_ready()

    def _on_message(self, client, userdata, message: mqtt.MQTTMessage) -> None:
        topic = message.topic
        about = {"given": self._topic.given(topic), "where": f"topic {topic}"}
        items = list(split_payload(bytes(message.payload), **about))
        key, token = "", (self._connection, message.mid)
        if self._tells_repeats:  # QoS 0 too: it never comes again, but a batch without keys would hide those before it
            seen = xxhash.xxh3_64(topic.encode() + b"\0" + message.payload).hexdigest()
            key = f"{message.mid}:{seen}"
        with self._changed:
            again = message.dup and self._goes_on
            self._waiting.append(Delivery(items, token if message.qos else UNACKNOWLEDGED, key=key, again=again))
            self._changed.notify_all()

    def _on_disconnect(self, client, userdata, flags, reason, properties) -> None:
        self._away(str(reason))

    def _is_ready(self) -> None:
        self._ready = self._ever_ready = self._was_ready = True
        self._away_why = ""

    def _away(self, why: str) -> None:
        if self._ready:
            self._away_since, self._ready = datetime.now(UTC), False
        self._away_why = why or self._away_why or "connection lost"

    def _refused(self, why: str, do: str) -> None:
        with self._changed:
            self._error = SourceError(
                "HF-S016",
                "BrokerRefused",
                f"broker {self._address} refused us.",
                where=f"source {self._source!r}, client {self._client_id!r}",
                why=why,
                effect="nothing more was read; what was logged stands, the broker keeps what it has for us",
                do=do,
            )
            self._changed.notify_all()

    def _subscribed(self) -> dict | None:
        try:
            return json.loads(self._known_file.read_text())
        except (OSError, ValueError):
            return None
