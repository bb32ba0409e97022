"""What an error of a run tells the user to do is done, and the run goes on to the right table.

Each case breaks a small process, reads the error's `do`, does it, and compares the table in the end with that of a
run nobody disturbed.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.declare.loading import load
from holdfast.engine.check.types import infer
from holdfast.engine.run.run import start_graph
from holdfast.errors import HoldfastError

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

    def run(
        self, *, until: int | None = None, state: str = "state", own: bool = False, **settings
    ) -> HoldfastError | None:
        """None if it ended well."""
        (self.folder / "kiln.py").write_text(self.text)
        try:
            with start_graph(
                load(self.folder / "kiln.py").graph(), state=self.folder / state, spark=None if own else self._spark,
                until_frame=until, **settings,
            ) as run:  # fmt: skip
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

    def table(self, name: str = "warm", db: str = "kiln.db") -> list[tuple]:
        return sqlite3.connect(self.folder / db).execute(f"select ts, zone from {name} order by 1, 2").fetchall()

    def counts(self) -> dict[int, int]:
        return dict(sqlite3.connect(self.folder / "kiln.db").execute("select zone, max(n) from seen group by zone"))

    def is_whole(self) -> bool:
        return (
            len(self.table()) == 2 * FRAMES
            and len(set(self.table())) == 2 * FRAMES
            and self.counts() == {1: FRAMES, 2: FRAMES}
        )


@pytest.fixture
def kiln(tmp_path, spark, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Kiln(tmp_path, spark)


def test_an_operator_that_raised_is_corrected_and_its_frame_taken_again(kiln):
    """HF-O001, HF-O002, HF-O004: frames before it stand, the one that failed is made by the corrected function."""
    good = kiln.text
    kiln.text = good.replace(
        'return probes.where("celsius > 60")', "return probes.where('raise_error(string(celsius)) is null')"
    )
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


def test_an_open_session_is_handed_in(kiln):
    """HF-E003; that one may also stop it first, tests/spark/test_session.py shows."""
    kiln.refused("HF-E003", "hand it in: run(spark=spark)", own=True)
    assert kiln.run() is None
    assert kiln.is_whole()


def test_a_table_that_is_an_older_copy_is_put_back_or_made_anew(kiln):
    """HF-R006: the frames between the copy and now are gone, and would be missing in it for ever."""
    db, old, new = (kiln.folder / name for name in ("kiln.db", "old.db", "new.db"))
    assert kiln.run(until=2) is None
    shutil.copy(db, old)
    assert kiln.run() is None
    shutil.copy(db, new)
    shutil.copy(old, db)
    error = kiln.refused("HF-R006", "put the table back")
    assert "another table and a folder of its own: --state DIR" in error.do
    shutil.copy(new, db)
    assert kiln.run() is None
    assert kiln.is_whole()
    shutil.copy(old, db)
    kiln.text = kiln.text.replace("kiln.db", "other.db")
    assert kiln.run(state="second") is None
    assert (
        kiln.table(db="other.db") == sqlite3.connect(new).execute("select ts, zone from warm order by 1, 2").fetchall()
    )


HELD = 'probes.where("celsius < 73 or raise_error(string(celsius)) is null")'
HOT = """
@p.operator(over="frame")
def hot(probes):
    return probes.where("celsius > 70")
p.sink("hot", hf.write.sqlite("kiln.db", "hot"))
"""


def test_a_sink_that_was_away_goes_on_under_another_name(kiln):
    """HF-R006: what was made meanwhile was kept for nobody."""
    with_sink, sink = kiln.text, 'p.sink("warm", hf.write.sqlite("kiln.db", "warm"))'
    assert kiln.run(until=2) is None
    kiln.text = with_sink.replace(sink, "")
    assert kiln.run(until=4) is None
    kiln.text = with_sink
    error = kiln.refused("HF-R006", "sink('warm', ..., name='warm_2')")
    assert "frames 3 to 4" in error.why
    kiln.text = with_sink.replace(sink, 'p.sink("warm", hf.write.sqlite("kiln.db", "warm_2"), name="warm_2")')
    assert kiln.run() is None
    assert len(kiln.table()) == 4 and len(kiln.table("warm_2")) == 2 * (FRAMES - 4)


def test_a_unit_that_reads_another_stream_catches_up_first(kiln):
    """HF-R018: it was given up at its second frame, and the stream it is to read is long past that."""
    apart = HOT.replace('over="frame"', 'over="frame", apart=True')
    good = kiln.text
    kiln.text = good + apart.replace('probes.where("celsius > 70")', HELD)
    assert kiln.run().code == "HF-O001"
    kiln.text = good + apart.replace("probes", "warm")
    kiln.refused("HF-R018", "undo that change and run until 'hot' stands where 'warm' does")
    kiln.text = good + apart
    assert kiln.run() is None
    kiln.text = good + apart.replace("probes", "warm")
    assert kiln.run() is None
    assert kiln.is_whole() and len(kiln.table("hot")) == 2 * FRAMES


def test_a_stream_that_stands_behind_catches_up_before_another_unit_makes_it(kiln):
    """HF-R019: without it the function never saw the frames in between, and nobody said so."""
    head = kiln.text[: kiln.text.index("@p.keyed")]
    sink = 'p.sink("warm", hf.write.foreach_batch(lambda df, n: open("got", "a").write(f"{n} {df.count()}\\n")))\n'
    kiln.text = head.replace('probes.where("celsius > 60")', HELD) + sink + HOT
    assert kiln.run().code == "HF-O001"
    kiln.text = head + sink + HOT.replace("probes", "warm")
    kiln.refused("HF-R019", f"--until-frame {FRAMES + 1}")
    kiln.text = head + sink + HOT
    assert kiln.run(until=FRAMES + 1) is None
    kiln.text = head + sink + HOT.replace("probes", "warm")
    assert kiln.run() is None
    assert (kiln.folder / "got").read_text().split("\n") == [
        *(f"{n} 2" for n in range(1, FRAMES + 1)),
        f"{FRAMES + 1} 0",
        "",
    ]
    assert len(kiln.table("hot")) == 2 * FRAMES


def test_frames_before_are_there_after_a_stop_where_they_are_a_sources_or_the_edge_is_new(kiln):
    """Both ended as a defect of ours, at every start."""
    before = """
@p.operator(over="frame", apart=True, inputs={"last": hf.feedback("probes", schema="ts timestamp, zone int, celsius double")})
def steps(probes, last):
    return probes.join(last.selectExpr("zone", "celsius as was"), "zone", "left")
p.sink("steps", hf.write.sqlite("kiln.db", "steps"))
"""
    totals = """
@p.operator(over="frame", apart=True, inputs={"last": hf.feedback("totals", schema="zone int, n bigint")})
def totals(warm, last):
    return warm.selectExpr("zone", "1L as n").unionByName(last).groupBy("zone").agg({"n": "sum"}).withColumnRenamed("sum(n)", "n")
p.sink("totals", hf.write.sqlite("kiln.db", "totals"))
"""
    good = kiln.text
    kiln.text = good + before
    assert kiln.run(until=2) is None
    kiln.text = good + before + totals
    assert kiln.run(until=4) is None
    assert kiln.run() is None
    assert kiln.run() is None
    assert kiln.is_whole()
    db = sqlite3.connect(kiln.folder / "kiln.db")
    steps = db.execute("select celsius - was from steps order by ts").fetchall()
    assert steps == [(None,)] * 2 + [(1.0,)] * (2 * FRAMES - 2)
    assert db.execute("select max(n) from totals").fetchone() == (FRAMES - 2,), "counted from where it began"


def test_a_query_that_was_ended_from_outside_goes_on_when_it_is_run_again(kiln):
    """HF-U031: somebody cancels its job, as the links of Spark's own pages do."""
    begun, may_end = kiln.folder / "begun", kiln.folder / "may_end"
    kiln.text = kiln.text.replace('time="ts")', 'time="ts", restart=hf.restarts(tries=0))').replace(
        'return probes.where("celsius > 60")',
        f"""
    def wait(parts):
        import time
        from pathlib import Path
        Path({str(begun)!r}).touch()
        until = time.monotonic() + 60
        while not Path({str(may_end)!r}).exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield from parts
    return probes.where("celsius > 60").mapInPandas(wait, probes.schema)""",
    )

    def cancel():
        until = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < until:
            threading.Event().wait(0.01)
        kiln._spark.sparkContext.cancelAllJobs()
        may_end.touch()

    somebody = threading.Thread(target=cancel)
    somebody.start()
    error = kiln.refused("HF-U031", "run again: it goes on from there")
    somebody.join()
    assert "cancel" in error.what.lower()
    assert kiln.run() is None
    assert kiln.is_whole()


def shelf(declare, **settings):
    process = hf.StreamProcess("shelf", frame="1 second", time="ts", **settings)
    process.source("probes", hf.read.files("probes.csv"), schema="ts timestamp, zone int, celsius double")
    declare(process)
    return process


def found(process, spark):
    return [finding for finding in infer(process.graph(), spark)[1] if not finding.warning]


def own(function, **options):
    def declare(process):
        function.__name__ = "f"
        process.operator(**options)(function)

    return declare


def shows(make, view):
    def f(probes):
        getattr(probes, make)("hot")
        return probes.sparkSession.sql(f"select ts, zone from {view}")

    return f


def waits(probes):
    return probes.groupBy("zone", "ts").count().select("ts", "zone")


PLANS = {
    "HF-G041": (
        own(shows("createOrReplaceGlobalTempView", "global_temp.hot")), "createOrReplaceTempView",
        own(shows("createOrReplaceTempView", "hot")),
    ),
    "HF-G042": (
        own(lambda probes: probes.select("ts", "zone"), spark_conf={"spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "2"}),
        "or leave spark.executor.memory out",
        own(lambda probes: probes.select("ts", "zone"), spark_conf={"spark.sql.shuffle.partitions": "2"}),
    ),
    "HF-G042 of ours": (
        own(lambda probes: probes.select("ts", "zone"), spark_conf={"spark.sql.ansi.enabled": "false"}), "leave it out of spark_conf=",
        own(lambda probes: probes.select("ts", "zone")),
    ),
    "HF-G043": (
        own(lambda probes: waits(probes.withWatermark("ts", "10 seconds")), over="stream"), "lateness='10 seconds'",
        own(waits, over="stream", lateness="10 seconds"),
    ),
    "HF-G050": (
        lambda process: process.map("f", of="probes", select=["ts", "zone", "row_number() over (partition by zone order by ts) as r"]),
        "return rows.selectExpr(...)",
        own(lambda probes: probes.selectExpr("ts", "zone", "row_number() over (partition by zone order by ts) as r")),
    ),
    "HF-G050 aggregate": (
        lambda process: process.map("f", of="probes", select=["max(ts) as ts", "max(zone) as zone"]), "aggregate(...)",
        lambda process: process.aggregate("f", of="probes", by=["zone", "ts"], emits={"n": "count(*)"}),
    ),
    "HF-C050": (
        own(lambda probes: probes.selectExpr("ts", "zone", "ts - timestamp'2026-01-05' as age")), "cast(age as decimal(18,6))",
        own(lambda probes: probes.selectExpr("ts", "zone", "ts - timestamp'2026-01-05' as age").selectExpr("ts", "zone", "cast(age as decimal(18,6))")),
    ),
    "HF-C050 variant": (
        lambda process: process.map("f", of="probes", select=["ts", "zone", "array(parse_json(string(zone))) as `a b`"]),
        "cast(`a b` as array<string>)",
        lambda process: process.map("f", of="probes", select=["ts", "zone", "cast(array(parse_json(string(zone))) as array<string>) as `a b`"]),
    ),
    "HF-C050 text": (
        own(lambda probes: probes.selectExpr("ts", "zone", "'A' collate UNICODE_CI as name", "null as none")), "cast(name as string)",
        own(lambda probes: probes.selectExpr("ts", "zone", "cast('A' collate UNICODE_CI as string) as name", "cast(null as string) as none")),
    ),
}  # fmt: skip


def test_a_plan_is_accepted_once_it_is_written_as_the_rule_says(kiln, spark):
    """HF-G041, HF-G042, HF-G043, HF-G050, HF-C050: then it runs, and every row is there."""
    for name, (bad, said, good) in PLANS.items():
        [finding] = found(shelf(bad), spark)
        assert finding.code == name[:7], (name, str(finding))
        assert said in finding.do, (name, finding.do)
        assert found(shelf(good), spark) == [], name
    process, rows = hf.StreamProcess("shelf", frame="1 second", time="ts", state=str(kiln.folder / "shelf")), {}
    process.source("probes", hf.read.files(str(kiln.csv)), schema="ts timestamp, zone int, celsius double")
    for at, (_, _, good) in enumerate(PLANS.values()):
        good(Renamed(process, f"f{at}"))
        process.sink(
            f"f{at}",
            hf.write.callback(lambda table, n, got=rows.setdefault(at, []): got.extend(table["zone"].to_pylist())),
        )
    process.run(spark=spark)
    assert {at: sorted(got) for at, got in rows.items()} == dict.fromkeys(
        range(len(PLANS)), [1] * FRAMES + [2] * FRAMES
    )


class Renamed:
    """The process as a case sees it: what it declares has a name of its own."""

    def __init__(self, process, name) -> None:
        self._process, self._name = process, name

    def operator(self, **options):
        def declare(function):
            function.__name__ = self._name
            return self._process.operator(**options)(function)

        return declare

    def __getattr__(self, kind):
        return lambda name, **options: getattr(self._process, kind)(self._name, **options)


def test_a_stream_of_sparks_is_read_once_its_function_returns_one(spark, tmp_path):
    """HF-S015, HF-S018."""
    (tmp_path / "in").mkdir()
    schema = "ts timestamp, zone int"

    def declared(function):
        process = hf.StreamProcess("rates", frame="1 second", time="ts")
        process.source("rates", schema=schema)(function)
        process.map("all", of="rates", select=["*"])
        process.sink("all", hf.write.callback(lambda table, n: None))
        return process

    def raises(spark):
        return spark.readStream.format("parkett").schema(schema).load(str(tmp_path / "in"))

    def of_a_batch(spark):
        return spark.read.schema(schema).parquet(str(tmp_path / "in"))

    def right(spark):
        return spark.readStream.format("parquet").schema(schema).load(str(tmp_path / "in"))

    [finding] = found(declared(raises), spark)
    assert finding.code == "HF-S015" and "call it yourself with a session" in finding.do
    with pytest.raises(Exception, match="parkett"):
        raises(spark)
    assert right(spark).isStreaming
    assert found(declared(right), spark) == []
    [finding] = found(declared(of_a_batch), spark)
    assert (
        finding.code == "HF-S018"
        and "return spark.readStream...; for files that are there already take hf.read.files" in finding.do
    )
    process = hf.StreamProcess("rates", frame="1 second", time="ts")
    process.source("rates", hf.read.files(str(tmp_path / "in" / "*.parquet")), schema=schema)
    process.map("all", of="rates", select=["*"])
    process.sink("all", hf.write.callback(lambda table, n: None))
    assert found(process, spark) == []
