"""What an error about a declaration tells the user to write is written, and then it is accepted.

A case is a line of the process file that is refused, and the line as the error's `do` says to write it.
What is put into the file must stand in `do`: a remedy that has to be guessed is none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.declare.loading import load
from holdfast.errors import HoldfastError, ProcessRefused
from holdfast.graph.rules import check_structure

PROCESS = """
import holdfast as hf
p = hf.StreamProcess("kiln", frame="1 second", time="ts")
p.param("limit", 80.0, between=(20, 120))
p.source("probes", hf.read.files("probes.csv"), schema="ts timestamp, zone int, celsius double")
p.filter("hot", of="probes", where="celsius > 80")
p.aggregate("mean", of="hot", by="zone", window="1 minute", emits={"mean": "avg(celsius)"})
p.sink("hot", hf.write.sqlite("kiln.db", "hot"))
p.sink("mean", hf.write.sqlite("kiln.db", "mean"))
"""
LIVE = """
p.source("lines", hf.read.lines("tcp://127.0.0.1:9000"), schema="ts timestamp, zone int")
p.filter("low", of="lines", where="zone < 3")
p.sink("low", hf.write.sqlite("kiln.db", "low"))
"""


@dataclass(frozen=True)
class Case:
    code: str
    line: str  # of PROCESS, or a new one at the end
    bad: str  # what stands there in its place
    said: str  # must be part of `do`
    mended: str = ""  # what the user writes then; `line` if empty
    more: str = ""  # further declarations

    def text(self, line: str) -> str:
        if self.line in PROCESS:
            return PROCESS.replace(self.line, line) + self.more
        return PROCESS + self.more + line + "\n"


FRAME, SOURCE = 'frame="1 second"', 'schema="ts timestamp, zone int, celsius double"'
FILTER = 'p.filter("hot", of="probes", where="celsius > 80")'
MEAN = 'window="1 minute", emits={"mean": "avg(celsius)"})'
SINK = 'p.sink("hot", hf.write.sqlite("kiln.db", "hot"))'
NEW = "p.protect(hf.none)"
KEYED = """
@p.keyed("zone", state="n int", emits="zone int, n int")
def counted(state, probes):
    return state, state
p.sink("counted", hf.write.sqlite("kiln.db", "counted"))
"""

CASES = [
    Case("HF-C001", FRAME, 'frame="1 secnd"', "'5 seconds'", 'frame="5 seconds"'),
    Case("HF-C001", FRAME, "frame=0", "frame='1 second'"),
    Case("HF-C002", f", {SOURCE}", "", "schema='ts timestamp, zone int, celsius double'"),
    Case("HF-C002", SOURCE, 'schema="ts timestamp zone int"', "'patient string, ts timestamp, mv double'"),
    Case("HF-C003", SOURCE, f'{SOURCE}, late="amit"', "'admit'", f'{SOURCE}, late="admit"'),
    Case("HF-C003", 'by="zone"', "by=3", "by='zone'"),
    Case("HF-C003", 'where="celsius > 80"', 'where=""', "where='celsius > 80'"),
    Case("HF-C003", 'time="ts"', "time=3", "time='ts'"),
    Case("HF-C003", "between=(20, 120)", "between=20", "between=(20, 120)"),
    Case("HF-C003", NEW, "p.protect(hf.ecoc)", "hf.ecoc(every='5 seconds')", 'p.protect(hf.ecoc(every="5 seconds"))'),
    Case("HF-C003", NEW, "p.protect(3)", "hf.none", NEW),
    Case("HF-C003", NEW, "p.protect(hf.none())", "hf.none without brackets", NEW),
    Case("HF-C003", 'time="ts")', 'time="ts", restart=8)', "restart=hf.restarts(tries=8)",
         'time="ts", restart=hf.restarts(tries=8))'),
    Case("HF-C003", 'time="ts")', 'time="ts", restart=hf.restarts(tries=-1))', "tries=8",
         'time="ts", restart=hf.restarts(tries=8))'),
    Case("HF-C003", 'time="ts")', 'time="ts", backup="/mnt/other")', "backup=hf.backup(copies=2)",
         'time="ts", backup=hf.backup(copies=2))'),
    Case("HF-C003", 'time="ts")', 'time="ts", backup=hf.backup("/mnt/a", copies=2))', "leave copies out",
         'time="ts", backup=hf.backup("/mnt/a"))'),
    Case("HF-C003", 'time="ts")', 'time="ts", backup=hf.backup(copies=2, needed=3))', "needed=2",
         'time="ts", backup=hf.backup(copies=2, needed=2))'),
    Case("HF-C003", 'time="ts")', 'time="ts", hosts="a")', 'hosts=("a", "b")', 'time="ts", hosts=("a", "b"))'),
    Case("HF-C003", 'time="ts")', 'time="ts", on_degraded=3)', "notify-send ward", 'time="ts", on_degraded="notify-send ward")'),
    Case("HF-C003", SINK, SINK[:-1] + ", promise=3)", "hf.lossless", SINK[:-1] + ", promise=hf.lossless)"),
    Case("HF-C003", 'p.union("both", of=["hot", "probes"])', 'p.union("both", of="hot")', "of=['a', 'b']",
         more='p.sink("both", hf.write.sqlite("kiln.db", "both"))\n'),
    Case("HF-C004", KEYED, KEYED.replace("(state, probes)", "(probes)"), "def counted(state, probes)"),
    Case("HF-C004", KEYED, KEYED.replace("(state, probes)", "(state, *probes)"), "write each port"),
    Case("HF-C005", FILTER, FILTER.replace('"hot"', '"hot rows"'), "'hot_rows'", FILTER.replace('"hot"', '"hot_rows"'),
         more='p.filter("hot", of="hot_rows", where="celsius > 80")\n'),
    Case("HF-C005", FILTER, FILTER.replace('"hot"', f'"{"h" * 101}"'), repr("h" * 100), FILTER.replace('"hot"', f'"{"h" * 100}"'),
         more=f'p.filter("hot", of="{"h" * 100}", where="celsius > 80")\n'),
    Case("HF-C006", SINK, SINK[:-1] + ", promise=hf.loses(at_most=5))", "0.01", SINK[:-1] + ", promise=hf.loses(at_most=0.01))"),
    Case("HF-C007", NEW, 'p.protect(hf.checkpoint(every=0))', "every='5 seconds'", 'p.protect(hf.checkpoint(every="5 seconds"))'),
    Case("HF-C007", NEW, 'p.protect(hf.checkpoint(every=hf.frames(0)))', "at least 1", 'p.protect(hf.checkpoint(every=hf.frames(1)))'),
    Case("HF-C008", 'time="ts")', 'time="ts", queue="lots")', "'512 MB'", 'time="ts", queue="512 MB")'),
    Case("HF-C011", 'emits={"mean": "avg(celsius)"}', "emits=[]", "emits={'mean': 'avg(celsius)'}"),
    Case("HF-C011", '"avg(celsius)"', '"avrage(celsius)"', "'avg'"),
    *(Case("HF-C011", '"avg(celsius)"', repr(bad), repr(said), repr(said)) for bad, said in [
        ("avg(celsius) filter (where zone > 1)", "avg(case when zone > 1 then celsius end)"),
        ("count(*) filter (where site = ')')", "count(case when site = ')' then 1 end)"),
        ("count(distinct `a (b`) filter (where true)", "count(distinct case when true then `a (b` end)"),
        ("max(celsius) - min(celsius)", "max(celsius)"),
        ("sum(celsius) over (partition by zone)", "sum(celsius)"),
        ("first(celsius, true)", "first(celsius)"),
        ("count(distinct zone, coalesce(celsius, 0))", "count(distinct to_json(struct(zone, coalesce(celsius, 0))))"),
    ]),
    Case("HF-C011", '"avg(celsius)"', '"max(distinct celsius)"', "'max(celsius)'", '"max(celsius)"'),
    Case("HF-C011", FILTER, FILTER + '\np.aggregate("f", of="hot", by="zone", emits={"x": "first(celsius) filter (where zone > 1)"})',
         "p.filter(NAME, of=..., where='zone > 1')",
         FILTER + '\np.filter("some", of="hot", where="zone > 1")\np.aggregate("f", of="some", by="zone", emits={"x": "first(celsius)"})',
         more='p.sink("f", hf.write.sqlite("kiln.db", "f"))\n'),
    Case("HF-C050", SOURCE, f'{SOURCE[:-1]}, took interval day to second"', "declare 'took decimal(18,6)'", f'{SOURCE[:-1]}, took decimal(18,6)"'),
    Case("HF-C050", SOURCE, f'{SOURCE[:-1]}, `a b` array<variant>"', "declare '`a b` array<string>'", f'{SOURCE[:-1]}, `a b` array<string>"'),
    Case("HF-C051", SOURCE, f'{SOURCE[:-1]}, Zone int"', "'Zone_2'", f'{SOURCE[:-1]}, Zone_2 int"'),
    Case("HF-C051", SOURCE, f'{SOURCE[:-1]}, zone int"', "'zone_2'", f'{SOURCE[:-1]}, zone_2 int"'),
    Case("HF-C051", SOURCE, f'{SOURCE[:-1]}, `` int"', "'column'", f'{SOURCE[:-1]}, column int"'),
    Case("HF-C012", MEAN, 'window="1 minute", session="1 minute", emits={"mean": "avg(celsius)"})', "keep session="),
    Case("HF-C012", MEAN, 'every="1 minute", emits={"mean": "avg(celsius)"})', "window="),
    Case("HF-C012", MEAN, 'every=hf.rows(3), ' + MEAN, "both as durations", 'every="30 seconds", ' + MEAN),
    Case("HF-C013", 'p.split("parts", of="probes", into={"hot": "celsius > 80", "cold": "celsius <= 80"})',
         'p.split("parts", of="probes", into=["hot"])', "into={'hot': 'celsius > 80', 'cold': 'celsius <= 80'}",
         more='p.sink("parts.hot", hf.write.sqlite("kiln.db", "a"))\np.sink("parts.cold", hf.write.sqlite("kiln.db", "b"))\n'),
    Case("HF-C015", KEYED, KEYED.replace('state="n int"', 'state="zone int, n int"'), "drop 'zone' from state="),
    Case("HF-C020", 'window="1 minute"', "window=hf.rows(0)", "at least 1", "window=hf.rows(1)"),
    Case("HF-C030", '"probes.csv")', '"probes.csv", rate="slow")', "'as recorded'", '"probes.csv", rate="as recorded")'),
    Case("HF-C031", '"probes.csv")', '"probes.csv", format="xml")', "'csv'", '"probes.csv", format="csv")'),
    Case("HF-C032", SOURCE, f'{SOURCE}, boundary="clock"', "drop boundary="),
    Case("HF-C032", SOURCE, f'{SOURCE}, new_columns="keep"', "_more string",
         f"{SOURCE[:-1]}, _more string\""),
    Case("HF-C033", 'hf.read.lines("tcp://127.0.0.1:9000")', 'hf.read.lines("nowhere")', "127.0.0.1:9000", more=LIVE),
    Case("HF-C034", 'hf.read.lines("tcp://127.0.0.1:9000")', 'hf.read.lines("tcp://127.0.0.1:9000", format="xml")', "format='json'", more=LIVE),
    Case("HF-C034", 'hf.read.lines("tcp://127.0.0.1:9000")', 'hf.read.lines("tcp://0.0.0.0:9000")', "127.0.0.1", more=LIVE),
    Case("HF-C044", NEW, 'p.protect(hf.ecoc(every="5 seconds", extended=True, two_phase=True))', "extended=True on cycles",
         'p.protect(hf.ecoc(every="5 seconds", two_phase=True))'),
    Case("HF-K011", 'hf.write.sqlite("kiln.db", "hot")', 'hf.write.sqlite("", "hot")', "hf.write.sqlite("),
    Case("HF-K011", 'hf.write.sqlite("kiln.db", "hot")', 'hf.write.sqlite("kiln.db", "SQLite_hot")', "'of_SQLite_hot'",
         'hf.write.sqlite("kiln.db", "of_SQLite_hot")'),
]  # fmt: skip


def found(text: str, folder: Path) -> tuple[str, str]:
    """(code, do) of what is wrong with the file; empty if nothing is."""
    path = folder / "kiln.py"
    path.write_text(text)
    try:
        wrong = [finding for finding in check_structure(load(path).graph()) if not finding.warning]
    except ProcessRefused as refused:
        wrong = refused.findings
    except HoldfastError as error:
        return error.code, error.do
    return (wrong[0].code, wrong[0].do) if wrong else ("", "")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.bad[:40]}".replace("\n", " "))
def test_a_declaration_is_accepted_once_it_is_written_as_its_error_says(case, tmp_path, monkeypatch):
    """HF-C001 to HF-C034, HF-C044, HF-C050, HF-C051, HF-K011: whoever does what the error says must not meet it again."""
    monkeypatch.chdir(tmp_path)
    Path("probes.csv").write_text("ts,zone,celsius\n")
    bad, mended = case.text(case.bad), case.text(case.mended or case.line)
    if case.more == LIVE:
        bad, mended = ((PROCESS + LIVE).replace(case.line, each) for each in (case.bad, case.mended or case.line))

    code, do = found(bad, tmp_path)

    assert code == case.code
    assert case.said in do
    assert found(mended, tmp_path) == ("", "")


def test_a_file_is_found_once_it_is_named_as_the_error_says(tmp_path, monkeypatch):
    """HF-C016, HF-C017, HF-C018, HF-C019."""
    monkeypatch.chdir(tmp_path)
    Path("kiln.py").write_text(PROCESS)
    Path("two.py").write_text(
        PROCESS + PROCESS.replace("p =", "q =").replace('"kiln"', '"other"').replace("\np.", "\nq.")
    )
    Path("none.py").write_text("import holdfast as hf\n")
    Path("raises.py").write_text(PROCESS.replace("import holdfast as hf", "import holdfest as hf"))

    told = {}
    for path in ("klin.py", "two.py", "two.py:w", "none.py", "raises.py"):
        with pytest.raises(HoldfastError) as refused:
            load(path)
        told[path] = refused.value

    assert [error.code for error in told.values()] == ["HF-C016", "HF-C018", "HF-C017", "HF-C017", "HF-C019"]
    assert load(told["klin.py"].do.split("'")[1]).name == "kiln"
    assert load(told["two.py"].do.removeprefix("say which: ")).name == "kiln"
    Path("none.py").write_text("import holdfast as hf\n" + told["none.py"].do)
    assert load("none.py").name == "name"


def test_a_secret_is_found_once_it_is_exported_as_the_error_says(monkeypatch):
    """HF-C009."""
    import holdfast as hf

    monkeypatch.delenv("KILN_TOKEN", raising=False)
    with pytest.raises(HoldfastError) as refused:
        hf.secret("KILN_TOKEN").open()
    assert refused.value.code == "HF-C009" and "export KILN_TOKEN=" in refused.value.do
    monkeypatch.setitem(os.environ, "KILN_TOKEN", "x")
    assert hf.secret("KILN_TOKEN").open() == "x"


WARNED = """
import holdfast as hf
p = hf.StreamProcess("kiln", frame="1 second", time="ts", state="/mnt/mirrored/kiln")
p.source("probes", hf.read.files("probes.csv"), schema="ts timestamp, zone int, celsius double")
p.filter("hot", of="probes", where="celsius > 80")
p.aggregate("sums", of="hot", by="zone", emits={"n": "count(*)"})
p.sink("sums", hf.write.sqlite("kiln.db", "sums"))
"""
LOSSLESS, LOSES = "promise=hf.lossless", "promise=hf.loses(at_most=0.1, wrong_at_most=0.1)"
SUMS = 'p.sink("sums", hf.write.sqlite("kiln.db", "sums"))'
LIVE_SOURCE = ('hf.read.files("probes.csv")', 'hf.read.lines("tcp://127.0.0.1:9000")')


def warned(code: str, text: str, folder: Path) -> str:
    """The `do` of the warning; empty if it does not come."""
    (folder / "kiln.py").write_text(text)
    return next((each.do for each in check_structure(load(folder / "kiln.py").graph()) if each.code == code), "")


@pytest.mark.parametrize(
    ("code", "bad", "said", "mended"),
    [
        ("HF-G030", ('where="celsius > 80"', 'where="celsius > 80"), p.param("limit", 80.0'), "", ('where="celsius > 80"', 'where="celsius > 80"')),
        ("HF-G031", ('"count(*)"})', '"count(*)"}, unit="one")\np.aggregate("more", of="sums", by="zone", emits={"m": "count(*)"}, unit="one")\n'
                     'p.sink("more", hf.write.sqlite("kiln.db", "more"))'), "",
         ('"count(*)"})', '"count(*)"})\np.aggregate("more", of="sums", by="zone", emits={"m": "count(*)"})\np.sink("more", hf.write.sqlite("kiln.db", "more"))')),
        ("HF-L001", (SUMS, f"{SUMS[:-1]}, {LOSSLESS})\np.protect(hf.checkpoint(every='5 seconds'))"), "p.protect(hf.ecoc(every='5 seconds'))",
         (SUMS, f"{SUMS[:-1]}, {LOSSLESS})\np.protect(hf.ecoc(every='5 seconds'))")),
        ("HF-L011", (SUMS, f"{SUMS[:-1]}, {LOSES})\np.protect(hf.checkpoint(every='5 seconds'), 'hot')"), "stabilises='5 minutes'",
         ('"count(*)"})\n' + SUMS, '"count(*)"}, stabilises="5 minutes")\n' + f"{SUMS[:-1]}, {LOSES})\np.protect(hf.checkpoint(every='5 seconds'), 'hot')")),
        ("HF-L011", (SUMS, f"{SUMS[:-1]}, {LOSES})\np.protect(hf.checkpoint(every='5 seconds'), 'hot')"), " p.protect(hf.ecoc(every='5 seconds'))",
         (SUMS, f"{SUMS[:-1]}, {LOSES})\np.protect(hf.ecoc(every='5 seconds'))")),
    ],
    ids=["G030", "G031", "L001", "L011 stabilises", "L011 protected"],
)  # fmt: skip
def test_a_warning_goes_away_once_its_words_are_followed(code, bad, said, mended, tmp_path):
    """HF-G030, HF-G031, HF-L001, HF-L011."""
    assert bad[0] in WARNED and mended[0] in WARNED
    do = warned(code, WARNED.replace(*bad), tmp_path)
    assert do and said in do, do
    assert warned(code, WARNED.replace(*mended), tmp_path) == ""


@pytest.mark.parametrize(
    "sink",
    [
        'made.sink("sums", hf.write.sqlite("kiln.db", "sums"), %s)',
        'made.sink(\n    "sums",\n    hf.write.sqlite("kiln.db", "sums"), %s)',
    ],
)
def test_a_remedy_names_the_process_as_the_user_does(sink, tmp_path, monkeypatch):
    """HF-L001 said `process.protect(...)`, and a variable of that name there was none."""
    text = (
        WARNED.replace("p = ", "made = ")
        .replace("\np.", "\nmade.")
        .replace(SUMS.replace("p.", "made.", 1), sink % LOSSLESS)
    )
    assert warned("HF-L001", text, tmp_path).startswith("made.protect(")
    monkeypatch.chdir(tmp_path)
    assert warned("HF-L001", text, tmp_path).startswith("made.protect(")


def test_what_a_sender_keeps_may_be_promised(tmp_path):
    """HF-L010: "let the senders keep what they sent and read it as files"."""
    promised = WARNED.replace(SUMS, f"{SUMS[:-1]}, {LOSSLESS})\np.protect(hf.ecoc(every='5 seconds'))")
    assert "read it as files" in warned("HF-L010", promised.replace(*LIVE_SOURCE), tmp_path)
    assert warned("HF-L010", promised, tmp_path) == ""


REMEMBERS = """
SEEN = {}
@p.keyed("zone", state="n int", emits="zone int, n int")
def counted(state, hot):
    SEEN["n"] = len(hot)
    return state, state
p.sink("counted", hf.write.sqlite("kiln.db", "counted"))
"""
KEEPS_STATE = REMEMBERS.replace("SEEN = {}\n", "").replace(
    '    SEEN["n"] = len(hot)\n', "    state = state.assign(n=len(hot))\n"
)


@pytest.mark.parametrize(
    ("code", "bad", "said", "mended"),
    [
        ("HF-G040", WARNED + REMEMBERS, "the state of a keyed operator", WARNED + KEEPS_STATE),
        (
            "HF-G044",
            WARNED.replace("celsius", "_frame"),
            "give it another name: 'frame'",
            WARNED.replace("celsius", "frame"),
        ),
    ],
    ids=["G040", "G044"],
)
def test_an_operator_or_a_column_is_accepted_once_it_is_written_as_the_rule_says(code, bad, said, mended, tmp_path):
    """HF-G040, HF-G044; and HF-U070, which says the same of what only a run can see."""
    assert said in warned(code, bad, tmp_path)
    assert warned(code, mended, tmp_path) == ""
    assert found(mended, tmp_path) == ("", "")


def test_rows_are_cut_once_they_have_the_time_that_the_error_asks_for():
    """HF-G046."""
    import holdfast as hf
    from holdfast.testing.cuts import same_however_cut

    def declared(select):
        made = hf.StreamProcess("kiln", frame="1 second", time="ts")
        made.source("probes", hf.read.files("probes.csv"), schema="ts timestamp, zone int")
        made.map("slim", of="probes", select=select)

        @made.keyed("zone", state="n int", emits="zone int, n int")
        def counted(state, slim):
            return state, state.reset_index()[["zone", "n"]]

        made.sink("counted", hf.write.sqlite("kiln.db", "counted"))
        return made, counted

    slim, counted = declared(["zone"])
    with pytest.raises(HoldfastError, match="HF-G046") as refused:
        same_however_cut(counted, [{"zone": 1}])
    assert "emit 'ts' upstream and hand it in with the rows" in refused.value.do
    whole, counted = declared(["ts", "zone"])
    assert same_however_cut(counted, [{"ts": datetime(2026, 1, 5, 6, tzinfo=UTC), "zone": 1}]).num_rows == 0
    assert slim is not whole  # a process is known as long as somebody holds it
