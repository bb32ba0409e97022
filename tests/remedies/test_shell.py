"""What an error of the shell, of a settings file or of the test helpers tells the user to do is done, and it works.

Nothing here starts Spark: what is asked for is asked over a folder that a run left, or of a socket that answers.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli.main import app
from holdfast.engine.flow.parameters import Config
from holdfast.engine.observe.control import ControlServer, call
from holdfast.engine.observe.metrics import MetricsServer, address_of
from holdfast.engine.profile import load_profile
from holdfast.errors import EnvironmentRefused, HoldfastError, UsageError
from holdfast.faults.inputs import log_input
from holdfast.faults.plans import parsed
from holdfast.records.quarantine import put_back, put_mended
from holdfast.testing.cuts import same_however_cut
from holdfast.testing.inputs import fitted, rows
from holdfast.testing.runs import run_frames
from holdfast.verify.verifying import Bench
from tests.engine.test_adopt import checkpoint  # noqa: F401  a fixture
from tests.engine.test_config import PARAMS
from tests.engine.test_supervise import Clock, Writer, session, watching  # noqa: F401
from tests.faults.test_verifying import circling, kept_log, live  # noqa: F401
from tests.records.conftest import SCHEMA, Folder
from tests.records.test_quarantine import LATE, RAISED, quarantine


@pytest.fixture
def invoke():
    runner = CliRunner()
    return lambda *words: runner.invoke(app, list(words))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder in which a process has run."""
    monkeypatch.chdir(tmp_path)
    folder = Folder(tmp_path / ".holdfast" / "kiln", tmp_path)
    folder.run_unit(folder.seal_source())
    folder.write_sink(1, 2)
    return folder


def refused(result, code: str) -> str:
    """The `do` of the error on the terminal."""
    assert result.exit_code == 2, result.output
    assert code in result.stderr
    return result.stderr.partition("\n  do")[2].strip()


def test_a_running_process_is_reached_once_its_folder_is_named(tmp_path, monkeypatch, invoke):
    """HF-E010, HF-E011."""
    state = tmp_path / "a" / ".holdfast" / "kiln"
    state.mkdir(parents=True)
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    asked = []
    server = ControlServer(
        state / "control.json", lambda request: asked.append(request) or {"frame": 7, "n": 1, "stopping": True}
    )
    server.start()
    try:
        assert "--state DIR" in refused(invoke("stop", "kiln"), "HF-E010")
        assert invoke("stop", "kiln", "--state", str(state)).exit_code == 0
        assert "limit=75" in refused(invoke("set", "kiln", "limit", "--state", str(state)), "HF-E011")
        assert "from frame 7" in invoke("set", "kiln", "limit=75", "--state", str(state)).stdout
    finally:
        server.close()
    assert [request["do"] for request in asked] == ["stop", "set"]


@pytest.mark.parametrize(
    ("code", "words", "said", "mended"),
    [
        (
            "HF-E014",
            ["trace", "hot", "2", "--state", "elsewhere"],
            "--state DIR",
            ["trace", "hot", "2", "--state", ".holdfast/kiln"],
        ),
        ("HF-E015", ["trace", "hto", "2", "kiln"], "'hot'", ["trace", "hot", "2", "kiln"]),
        (
            "HF-E016",
            ["trace", "hot", "--where", "zon = 1"],
            "celsius is not null",
            ["trace", "hot", "--where", "celsius is not null"],
        ),
        ("HF-E017", ["trace", "hot"], "12", ["trace", "hot", "2"]),
        ("HF-E017", ["trace", "hot", "two", "kiln"], "12", ["trace", "hot", "2", "kiln"]),
        ("HF-E020", ["quarantine", "show", "nothing"], "holdfast quarantine ls", ["quarantine", "ls"]),
    ],
)
def test_what_a_run_left_is_found_once_it_is_named_as_the_error_says(here, invoke, code, words, said, mended):
    assert said in refused(invoke(*words), code)
    assert invoke(*mended).exit_code == 0


def test_one_of_two_processes_is_meant(here, invoke):
    """HF-E018."""
    shutil.copytree(here.root, here.root.with_name("other"))

    do = refused(invoke("trace", "hot", "2"), "HF-E018")

    assert do.startswith("name one: holdfast ")
    assert invoke(*do.splitlines()[0].removeprefix("name one: holdfast ").replace("FRAME", "2").split()).exit_code == 0


@pytest.mark.parametrize(
    ("bad", "said", "mended"),
    [
        ('[default]\nhaep = "2g"', "'heap'", '[default]\nheap = "2g"'),
        ('[default]\nheap = "much"', 'heap = "2g"', '[default]\nheap = "2g"'),
    ],
)
def test_settings_are_taken_once_they_are_written_as_the_error_says(tmp_path, monkeypatch, bad, said, mended):
    """HF-E022."""
    monkeypatch.chdir(tmp_path)
    Path("holdfast.toml").write_text(bad)
    with pytest.raises(UsageError, match="HF-E022") as found:
        load_profile()
    assert said in found.value.do
    Path("holdfast.toml").write_text(mended)
    assert load_profile().heap == "2g"


def test_metrics_are_served_where_the_error_says():
    """HF-E023, HF-E024, HF-E025."""
    with pytest.raises(UsageError, match="HF-E023") as found:
        address_of("nowhere")
    assert address_of("127.0.0.1:9464") == ("127.0.0.1", 9464) and "127.0.0.1:9464" in found.value.do
    with pytest.raises(UsageError, match="HF-E024") as found:
        address_of("0.0.0.0:9464")
    assert "--metrics-open" in found.value.do and address_of("0.0.0.0:9464", may_be_open=True)[1] == 9464
    first = MetricsServer(("127.0.0.1", 0), lambda: None)
    try:
        with pytest.raises(EnvironmentRefused, match="HF-E025") as taken:
            MetricsServer(("127.0.0.1", first.port), lambda: None)
        assert "0 for any free one" in taken.value.do
        MetricsServer(("127.0.0.1", 0), lambda: None).close()
    finally:
        first.close()


@pytest.mark.parametrize(
    ("code", "bad", "said", "mended"),
    [
        ("HF-E050", "fault = 3", "[[fault]]", "[[fault]]\ndo = 'kill unit'\nunit = 'hot'\nframe = 40"),
        ("HF-E051", "[[fault]]\ndo = 'kill units'", "'kill unit'", "[[fault]]\ndo = 'kill unit'\nunit = 'hot'"),
        (
            "HF-E051",
            "[[fault]]\ndo = 'kill unit'\nunit = 'hot'\nframe = 0",
            "from 1 on",
            "[[fault]]\ndo = 'kill unit'\nunit = 'hot'\nframe = 1",
        ),
    ],
)
def test_a_fault_plan_is_read_once_it_is_written_as_the_error_says(code, bad, said, mended):
    with pytest.raises(UsageError) as found:
        parsed(bad, "plan.toml")
    assert (found.value.code, said in found.value.do) == (code, True)
    assert [fault.do for fault in parsed(mended, "plan.toml")] == ["kill unit"]


def test_a_graph_that_a_protocol_cannot_run_on_runs_with_the_other_one(invoke):
    """HF-E040, HF-C003."""
    words = ["simulate", "--graph", "sp4", "--seeds", "1", "--workers", "1"]
    assert "extended" in refused(invoke(*words, "--protocol", "ecoc"), "HF-E040")
    assert invoke(*words, "--protocol", "extended").exit_code == 0
    assert "'ecoc'" in refused(invoke("simulate", "--protocol", "ecocc", "--graph", "sp1"), "HF-C003")


def test_a_replay_is_asked_for_as_the_error_says(here, monkeypatch):
    """HF-E026, HF-R008 and HF-R011."""
    from holdfast.engine.run.replay import planned
    from holdfast.records.kept import Kept

    process = hf.StreamProcess("kiln", frame="1 second", time="ts")
    process.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, zone int, celsius double")
    process.filter("hot", of="probes", where="celsius > 80")
    process.sink("hot", hf.write.sqlite("kiln.db", "hot"))
    kept = Kept(here.root)

    with pytest.raises(UsageError, match="HF-E026") as found:
        planned(process.graph(), kept, into="again", first="soon", until=None)
    assert "2026-01-05T06:00:12Z" in found.value.do
    with pytest.raises(HoldfastError, match="HF-R008") as found:
        planned(process.graph(), kept, into="again", first=3, until=2)
    assert found.value.do
    planned(process.graph(), kept, into="again", first="2026-01-05T06:00:01Z", until=2)
    with pytest.raises(HoldfastError, match="HF-R011") as found:
        planned(process.graph(), kept, into="again", first=1, until=3)
    assert "name another target" in found.value.do
    planned(process.graph(), kept, into="other", first=1, until=3)


def test_rows_for_a_test_are_taken_once_they_are_given_as_the_error_says(tmp_path):
    """HF-C040, HF-C041, HF-C042, HF-C043."""
    good = [{"ts": "2026-01-05T06:00:00Z", "zone": 1, "celsius": 80.0}]
    with pytest.raises(UsageError, match="HF-C041") as found:
        rows(3)
    assert "a list of dicts" in found.value.do and rows(good).num_rows == 1
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"zone": 1, "celcius": 80.0}))
    with pytest.raises(UsageError, match="HF-C040") as found:
        fitted(rows(file), SCHEMA, "the rows")
    assert "as the source declares them" in found.value.do

    process = hf.StreamProcess("kiln", frame="1 second", time="ts")
    process.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, zone int, celsius double")

    @process.keyed("zone", state="n int", emits="zone int, n int")
    def counted(state, probes):
        return state, state.reset_index()[["zone", "n"]]

    process.sink("counted", hf.write.sqlite("kiln.db", "counted"))
    with pytest.raises(UsageError, match="HF-C043") as found:
        same_however_cut(lambda state, probes: (state, state), good)
    assert "@process.keyed" in found.value.do
    assert same_however_cut(counted, good).num_rows == 0
    with pytest.raises(UsageError, match="HF-C042") as found:
        run_frames(process, probs=good)
    assert "probes" in found.value.do


def test_the_shell_says_what_a_run_is_and_is_told_so(here, invoke, monkeypatch):
    """HF-E027: the words of the error, with a frame that is there."""
    from holdfast.engine.run import replay

    Path("kiln.py").write_text(
        "import holdfast as hf\n"
        'kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")\n'
        'kiln.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, zone int, celsius double")\n'
        'kiln.filter("hot", of="probes", where="celsius > 80")\n'
        'kiln.sink("hot", hf.write.sqlite("kiln.db", "hot"))\n'
    )
    begun = []

    def start(graph, *words, **more):
        begun.append(graph.name)
        raise UsageError(
            "HF-C003", "Enough", "the run itself is in tests/spark/test_replay.py.", effect="nothing", do="nothing"
        )

    monkeypatch.setattr(replay, "start_graph", start)
    do = refused(invoke("run", "kiln.py", "--from-frame", "2"), "HF-E027")
    words = do.splitlines()[0].split(" (or")[0].replace("FILE", "kiln.py").replace("TABLE", "again").split()[1:]
    invoke(*[{"10": "1", "20": "2"}.get(word, word) for word in words])
    assert begun == ["kiln_replay_again"]


def test_a_checkpoint_is_adopted_from_the_folder_the_error_asks_for(checkpoint, invoke):
    """HF-E030."""
    assert "checkpointLocation" in refused(invoke("adopt", "--spark-checkpoint", str(checkpoint.parent)), "HF-E030")
    assert invoke("adopt", "--spark-checkpoint", str(checkpoint)).exit_code == 0


def test_an_input_is_taken_from_the_log_as_the_error_says(kept_log, tmp_path):
    """HF-E052, HF-E053: a live source is verified over what its log has kept."""
    graph = live().graph()
    with pytest.raises(UsageError, match="HF-E053") as found:
        Bench(graph, "kiln.py", tmp_path)
    assert "--input log, or --input log:last-5m" in found.value.do
    root = kept_log(3)
    with pytest.raises(UsageError, match="HF-E052") as found:
        log_input("yesterday", graph, root)
    assert "write --input log, or --input log:last-5m" in found.value.do
    for words in ("log", "log:last-5m"):
        assert Bench(graph, "kiln.py", tmp_path, log=log_input(words, graph, root)).first == 4
    with pytest.raises(UsageError, match="HF-E052") as found:
        log_input("log", circling().graph(), root)
    assert "keep the log from frame 1 on" in found.value.do
    shutil.rmtree(root)
    assert log_input("log", circling().graph(), kept_log(0)).first == 1


def test_a_folder_for_a_verified_run_is_new(tmp_path):
    """HF-E054."""
    from holdfast.cli.verifying import _bench

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    process = hf.StreamProcess("kiln", frame="1 second", time="ts")
    process.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, zone int")
    process.sink("probes", hf.write.sqlite("kiln.db", "probes"))

    def bench(keep):
        with _bench(process.graph(), "kiln.py", keep, None, None) as made:
            return made

    with pytest.raises(UsageError, match="HF-E054") as found:
        bench(tmp_path / "full")
    assert found.value.do == "name another folder, or remove it"
    assert bench(tmp_path / "other")
    shutil.rmtree(tmp_path / "full")
    assert bench(tmp_path / "full")


def test_rows_that_cannot_be_put_back_take_the_way_the_error_names(here, tmp_path):
    """HF-E021: copied and named with --to, or, for a source of files, copied into its folder."""
    kept = quarantine(here)
    kept.deployment["inputs"] = {"hot": ["probes"], "cold": ["probes"]}
    with pytest.raises(UsageError, match="HF-E021") as found:
        put_back(kept, [RAISED])
    assert "copy the file, then holdfast quarantine put-back COPY --to probes" in found.value.do
    copy = shutil.copy(here.root / RAISED, tmp_path / "copy.parquet")
    assert put_mended(kept, Path(copy), "probes").rows == 1
    rubbish = tmp_path / "rows.csv"
    rubbish.write_text("zone\n1\n")
    with pytest.raises(UsageError, match="HF-E021") as found:
        put_mended(kept, rubbish, "probes")
    assert "write the rows as Parquet, with the source's columns" in found.value.do
    pq.write_table(pq.read_table(here.root / LATE), tmp_path / "rows.parquet")
    assert put_mended(kept, tmp_path / "rows.parquet", "probes").rows == 2


def test_a_parameter_is_set_to_what_the_error_says(tmp_path):
    """HF-C010."""
    config = Config(tmp_path, PARAMS)
    for name, value, key, says, mended in [
        ("limt", 75, None, "did you mean 'limit'", ("limit", 75, None)),
        ("limit", 500, None, "between 20 and 120", ("limit", 120, None)),
        ("limit", "warm", None, "give a float", ("limit", "75.5", None)),
        ("limit", 75, "zone1", "leave out the key", ("limit", 75, None)),
        ("on", "perhaps", None, "give a bool", ("on", "true", None)),
    ]:
        with pytest.raises(UsageError, match="HF-C010") as found:
            config.checked(name, value, key)
        assert says in str(found.value)
        config.checked(*mended)


def test_who_does_not_run_or_does_not_understand_is_asked_again(tmp_path, invoke):
    """HF-U040, HF-U080: the run is started, and asked with our own command."""
    state = tmp_path / "state"
    state.mkdir()
    with pytest.raises(UsageError, match="HF-U040") as found:
        call(state, {"do": "status"})
    assert found.value.do == "start it: holdfast run FILE"
    server = ControlServer(state / "control.json", lambda request: {"stopping": True, "n": 1})
    server.start()
    try:
        answer = call(state, [])
        assert answer["code"] == "HF-U080" and "ask with the holdfast command" in answer["error"]
        assert invoke("stop", "kiln", "--state", str(state)).exit_code == 0
    finally:
        server.close()


def test_a_run_that_has_not_begun_is_ended_with_the_signal_its_error_names():
    """HF-U042: `kill PID` of the process that waits, also where a shell put it into the background with SIGINT ignored."""
    code = (
        "import threading\nfrom holdfast.cli.running import _shown\nfrom holdfast.engine.observe.control import not_begun\n"
        "def begin(on_progress):\n    print(not_begun('it waits').do, flush=True)\n    threading.Event().wait()\n"
        "try:\n    _shown(begin, 'again', False)\nexcept KeyboardInterrupt:\n    print('ended')\n"
    )
    waiting = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    command = waiting.stdout.readline().partition(", or: ")[2]
    subprocess.run(["sh", "-c", command], check=True)  # of the shell itself: a bare Debian has no program of that name
    assert waiting.communicate(timeout=60)[0] == "ended\n"


def test_a_supervised_query_is_started_as_the_error_says(session):
    """HF-U050, HF-U051: what was given up is started again; a query is handed over as `watch.start(df.writeStream...)`."""
    clock, ill = Clock(), Writer("ill")
    watch = watching(session, clock, lambda state: None, tries=0)
    with pytest.raises(UsageError, match="HF-U051") as found:
        watch.start(5)
    assert "watch.start(df.writeStream...)" in found.value.do
    watch.start(ill)
    ill.query.die("ValueError: again")
    watch.look()
    with pytest.raises(HoldfastError, match="HF-U050") as found:
        watch.wait()
    assert "start the job again" in found.value.do
    again = watching(session, clock, lambda state: None, tries=0)
    again.start(Writer("ill"))
    assert [state.state for state in again.status()] == ["RUNNING"]
