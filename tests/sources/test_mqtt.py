"""Messages of a real broker: acknowledged when they are on disk, so that no kill loses one."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest

import holdfast as hf
from holdfast.errors import SourceError, UsageError
from holdfast.frames.clock import FrameClock
from holdfast.sources import read
from tests.services.mosquitto import Mosquitto
from tests.sources.subscriber import SECOND, context, logged_rows

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def broker(tmp_path):
    with Mosquitto(tmp_path / "broker") as found:
        yield found


def message(number, patient="ada"):
    body = {"ts": f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z", "number": number}
    return f"ward4/{patient}/ecg", json.dumps(body)


def reader(broker, **options):
    return read.mqtt(f"{broker.url}/ward4/{{patient}}/ecg", **options)


@contextmanager
def opened(reader, folder, **changes):
    """An open source that is listened to: once this is entered, the broker knows us."""
    source = reader.open(replace(context(folder), **changes))
    try:
        source.first_time_us(0)
        source._ingest(0)
        until(lambda: source.remark() == "" or source._has_ended())
        yield source
    finally:
        source.close()


def until(is_so, seconds=30.0):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


def take_in(source, rows):
    """Log until there are so many rows."""
    until(lambda: source._ingest(0.05) or source.logged >= rows)


def numbers(folder):
    return [row["number"] for row in logged_rows(folder / "log")]


def test_a_level_of_the_topic_becomes_a_column(broker, tmp_path):
    with opened(reader(broker), tmp_path / "s") as source:
        broker.publish([message(0, "ada"), message(1, "bob"), ("ward4/ada/spo2", "{}")])
        take_in(source, 2)
    assert [(row["patient"], row["number"]) for row in logged_rows(tmp_path / "s" / "log")] == [("ada", 0), ("bob", 1)]


def test_each_row_keeps_the_topic_it_came_under_whatever_else_comes(broker, tmp_path):
    """Empty, double and half payloads between good ones shifted the topic's column: a value of another patient."""
    with opened(reader(broker), tmp_path / "s", bad="drop") as source:
        sent = []
        for number in range(60):
            sent.append(message(number, f"p{number % 7}"))
            body = message(number, "x")[1]
            noise = ["", body + body, body[:-1] + ', "x":', "}" + body + body, "null", "[" + body + ", 5]"][number % 6]
            sent.append((f"ward4/mallory{number % 3}/ecg", noise))
        broker.publish(sent)
        until(lambda: source._ingest(0.05) or source.bad >= 60)
        take_in(source, 70)
    rows = logged_rows(tmp_path / "s" / "log")
    honest = [(row["patient"], row["number"]) for row in rows if not row["patient"].startswith("mallory")]
    assert honest == [(f"p{number % 7}", number) for number in range(60)]
    assert all(row["number"] % 6 == 5 for row in rows if row["patient"].startswith("mallory")), (
        "the object beside the 5"
    )


def test_the_columns_of_a_topic_never_come_from_the_payload(broker, tmp_path):
    """`#` matches the level above too; a topic that did not match left the column to the sender."""
    topics = read.mqtt(f"{broker.url}/ward4/{{patient}}/#")
    with opened(topics, tmp_path / "s") as source:
        body = json.dumps({"ts": "2026-01-01T00:00:00Z", "number": 1, "patient": "forged"})
        broker.publish([("ward4/ada", body), ("ward4/bob/ecg/lead/2", body)])
        take_in(source, 2)
    assert [row["patient"] for row in logged_rows(tmp_path / "s" / "log")] == ["ada", "bob"]


def test_what_comes_while_nobody_listens_is_there_afterwards(broker, tmp_path):
    """The session stays with the broker; a client that came as a new one would have lost it."""
    with opened(reader(broker), tmp_path / "s") as source:
        broker.publish([message(0)])
        take_in(source, 1)
    broker.publish([message(1), message(2)])
    with opened(reader(broker), tmp_path / "s") as source:
        take_in(source, 3)
    assert numbers(tmp_path / "s") == [0, 1, 2]


def test_a_message_that_was_not_logged_is_not_acknowledged(broker, tmp_path):
    with opened(reader(broker), tmp_path / "s") as source:
        broker.publish([message(0)])
        until(lambda: source._feed._waiting)
    with opened(reader(broker), tmp_path / "s") as source:
        take_in(source, 1)
    with opened(reader(broker), tmp_path / "s") as source:
        broker.publish([message(1)])
        take_in(source, 2)
    assert numbers(tmp_path / "s") == [0, 1], "once logged it is acknowledged and does not come again"


@pytest.mark.parametrize(("options", "changes"), [({}, {}), ({"id": "number"}, {"time": None})])
def test_a_message_whose_acknowledgement_got_lost_is_recognised(broker, tmp_path, options, changes):
    """By its id; or, where elements have a time, by the broker's word, its number and its bytes."""
    with opened(reader(broker, **options), tmp_path / "s", **changes) as source:
        source._feed._send_acks = lambda: source._feed._acks.clear()  # they never arrive
        broker.publish([message(0), message(1)])
        take_in(source, 2)
    with opened(reader(broker, **options), tmp_path / "s", **changes) as source:
        broker.publish([message(2)])
        take_in(source, 3)
    rows = logged_rows(tmp_path / "s" / "log", source._log._schema)
    assert sorted(row["number"] for row in rows) == [0, 1, 2]


def test_messages_of_qos_0_do_not_hide_what_came_before_them(broker, tmp_path):
    """A batch without a key was taken for the end of what may be repeated: the message before it came in twice."""
    with opened(reader(broker), tmp_path / "s") as source:
        source._feed._send_acks = lambda: source._feed._acks.clear()  # they never arrive
        broker.publish([message(0)])
        take_in(source, 1)
        source._log.settle()
        broker.publish([message(1)], qos=0)
        take_in(source, 2)
        source._log.settle()
    with opened(reader(broker), tmp_path / "s") as source:
        broker.publish([message(2)])
        take_in(source, 3)
    assert numbers(tmp_path / "s") == [0, 1, 2]


def test_a_broker_that_is_away_is_named_and_come_back_to(broker, tmp_path):
    with opened(reader(broker), tmp_path / "s") as source:
        broker.publish([message(0)])
        take_in(source, 1)
        broker.kill()
        until(source.remark)
        assert source.remark().startswith(f"cut off from {broker.url} since 20")
        broker.start()
        until(lambda: source.remark() == "")
        broker.publish([message(1)])
        take_in(source, 2)


def test_a_message_that_cannot_come_again_is_kept_when_the_connection_is_lost(broker, tmp_path):
    """What a device sends with QoS 0 no broker repeats: thrown away with the others, it is gone."""
    with opened(reader(broker), tmp_path / "s") as source:
        broker.publish([message(0)], qos=0)
        broker.publish([message(1)])
        until(lambda: len(source._feed._waiting) == 2)
        connection = source._feed._connection
        source._feed._client.socket().shutdown(socket.SHUT_RDWR)
        until(lambda: source._feed._connection > connection and source.remark() == "")
        take_in(source, 2)
    assert numbers(tmp_path / "s") == [0, 1]


def test_a_broker_that_is_not_there_yet_is_waited_for(tmp_path):
    broker = Mosquitto(tmp_path / "broker")
    source = reader(broker).open(context(tmp_path / "s"))
    source._ingest(0)
    until(lambda: "refused" in source.remark().lower())
    with broker:
        until(lambda: source.remark() == "")
    source.close()


def test_a_login_that_is_refused_stops_the_source(tmp_path, monkeypatch):
    monkeypatch.setenv("WARD_LOGIN", "ward:wrong")
    with Mosquitto(tmp_path / "broker", login="ward:right") as broker:
        with pytest.raises(SourceError, match="HF-S016 BrokerRefused") as refused:
            with opened(reader(broker, login=hf.secret("WARD_LOGIN")), tmp_path / "s") as source:
                take_in(source, 1)
        assert "wrong" not in str(refused.value)
        monkeypatch.setenv("WARD_LOGIN", "ward:right")
        with opened(reader(broker, login=hf.secret("WARD_LOGIN")), tmp_path / "s") as source:
            broker.publish([message(0)])
            take_in(source, 1)


def test_mqtts_trusts_the_named_ca_and_no_other(tmp_path):
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.pem"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    ca = str(tmp_path / "ca.pem")
    with Mosquitto(tmp_path / "broker", tls=(tmp_path / "ca.pem", tmp_path / "key.pem")) as broker:
        url = f"mqtts://127.0.0.1:{broker.port}/ward4/{{patient}}/ecg"
        with pytest.raises(SourceError, match=r"HF-S016(.|\n)*certificate"):
            with opened(read.mqtt(url), tmp_path / "a") as source:
                take_in(source, 1)
        with opened(read.mqtt(url, ca=ca), tmp_path / "b") as source:
            client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
            client.tls_set_context(ssl.create_default_context(cafile=ca))
            client.connect("127.0.0.1", broker.port)
            client.loop_start()
            client.publish(*message(0), qos=1).wait_for_publish(20)
            client.disconnect()
            client.loop_stop()
            take_in(source, 1)


@pytest.mark.parametrize("id", ["number", ""], ids=["with id", "without id"])
def test_kills_of_either_side_lose_no_row_and_double_none(tmp_path, id):
    """SIGKILL of our process while it logs, of the broker while it sends, several times over."""
    total, state = 600, tmp_path / "s"
    log = state / "log"
    with Mosquitto(tmp_path / "broker") as broker:
        command = [sys.executable, "-m", "tests.sources.subscriber", broker.url, str(state), id]

        def listening():
            known = (state / "subscribed.json").exists()
            child = subprocess.Popen(command, cwd=ROOT)
            until(lambda: known or (state / "subscribed.json").exists())
            return child

        def moves():
            """How far the log is; every delivery that is synced makes it longer."""
            staged = log / "staged"
            return sum(path.stat().st_size for path in (*log.glob("*.arrow"), *[staged] * staged.exists()))

        child = listening()
        try:
            for part in range(2):
                first = part * total // 2
                sender = threading.Thread(
                    target=broker.publish, args=([message(n) for n in range(first, first + total // 2)],)
                )
                before = moves()
                sender.start()
                until(lambda n=before: moves() > n)
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
                sender.join()
                child = listening()
                until(lambda n=first + total // 2: len(set(numbers(state))) == n)
                if id:
                    broker.kill()
                    broker.start()
                    # A broker may forget what it had not saved yet, or send again what it had; a device sends again.
                    broker.publish([message(n) for n in range(first, first + total // 2)])
            until(lambda: len(set(numbers(state))) == total)
        finally:
            child.kill()
            child.wait()
    assert Counter(numbers(state)) == Counter(range(total))


# -- declaring -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("http://broker/x", {}, "HF-C033"),
        ("mqtt://user:hunter2@broker/x", {}, "HF-C033"),
        ("mqtt://broker/ward{n}/x", {}, "HF-C033"),
        ("mqtt://broker/{a}/{a}", {}, "HF-C033"),
        ("mqtt://broker:port/x", {}, "HF-C033"),
        ("mqtt:///x", {}, "HF-C033"),
        ("mqtt://broker/x", {"qos": 0}, "HF-C034"),
    ],
)
def test_what_cannot_be_an_address_is_refused_when_it_is_declared(url, options, told):
    with pytest.raises(UsageError, match=told) as refused:
        read.mqtt(url, **options)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("options", [{"id": "serial"}, {}])
def test_columns_of_topic_and_id_must_be_declared(options):
    ward = hf.StreamProcess("ward", frame="1 second", time="ts")
    schema = "patient string, ts timestamp" if options else "ts timestamp"
    with pytest.raises(UsageError, match="HF-C034"):
        ward.source("ecg", hf.read.mqtt("mqtt://broker/{patient}/#", **options), schema=schema)


def test_declaring_imports_no_client():
    code = "import sys, holdfast as hf; hf.read.mqtt('mqtt://b/{p}/x'); hf.read.lines('tcp://127.0.0.1:1'); print('paho' in sys.modules, 'pyarrow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]


def test_frames_are_cut_by_the_time_in_the_payload(broker, tmp_path):
    with opened(reader(broker), tmp_path / "s", boundary="hold") as source:
        broker.publish([message(n) for n in (0, 0, 1, 3)])
        source.set_clock(FrameClock.starting(source.first_time_us(), SECOND))
        frames = source.frames(threading.Event())
        assert [next(frames).rows for _ in range(3)] == [2, 1, 0]
