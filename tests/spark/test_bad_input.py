"""Each row of docs/bad-input.md happens here: the command is run, its code, exit and data are looked at.

The commands run in processes of their own, two at a time: a run starts Spark, and what
counts is what a shell sees.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.engine.observe.control import call
from holdfast.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "bad-input.md"
# A command takes seconds, a minute on a busy machine. One that takes this long hangs.
HANGS_S = 300


@dataclass(frozen=True)
class Row:
    input: str
    code: str
    exit: int


def table() -> list[Row]:
    lines = PAGE.read_text().split("\n\n")[2].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Row(input, code, int(exit)) for input, code, exit, *_ in cells]


@dataclass(frozen=True)
class Ended:
    exit: int
    said: str


SCENARIOS: dict[str, tuple[Callable[[Folder], dict[str, Ended]], tuple[str, ...]]] = {}


def produces(*inputs: str):
    """A scenario runs in a folder of its own and says how each of these rows ended."""

    def keep(function):
        SCENARIOS[function.__name__] = (function, inputs)
        return function

    return keep


class Folder:
    """A folder with a process file and its input, and the shell in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows(range(6))

    def rows(self, seconds, *, celsius: Callable[[int], object] = lambda second: 70 + second % 10) -> None:
        times = [f"2024-01-01T00:{second // 60:02}:{second % 60:02}Z" for second in seconds]
        lines = [f"{time},{second % 3},{celsius(second)}" for time, second in zip(times, seconds, strict=True)]
        (self.path / "probes.csv").write_text("\n".join(["ts,zone,celsius", *lines, ""]))

    def process(
        self, operators: str, *, read: str = '"probes.csv"', schema: str = "ts timestamp, zone int, celsius double"
    ) -> None:
        (self.path / "kiln.py").write_text(
            "from pathlib import Path\n"
            "from pyspark.sql import functions as F\n"
            "import holdfast as hf\n"
            'p = hf.StreamProcess("kiln", frame="1 second", time="ts")\n'
            f'p.source("probes", hf.read.files({read}), schema="{schema}")\n' + textwrap.dedent(operators)
        )

    @property
    def state(self) -> Path:
        return self.path / ".holdfast" / "kiln"

    def begin(self, *words: str, **environ: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", "from holdfast.cli.main import main; main()", *words],
            cwd=self.path,
            # Each JVM lives for seconds: its second compiler would cost as much as the rest.
            env={**os.environ, "PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def holdfast(self, *words: str, **environ: str) -> Ended:
        return self.end(self.begin(*words, **environ))

    def end(self, run: subprocess.Popen) -> Ended:
        try:
            said, _ = run.communicate(timeout=HANGS_S)
        except subprocess.TimeoutExpired:
            run.kill()
            raise AssertionError(f"it hangs\n{run.communicate()[0]}") from None
        return Ended(128 - run.returncode if run.returncode < 0 else run.returncode, said)

    def reaches(self, run: subprocess.Popen, what: Callable[[dict], bool]) -> dict:
        """Its status, once it says so."""
        while run.poll() is None:
            with contextlib.suppress(UsageError):
                status = call(self.state, {"do": "status"})
                if what(status):
                    return status
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(0.1)
        raise AssertionError(f"it ended before\n{self.end(run)}")

    def written(self) -> list[int]:
        """The frames in the ledger, in order; a frame written twice would stand here twice."""
        if not (self.path / "out.sqlite").exists():
            return []
        with contextlib.closing(sqlite3.connect(self.path / "out.sqlite")) as connection:
            return [n for (n,) in connection.execute("select frame from _holdfast_ledger order by frame")]

    def seconds(self) -> list[int]:
        with contextlib.closing(sqlite3.connect(self.path / "out.sqlite")) as connection:
            found = [ts for (ts,) in connection.execute("select ts from warm order by ts")]
        return [int(ts[14:16]) * 60 + int(ts[17:19]) for ts in found]


WARM = """
p.filter("warm", of="probes", where="celsius > 60")
p.sink("warm", hf.write.sqlite("out.sqlite", "warm"))
"""
# Frames come at the pace they were recorded at, so there is time to do something to the run.
SLOW = '"probes.csv", rate="as recorded"'
LONG = 300
LIMITED = """
p.param("limit", 60.0, between=(0, 100))

@p.operator(over="frame")
def warm(probes, *, limit):
    return probes.where(F.col("celsius") > limit)

p.sink("warm", hf.write.sqlite("out.sqlite", "warm"))
"""


@produces("a process file that is not there", "a command to a process that does not run")
def nothing_runs(folder: Folder):
    folder.process(WARM)
    found = {
        "a process file that is not there": folder.holdfast("run", "klin.py"),
        "a command to a process that does not run": folder.holdfast("stop", "kiln.py"),
    }
    assert "did you mean 'kiln.py'?" in found["a process file that is not there"].said
    assert not folder.state.exists()
    return found


@produces(
    "a source file that is missing",
    "a column of another type than declared",
    "a declared column the file does not have",
)
def unfit_source(folder: Folder):
    found = {}
    folder.process(WARM, read='"prubes/*.csv"')
    found["a source file that is missing"] = folder.holdfast("run", "kiln.py")
    folder.process(WARM, schema="ts timestamp, zona int, celsius double")
    found["a declared column the file does not have"] = folder.holdfast("run", "kiln.py")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), "zone": [1], "celsius": ["hot"]}),
        folder.path / "a.parquet",
    )
    folder.process(WARM, read='"a.parquet"')
    found["a column of another type than declared"] = folder.holdfast("run", "kiln.py")
    assert folder.written() == []
    assert not list(folder.state.glob("streams/*/*"))
    return found


@produces("a line that cannot be read")
def unreadable_line(folder: Folder):
    folder.rows(range(6), celsius=lambda second: 70 if second < 3 else "warm")
    folder.process(WARM)
    ended = folder.holdfast("run", "kiln.py")
    assert "probes.csv" in ended.said
    assert "line 5" in ended.said
    assert set(folder.written()) <= {1, 2, 3}
    return {"a line that cannot be read": ended}


@produces("an operator that reads a column its stream does not have", "an operator that raises when it is planned")
def unplannable(folder: Folder):
    folder.process(
        """
        @p.operator(over="frame")
        def warm(probes):
            return probes.where(F.col("celcius") > 60)

        @p.operator(over="frame")
        def named(probes):
            return probes.withColumn("name", F.lit({"zone": 1}["name"]))

        p.sink("warm", hf.write.sqlite("out.sqlite", "warm"))
        p.sink("named", hf.write.sqlite("out.sqlite", "named"))
        """
    )
    ended = folder.holdfast("check", "kiln.py")
    assert "did you mean 'celsius'?" in ended.said
    assert 'F.lit({"zone": 1}["name"])' in ended.said
    assert not (folder.path / "out.sqlite").exists()
    return dict.fromkeys(SCENARIOS["unplannable"][1], ended)


@produces("an operator that raises at a row")
def raising_operator(folder: Folder):
    folder.process(
        """
        @p.operator(over="frame")
        def warm(probes):
            return probes.withColumn("share", F.udf(share, "double")("celsius"))

        def share(celsius):
            return 1 / (73 - celsius)

        p.sink("warm", hf.write.sqlite("out.sqlite", "warm"))
        """
    )
    ended = folder.holdfast("run", "kiln.py")
    assert "ZeroDivisionError" in ended.said
    assert "1 / (73 - celsius)" in ended.said
    assert folder.written() == [1, 2, 3]
    assert folder.seconds() == [0, 1, 2]
    return {"an operator that raises at a row": ended}


@produces("a sink that fails")
def failing_sink(folder: Folder):
    folder.process(
        """
        def tell(table, frame):
            if frame >= 3:
                raise ConnectionError("the line is dead")
            with open(Path(__file__).parent / "told.txt", "a") as told:
                print(frame, file=told)

        p.filter("warm", of="probes", where="celsius > 60")
        p.sink("warm", hf.write.callback(tell))
        """
    )
    ended = folder.holdfast("run", "kiln.py")
    assert "the line is dead" in ended.said
    assert (folder.path / "told.txt").read_text().split() == ["1", "2"]
    waiting = sorted(int(path.name[:8]) for path in (folder.state / "streams" / "warm").glob("*.arrow"))
    assert waiting[0] == 3
    return {"a sink that fails": ended}


@produces(
    "a file changed while it is read",
    "a second run in the same state folder",
    "a parameter that does not exist",
    "a value out of range",
)
def meddled_with(folder: Folder):
    folder.rows(range(LONG))
    folder.process(LIMITED, read=SLOW)
    run = folder.begin("run", "kiln.py")
    folder.reaches(run, lambda status: status["frame"] >= 2)
    found = {
        "a second run in the same state folder": folder.holdfast("run", "kiln.py"),
        "a parameter that does not exist": folder.holdfast("set", "kiln.py", "limmit=70"),
        "a value out of range": folder.holdfast("set", "kiln.py", "limit=101"),
    }
    assert "did you mean 'limit'?" in found["a parameter that does not exist"].said
    assert "between 0 and 100" in found["a value out of range"].said
    status = folder.reaches(run, lambda status: True)
    assert (status["state"], status["params"]["limit"]["value"]) == ("running", 60.0)
    folder.rows(range(LONG), celsius=lambda second: 99)
    found["a file changed while it is read"] = folder.end(run)
    written = folder.written()
    assert written == list(range(1, written[-1] + 1))
    with contextlib.closing(sqlite3.connect(folder.path / "out.sqlite")) as connection:
        assert connection.execute("select count(*) from warm where celsius = 99").fetchone() == (0,)
    return found


@produces("a run that is killed", "a disk nearly full")
def killed_and_held(folder: Folder):
    folder.rows(range(LONG))
    folder.process(WARM, read=SLOW)
    run = folder.begin("run", "kiln.py")
    folder.reaches(run, lambda status: status["frame"] >= 2)
    run.send_signal(signal.SIGKILL)
    killed = folder.end(run)
    # What it had sealed and not yet written is written by the next run, whatever the disk is like.
    before = max(
        [*folder.written(), *(int(path.name[:8]) for path in (folder.state / "streams" / "warm").glob("*.arrow"))]
    )

    run = folder.begin("run", "kiln.py", HOLDFAST_DISK_RESERVE=str(10**18))
    status = folder.reaches(run, lambda status: any(unit["state"] == "HELD" for unit in status["units"]))
    assert "disk nearly full" in status["units"][0]["why"]
    assert "nothing is lost" in status["units"][0]["why"]
    shown = folder.holdfast("status", "kiln.py")
    assert "HELD" in shown.said
    assert "disk nearly full" in shown.said
    assert folder.holdfast("stop", "kiln.py").exit == 0
    held = folder.end(run)
    assert folder.written()[-1] <= before + 1

    assert folder.holdfast("run", "kiln.py", "--rate", "1000000").exit == 0
    assert folder.written() == list(range(1, LONG + 2))  # and the closing frame
    assert folder.seconds() == list(range(LONG))
    return {"a run that is killed": killed, "a disk nearly full": held}


# ---- the table ----


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, Future]:
    with ThreadPoolExecutor(2) as pool:
        yield {
            name: pool.submit(function, Folder(tmp_path_factory.mktemp(name)))
            for name, (function, _) in sorted(SCENARIOS.items(), key=lambda each: -len(each[1][1]))
        }


def test_every_row_of_the_table_is_produced_and_nothing_else():
    produced = [input for _, inputs in SCENARIOS.values() for input in inputs]
    assert sorted(produced) == sorted(row.input for row in table())


@pytest.mark.parametrize("row", table(), ids=lambda row: row.input)
def test_code_and_exit_are_those_of_the_table(row, outcomes):
    scenario = next(name for name, (_, inputs) in SCENARIOS.items() if row.input in inputs)
    ended = outcomes[scenario].result()[row.input]
    codes = re.findall(r"^(HF-[A-Z]\d{3}) (?!warning)", ended.said, flags=re.MULTILINE)
    assert ended.exit == row.exit, ended.said
    assert (row.code in codes) if row.code != "none" else codes == [], ended.said
    # The user's own lines may be shown with an error, a stack of ours or of Spark's never.
    assert "\nTraceback" not in ended.said, ended.said


@pytest.mark.parametrize("row", table(), ids=lambda row: row.input)
def test_every_code_of_the_table_is_explained(row):
    assert row.code == "none" or f"## {row.code} " in (ROOT / "docs" / "errors.md").read_text()
