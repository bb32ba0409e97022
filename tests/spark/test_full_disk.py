"""A disk that is truly full, by bytes or by inodes, under a run: it waits, and has every row when there is room again."""

from __future__ import annotations

import itertools
import os
import subprocess

import pytest

import holdfast as hf
from holdfast.engine.recover import supervisor
from holdfast.testing.runs import KeepingWriter
from tests.spark.processes import readings
from tests.spark.test_scenarios import Seen, begin, process, warm_of, whole


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, of 24 MB and 2,000 inodes."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=24m,nr_inodes=2000,mode=0700", "small", str(place)]
    if os.geteuid() != 0 or subprocess.run(options, capture_output=True).returncode:
        pytest.skip("only root can mount a disk; tests/engine/test_disks.py tries the parts")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill_bytes(place):
    with open(place / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            return
        finally:
            try:
                while file.write(b"\0" * 512):
                    pass
            except OSError:
                pass


def fill_inodes(place):
    (place / "fillers").mkdir()
    try:
        for at in itertools.count():
            (place / "fillers" / str(at)).touch()
    except OSError:
        return


def make_room(place):
    (place / "filler").unlink(missing_ok=True)
    subprocess.run(["rm", "-rf", str(place / "fillers")], check=True)


@pytest.mark.parametrize(
    ("fill", "on_host"),
    [(fill_bytes, False), (fill_inodes, False), (fill_bytes, True)],
    ids=["state bytes", "state inodes", "host"],
)
def test_a_full_disk_is_waited_for_and_every_row_is_there(fill, on_host, tmp_path, small_disk, spark, monkeypatch):
    """HF-U081: it ended the run with a bare number of an error. The reserve is taken by another program, so it is met in the middle."""
    monkeypatch.setenv("HOLDFAST_DISK_RESERVE", "0")
    monkeypatch.setattr(supervisor, "_ROOM_S", 0.1)
    home = tmp_path if on_host else small_disk
    settings = {"hosts": {"a": str(small_disk / "a"), "b": str(tmp_path / "b")}} if on_host else {}
    p = process(home, **settings)
    warm_of(p)
    if on_host:
        p.protect(hf.ecoc(hf.frames(2)))
    p.sink("warm", writer := KeepingWriter())
    seen = Seen()
    with begin(p, home, spark, on_progress=seen, rate="2x") as run:
        run.parts.disk.reserve_inodes = 0
        run.wait(frame=2)
        fill(small_disk)
        met = seen.wait_for(lambda status: any("full" in unit.why for unit in status.units))
        assert met.state == "running"
        make_room(small_disk)
        run.wait()
        status = run.status()
    assert status.state == "finished"
    assert whole(writer)["count"].to_pylist() == readings(1).to_pandas().query("celsius > 60")["count"].tolist()


@pytest.mark.parametrize("fill", [fill_bytes, fill_inodes], ids=["bytes", "inodes"])
def test_a_run_starts_once_there_is_room(fill, small_disk, spark, monkeypatch):
    """HF-E062."""
    monkeypatch.setenv("HOLDFAST_DISK_RESERVE", "0")
    p = process(small_disk)
    warm_of(p)
    p.sink("warm", writer := KeepingWriter())
    fill(small_disk)
    with pytest.raises(hf.HoldfastError) as refused:
        begin(p, small_disk, spark)
    assert refused.value.code == "HF-E062" and "free some space" in refused.value.do and "run again" in refused.value.do
    make_room(small_disk)
    with begin(p, small_disk, spark) as run:
        run.parts.disk.reserve_inodes = 0
        run.wait()
    assert whole(writer)["count"].to_pylist() == readings(1).to_pandas().query("celsius > 60")["count"].tolist()
