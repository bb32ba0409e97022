"""What an error of a run tells the user to do is done, and the run goes on to the right table.

Each case breaks a small process, reads the error's `do`, does it, and compares the table in the end with that of a
run nobody disturbed.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from holdfast.engine.run import start_graph
from holdfast.errors import HoldfastError
from holdfast.graph.loading import load

KILN = """
import holdfast as hf
p = hf.StreamProcess("kiln", frame="1 second", time="ts")
p.source("probes", hf.read.files("probes.csv"), schema="ts timestamp, zone int, celsius double")

@p.operator(over="frame")
def warm(probes):
    return probes.where("celsius > 60")

@p.keyed("zone", state="n bigint", emits="zone int, n bigint")
def seen(state, warm):
    n = warm.groupby("zone").size().rename("more").reset_index()
    both = state.merge(n, on="zone", how="outer").fillna(0)
    both["n"] = (both.n + both.more).astype("int64")
    out = both[["zone", "n"]]
    return out, out

p.sink("warm", hf.write.sqlite("kiln.db", "warm"))
p.sink("seen", hf.write.sqlite("kiln.db", "seen"))
"""
FRAMES = 6


def line(second: int, zone: int, celsius: float) -> str:
    return f"2026-01-05T06:00:{second:02}.{zone}00Z,{zone},{celsius}\n"


ROWS = "ts,zone,celsius\n" + "".join(line(n, zone, 70 + n + zone) for n in range(FRAMES) for zone in (1, 2))


class Kiln:
    """The process in a folder of its own, run as often as is asked."""

    def __init__(self, folder: Path, spark) -> None:
        self.folder, self._spark = folder, spark
        self.csv, self.text = folder / "probes.csv", KILN
        self.csv.write_text(ROWS)

    def run(self, *, until: int | None = None, state: str = "state", **settings) -> HoldfastError | None:
        """None if it ended well."""
        (self.folder / "kiln.py").write_text(self.text)
        try:
            with start_graph(
                load(self.folder / "kiln.py").graph(), state=self.folder / state, spark=self._spark, until_frame=until, **settings
            ) as run:
                run.wait()
        except HoldfastError as error:
            return error
        return None

    def refused(self, code: str, said: str, **settings) -> HoldfastError:
        error = self.run(**settings)
        findings = getattr(error, "findings", [error])
        assert error is not None, "nothing was refused"
        assert [finding.code for finding in findings] == [code]
        assert said in findings[0].do, findings[0].do
        return error

    def table(self, name: str = "warm") -> list[tuple]:
        return sqlite3.connect(self.folder / "kiln.db").execute(f"select ts, zone from {name} order by 1, 2").fetchall()

    def counts(self) -> dict[int, int]:
        return dict(sqlite3.connect(self.folder / "kiln.db").execute("select zone, max(n) from seen group by zone"))

    def is_whole(self) -> bool:
        return len(self.table()) == 2 * FRAMES and len(set(self.table())) == 2 * FRAMES and self.counts() == {1: FRAMES, 2: FRAMES}


@pytest.fixture
def kiln(tmp_path, spark, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Kiln(tmp_path, spark)


def test_an_operator_that_raised_is_corrected_and_its_frame_taken_again(kiln):
    """HF-O001, HF-O002, HF-O004: frames before it stand, the one that failed is made by the corrected function."""
    good = kiln.text
    kiln.text = good.replace('return probes.where("celsius > 60")', "return probes.where('raise_error(string(celsius)) is null')")
    kiln.refused("HF-O001", "run again")
    kiln.text = good.replace("return out, out", "return out")
    kiln.refused("HF-O002", "return state, out", keep=["seen"])
    kiln.text = good.replace("return out, out", "return out.assign(zone=9), out")
    kiln.refused("HF-O004", "keys handed in", keep=["seen"])
    kiln.text = good
    assert kiln.run(keep=["seen"]) is None
    assert kiln.is_whole()


def test_a_changed_process_goes_on_once_it_is_decided(kiln):
    """HF-R002, HF-R003, HF-R005."""
    assert kiln.run(until=3) is None
    good = kiln.text
    kiln.text = good.replace('frame="1 second"', 'frame="2 seconds"')
    kiln.refused("HF-R003", "--state DIR")
    kiln.text = good.replace("celsius > 60", "celsius > 61").replace(".fillna(0)", ".fillna(0).copy()")
    error = kiln.refused("HF-R002", "--keep seen")
    assert "--fresh seen" in error.do
    kiln.refused("HF-R005", "seen", keep=["sen"])
    assert kiln.run(keep=["seen"]) is None
    assert kiln.is_whole()


@pytest.mark.parametrize(
    ("code", "bad", "said"),
    [
        ("HF-S001", ('"probes.csv"', '"probs.csv"'), "probes.csv"),
        ("HF-S002", ("celsius double", "celsius double, site string"), "must name columns that are there"),
    ],
)
def test_a_file_source_runs_once_it_is_declared_as_the_error_says(kiln, code, bad, said):
    good = kiln.text
    kiln.text = good.replace(*bad)
    kiln.refused(code, said)
    kiln.text = good
    assert kiln.run() is None
    assert kiln.is_whole()


def test_a_bad_line_is_corrected_and_the_run_goes_on(kiln):
    """HF-S006, HF-S007."""
    kiln.csv.write_text(ROWS.replace(",2,75\n", ",2,hot\n", 1))
    kiln.refused("HF-S006", "correct the line")
    kiln.csv.write_text(ROWS)
    assert kiln.run() is None
    assert kiln.is_whole()


def test_rows_without_a_time_and_late_ones_go_where_the_error_says(kiln):
    """HF-S007, HF-F004."""
    schema = 'celsius double"'
    kiln.csv.write_text(ROWS + ",1,99.0\n")
    kiln.refused("HF-S007", "late='drop'")
    kiln.folder.joinpath("kiln.db").unlink(missing_ok=True)
    kiln.text = kiln.text.replace(schema, schema + ', late="drop"')
    assert kiln.run(state="second") is None
    assert kiln.is_whole()
    kiln.folder.joinpath("kiln.db").unlink()
    kiln.csv.write_text(ROWS + line(1, 3, 99.0))
    kiln.text = kiln.text.replace('late="drop"', 'late="fail"')
    kiln.refused("HF-F004", "late='admit', 'drop' or 'quarantine'", state="third")
    kiln.text = kiln.text.replace('late="fail"', 'late="drop"')
    kiln.folder.joinpath("kiln.db").unlink(missing_ok=True)
    assert kiln.run(state="fourth") is None
    assert kiln.is_whole()
