"""A disk that is full: known as such wherever it is met, and waited for. Without Spark; on a real one in tests/spark."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from types import SimpleNamespace

import pytest

import holdfast as hf
from holdfast.engine.flow import disks
from holdfast.engine.flow import source_runner as intake_module
from holdfast.engine.flow.disks import DiskWatch, full_while_running, is_full
from holdfast.engine.recover.supervisor import Supervisor
from holdfast.engine.unit.spark_errors import explain, explain_start
from holdfast.errors import SinkError
from holdfast.graph.restarting import restarts
from holdfast.hosts.remembered import Remembered
from tests.engine.test_intake import SCHEMA, at, taken_in
from tests.engine.test_outlet import Plant
from tests.engine.test_supervisor import Clock, board  # noqa: F401  a fixture

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/disk/file")


def caused_by(error):
    try:
        try:
            raise error
        except Exception as cause:
            raise SinkError("HF-K005", "SinkRefused", "no.", effect="none") from cause
    except SinkError as found:
        return found


@pytest.mark.parametrize(
    "error",
    [FULL, OSError(errno.EDQUOT, "x"), sqlite3.OperationalError("database or disk is full"), caused_by(FULL),
     Exception("java.io.IOException: No space left on device"), "OSError: [Errno 28] No space left on device: 'x'"],
)  # fmt: skip
def test_a_full_disk_is_known_however_it_is_told(error):
    assert is_full(error)
    assert not is_full(OSError(errno.ENOENT, "gone")) and not is_full("frame 28") and not is_full(None)


def test_every_disk_is_looked_at_by_bytes_and_by_inodes(monkeypatch):
    """One disk was looked at, by bytes: a host's full disk, and one without inodes, ended the run."""
    plenty = (10**9, 10**9, 10**6, 10**6)
    rooms = {"/state": plenty, "/host": plenty}

    def statvfs(place):
        free, size, inodes, count = rooms[str(place)]
        return SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=size, f_favail=inodes, f_files=count)

    monkeypatch.setattr(disks.os, "statvfs", statvfs)
    watch = DiskWatch("/state", ["/host"])
    assert watch.held() == ""

    for place, room, words in (
        ("/state", (10**6, 10**9, 10**6, 10**6), "1 MB free, 268 MB reserved, /state"),
        ("/state", (10**9, 10**9, 100, 10**6), "100 inodes free, 1024 reserved, /state"),
        ("/host", (10**6, 10**9, 10**6, 10**6), "1 MB free, 125 MB reserved, /host"),
        ("/host", (10**9, 10**9, 0, 80), "0 inodes free, 10 reserved, /host"),
    ):
        rooms[place] = room
        assert words in watch.held() and "nothing is lost" in watch.held()
        rooms[place] = plenty
    rooms["/host"] = (10**6, 2 * 10**6, 0, 0)  # a small disk, of a kind that does not count inodes
    assert watch.held() == ""


def test_a_disk_that_was_full_holds_for_a_moment_whatever_it_says(tmp_path):
    now = [0.0]
    watch = DiskWatch(tmp_path, now=lambda: now[0])
    watch.reserve_bytes = watch.reserve_inodes = 0
    assert watch.held() == ""
    watch.met(FULL)
    assert "/disk/file" in watch.held()
    now[0] = 3.0
    assert watch.held() == ""


def test_it_is_never_a_bare_number():
    graph = SimpleNamespace(name="kiln")
    for error in (explain(graph, "pulse", None, FULL, 3), explain(graph, "pulse", None, caused_by(FULL), 3)):
        assert (error.code, error.name) == ("HF-U081", "DiskFull")
        assert "frame 4" in error.where and "nothing is lost" in error.effect and "it goes on by itself" in error.do
    assert "/disk/file" in explain(graph, "pulse", None, FULL, 3).where
    assert explain_start(graph, FULL).code == "HF-E062"


def test_a_unit_that_met_a_full_disk_waits_for_room_and_no_try_is_counted(board):
    clock = Clock()
    supervisor = Supervisor(board, restarts(tries=2), now=clock, chance=lambda: 0.0)
    board.held_for_space = "held: disk nearly full"
    for _ in range(20):  # many more than there are tries
        supervisor.died("pulse", 5, full_while_running("unit pulse", FULL, "nothing is lost"))
        clock.now_s += 10
        assert supervisor.due() == []
        assert "goes on when there is room" in board.units["pulse"].trouble
    board.held_for_space = ""
    assert supervisor.due() == ["pulse"]


def test_a_source_that_met_a_full_disk_goes_on_after_its_last_frame(tmp_path, monkeypatch):
    """Before a frame is handed out and after: each is handed out once, and noted."""
    process = hf.StreamProcess("feed", frame="1 second", time="ts")

    @process.source("pulses", schema=SCHEMA)
    def pulses():
        yield from ({"ts": at(n + 0.5), "number": n} for n in range(12))

    monkeypatch.setattr(intake_module, "_ROOM_S", 0.001)
    met = []

    def once(name, real):
        def wrapped(self, frame):
            if (name, frame.n) not in met and frame.n in (3, 7):
                met.append((name, frame.n))
                raise FULL
            return real(self, frame)

        return wrapped

    for name in ("_quarantine", "_note"):
        monkeypatch.setattr(intake_module.Intake, name, once(name, getattr(intake_module.Intake, name)))
    handed = []

    taken = taken_in(process, tmp_path, on_seal=lambda _, n: handed.append(n))

    assert met == [("_quarantine", 3), ("_note", 3), ("_quarantine", 7), ("_note", 7)]
    assert handed == list(range(1, 13))
    assert taken.error is None and taken.failed_source is None


def test_a_sink_on_a_full_disk_is_away_and_gets_its_frames(tmp_path):
    plant = Plant(tmp_path, hf.write.sqlite(str(tmp_path / "out.db"), "average"))
    fails = [FULL, SinkError("HF-K005", "SinkRefused", "no.", why="database or disk is full")]

    class Opened:
        def __init__(self, real):
            self.real = real

        def __getattr__(self, name):
            return getattr(self.real, name)

        def write(self, batch):
            if fails:
                raise fails.pop()
            return self.real.write(batch)

    plant.outlet._open = Opened(plant.outlet._open)
    plant.outlet.start()
    plant.seal(1)
    for _ in range(2):
        plant.waits.begun.get(timeout=60)
        assert is_full(plant.board.sinks_away["average"].why)
        plant.waits.is_over()
    plant.written(1)
    plant.outlet.halt()
    plant.outlet.join(60)
    assert plant.board.error is None


def test_notes_about_stores_need_no_room(tmp_path, monkeypatch):
    memory = Remembered(tmp_path)
    memory.note_claim("u", 1)

    def write(*given, **more):
        raise FULL

    monkeypatch.setattr("holdfast.hosts.remembered.write_whole", write)
    memory.note_claim("u", 2)
    assert Remembered(tmp_path).claimed("u") == 1


def test_a_source_that_waits_for_room_ends_with_its_run(monkeypatch):
    monkeypatch.setattr(intake_module, "_ROOM_S", 60)
    halted = threading.Event()
    halted.set()
    source = SimpleNamespace(
        source=SimpleNamespace(name="s"), _open=SimpleNamespace(close=lambda: None), _halted=halted
    )
    assert intake_module.Intake._opened_again(source, FULL) is False
