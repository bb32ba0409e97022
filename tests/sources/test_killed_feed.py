"""A logged source dies at any of its writes, again and again: no element is lost, none comes twice."""

import contextlib
import json
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sources.live.feed import Delivery
from holdfast.sources.live.logged_source import OpenFeed
from holdfast.sources.live.wire import Record

from .conftest import Driver


class Killed(BaseException):
    """Nothing after this point happened."""


class Sender:
    """A broker: hands out what is not acknowledged, from the first of it, after every restart."""

    def __init__(self, messages, lot, small, loses_acks):
        self.messages, self.lot, self.small = messages, lot, small
        self.acked, self._next, self._sent = set(), 0, set()
        # Every third acknowledgement gets lost, once.
        self._to_lose = set(range(0, len(messages), 3)) if loses_acks else set()
        self._id = "zone" if loses_acks else None

    def open(self, context):
        self._next = 0
        return OpenFeed(self, context, bounded=True, id_column=self._id)

    def start(self, known):
        pass

    def take(self, wait_s):
        found = []
        while self._next < len(self.messages) and len(found) < self.lot:
            number, payload = self._next, self.messages[self._next]
            self._next += 1
            if number not in self.acked:
                again = number in self._sent
                self._sent.add(number)
                items = [Record(json.dumps(each).encode()) for each in payload]
                found.append(Delivery(items, number, key=f"{number}:{payload[0]['zone']}", again=again))
        return found

    def logged(self, token):
        if token in self._to_lose:
            self._to_lose.remove(token)
        else:
            self.acked.add(token)

    def has_ended(self):
        return self._next >= len(self.messages)

    def part(self, delivery, items):
        return None

    def remark(self):
        return ""

    def stop(self):
        pass


def messages(sizes, steps):
    """Payloads of numbered elements."""
    found, number, at = [], 0, 0.0
    for size, step in zip(sizes, steps, strict=True):
        payload = []
        for _ in range(size):
            at = max(0.0, at + step)
            payload.append({"ts": f"2024-01-01T00:00:{at:09.6f}Z", "zone": number, "celsius": 1.0})
            number += 1
        found.append(payload)
    return found


def dies_at(monkeypatch, call):
    """The process is killed at its n-th sync, rename, or write to the staged file from now on."""
    left = [call]
    for name in ("fsync", "replace", "write", "ftruncate"):
        real = getattr(os, name)

        def watched(*args, real=real):
            left[0] -= 1
            if left[0] <= 0:  # and the dead write nothing more
                raise Killed
            return real(*args)

        monkeypatch.setattr(os, name, watched)


@pytest.mark.parametrize("loses_acks", [False, True])
@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    step=st.floats(-0.4, 1.2),
    kills=st.lists(st.integers(1, 14), max_size=5),
    lot=st.integers(1, 4),
    small=st.booleans(),
)
def test_whatever_it_was_writing_every_element_is_there_once(
    tmp_path_factory, loses_acks, sizes, step, kills, lot, small
):
    steps = [step if at % 3 else -step for at in range(len(sizes))]
    sender = Sender(messages(sizes, steps), lot, small, loses_acks)
    driver = Driver(tmp_path_factory.mktemp("killed"))
    sealed = {}
    for call in [*kills, None]:
        with pytest.MonkeyPatch.context() as patch:
            if call is not None:
                dies_at(patch, call)
            with contextlib.suppress(Killed):
                run(driver, sender, sealed)
    taken = [zone for n in sorted(sealed) for zone in sealed[n][1]]
    assert sorted(taken) == list(range(sum(sizes)))
    assert sorted(sealed) == list(range(1, len(sealed) + 1))


def run(driver, sender, sealed):
    """To the end, or to death; a frame that comes again must be the one it was."""
    source = driver.open(sender)
    try:
        for frame in source.frames(threading.Event()):
            found = (frame.checksum, driver.rows(frame.references).column("zone").to_pylist())
            assert sealed.setdefault(frame.n, found) == found
    finally:
        source.close()
