"""What a monitoring system reads, over a real socket, from a real registry."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.engine.observe.metrics import MetricsServer, address_of
from holdfast.errors import EnvironmentRefused, UsageError

STATUS = {
    "process": "kiln", "state": "running", "frame": 12, "frames_per_s": 1.0, "error": "", "degraded": "",
    "sources": [{"name": "probes", "sealed": 13, "rows": 1300, "late": 2, "waiting": 1, "waiting_bytes": 5_000, "bytes_bound": 512_000}],
    "units": [{"name": "hot", "state": "RUNNING", "processed": 12, "ms_per_frame": 41.2, "why": "", "behind": 1, "restarts": 3,
               "too_late": 4}],
    "sinks": [{"name": "hot", "stream": "hot", "written": 12, "rows": 37, "lost": 2, "tainted": 5}],
    "promises": [{"sink": "hot", "promise": "within 5 s", "state": "BROKEN", "why": "late"},
                 {"sink": "hot", "promise": "lossless", "state": "kept", "why": ""},
                 {"sink": "hot", "promise": "in order", "state": "not measured", "why": ""}],
}  # fmt: skip


@pytest.fixture
def serving():
    status = dict(STATUS)
    server = MetricsServer(("127.0.0.1", 0), lambda: status)
    yield status, f"http://127.0.0.1:{server.port}"
    server.close()


def scraped(address):
    text = urllib.request.urlopen(f"{address}/metrics", timeout=10).read().decode()
    return {
        (sample.name, *(value for key, value in sorted(sample.labels.items()) if key != "process")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_figure_of_the_status_can_be_scraped(serving):
    _, address = serving

    found = scraped(address)

    assert found["holdfast_frames_sealed_total", "probes"] == 13
    assert found["holdfast_rows_late_total", "probes"] == 2
    assert found["holdfast_bytes_waiting", "probes"] == 5_000
    assert found["holdfast_frame_milliseconds", "hot"] == 41.2
    assert found["holdfast_frames_behind", "hot"] == 1
    assert found["holdfast_restarts_total", "hot"] == 3
    assert found["holdfast_frames_written_total", "hot"] == 12
    assert found["holdfast_rows_too_late_total", "hot"] == 4
    assert (found["holdfast_frames_lost_total", "hot"], found["holdfast_frames_tainted_total", "hot"]) == (2, 5)
    assert found["holdfast_unit_state", "RUNNING", "hot"] == 1
    assert found["holdfast_promise_kept", "within 5 s", "hot"] == 0
    assert found["holdfast_promise_kept", "lossless", "hot"] == 1
    assert ("holdfast_promise_kept", "in order", "hot") not in found
    assert (found["holdfast_degraded",], found["holdfast_running",], found["holdfast_frame",]) == (0, 1, 12)


def test_a_scrape_sees_the_status_of_its_moment(serving):
    status, address = serving
    assert scraped(address)["holdfast_degraded",] == 0

    status["degraded"] = "unit hot is RESTARTING"

    assert scraped(address)["holdfast_degraded",] == 1


def test_health_says_why_not(serving):
    """A service manager looks at the code, a person at the reason."""
    status, address = serving
    with urllib.request.urlopen(f"{address}/healthz", timeout=10) as answer:
        assert (answer.status, json.load(answer)["healthy"]) == (200, True)
    for change, why in (
        ({"degraded": "unit hot is GIVEN_UP"}, "unit hot is GIVEN_UP"),
        ({"state": "activating"}, "the run is activating"),
        (
            {"degraded": "", "state": "running", "error": "HF-K005 SinkFailed: full\n  why  x"},
            "HF-K005 SinkFailed: full",
        ),
    ):
        status.update(change)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{address}/healthz", timeout=10)
        assert caught.value.code == 503
        answer = json.load(caught.value)
        assert answer["why"] == why
        assert answer["broken"] == ["hot: within 5 s"]


def test_other_paths_are_not_there(serving):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{serving[1]}/", timeout=10)


@pytest.mark.parametrize("text", ["0.0.0.0:9464", "[::]:9464", "192.0.2.7:9464"])
def test_only_loopback_unless_it_is_meant(text):
    with pytest.raises(UsageError, match="HF-E024"):
        address_of(text)
    assert address_of(text, may_be_open=True)[1] == 9464


@pytest.mark.parametrize(
    ("text", "host"),
    [("127.0.0.1:9464", "127.0.0.1"), ("[::1]:9464", "::1"), (":9464", "127.0.0.1"), ("localhost:9464", "localhost")],
)
def test_loopback_has_many_names(text, host):
    assert address_of(text) == (host, 9464)


@pytest.mark.parametrize("text", ["9464", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:99999"])
def test_an_address_has_a_port(text):
    with pytest.raises(UsageError, match="HF-E023"):
        address_of(text)


def test_a_taken_port_is_said(serving):
    _, address = serving
    with pytest.raises(EnvironmentRefused, match="HF-E025"):
        MetricsServer(("127.0.0.1", int(address.rpartition(":")[2])), dict)
