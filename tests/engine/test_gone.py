"""Units come and go by name as operators are added; what was lost on the way to an output stays lost."""

from __future__ import annotations

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.flow.gone import gone_since
from holdfast.engine.flow.marking import Tally
from holdfast.engine.flow.promises import PromiseWatch
from holdfast.engine.run import deployment
from holdfast.graph.units import cut
from holdfast.journals.journal import Journal

OLD = {
    "units": {"beats": ["beats"], "alarms": ["alarms"]},
    "streams": {"beats": "beats", "alarms": "alarms"},
    "inputs": {"beats": ["ecg"], "alarms": ["beats"]},
}


@pytest.fixture
def root(tmp_path):
    for unit, stream in (("beats", "beats"), ("alarms", "alarms")):
        journal = Journal(tmp_path / "units" / unit, "commits")
        tally = {"frames": 40, "rows": 80, "lost": 2, "tainted": 3, "tainted_rows": 6, "since": 0, "why": ""}
        journal.append({"n": 40, "state": {}, "tally": {stream: tally}, "too_late": {unit: 5}})
        journal.close()
    decided = Exclusions(tmp_path / "units" / "beats")
    decided.decide(
        7, {"ecg": [[0, 4]]}, {}, {"operator": "beats", "on_error": "drop", "rows": 4, "error": "E", "at": 1.0}
    )
    return tmp_path


def followed():
    """The same process with an operator behind: all is one unit now, and called after that."""
    p = hf.StreamProcess("ward", frame="1 second", time="ts")
    p.source("ecg", hf.read.files("ecg.csv"), schema="ts timestamp, mv double")
    p.filter("beats", of="ecg", where="mv > 0")
    p.filter("alarms", of="beats", where="mv > 1")
    p.filter("calls", of="alarms", where="mv > 2")
    p.sink("alarms", hf.write.console(), promise=hf.lossless)
    p.sink("calls", hf.write.console())
    return p.graph()


def test_a_promise_that_is_broken_stays_so_when_units_are_renamed(root):
    graph = followed()
    assert [unit.name for unit in cut(graph)] == ["calls"]
    watch = PromiseWatch(graph)
    [fine] = watch.statuses({}, {}, 0.0)
    assert fine.state == "kept"

    watch.gone = gone_since(OLD, cut(graph), root)

    [found] = watch.statuses({}, {}, 0.0)
    assert found.state == "BROKEN"
    for words in (
        "4 rows dropped by beats",
        "5 rows came too late for beats",
        "5 rows came too late for alarms",
        "2 frames LOST",
    ):
        assert words in found.why


def test_what_is_gone_is_known_to_all_deployments_that_follow_and_counted_once(root):
    graph = followed()
    first = gone_since(OLD, cut(graph), root)
    new = deployment.describe(graph, cut(graph), 0) | {"gone": first.units}

    again = gone_since(new, cut(graph), root)

    assert again == first
    assert again.tally("alarms") == Tally(frames=40, rows=80, lost=2, tainted=3, tainted_rows=6)
    assert again.rows("drop", "alarms") == {"beats": 4}


def test_a_unit_that_comes_back_tells_its_decisions_itself(root):
    """Its folder still has them; what else it counted began anew."""
    away = deployment.describe(graph := followed(), cut(graph), 0) | {"gone": gone_since(OLD, cut(graph), root).units}

    class Back:
        name, outputs = "beats", ("beats",)

    found = gone_since(away, [Back()], root)
    assert found.rows("drop", "alarms") == {}
    assert found.too_late("alarms") == {"alarms": 5, "beats": 5}


def test_a_stream_that_another_unit_makes_now_keeps_its_counts(root):
    class Kept:
        name, outputs = "alarms", ("other",)

    class Taker:
        name, outputs = "beats", ("beats", "alarms")

    found = gone_since(OLD, [Kept(), Taker()], root)
    assert found.tally("alarms").lost == 2 and found.too_late("alarms") == {}
    # Until the kept unit commits, its last record still has the stream: it is not taken twice.
    new = OLD | {"streams": {"other": "alarms", "beats": "beats", "alarms": "beats"}, "gone": found.units}
    assert gone_since(new, [Kept(), Taker()], root).tally("alarms").lost == 2


def test_a_stream_that_comes_back_before_anything_was_made_is_counted_once(root):
    class Away:
        name, outputs = "alarms", ("other",)

    class Back:
        name, outputs = "alarms", ("alarms",)

    away = OLD | {"streams": {"other": "alarms"}, "gone": gone_since(OLD, [Away()], root).units}
    assert gone_since(away, [Back()], root).tally("alarms") == Tally()  # its own record has them


def test_rows_in_quarantine_of_a_unit_that_is_gone_are_not_lost(tmp_path):
    decided = Exclusions(tmp_path / "units" / "beats")
    record = {"operator": "beats", "on_error": "quarantine", "rows": 2, "error": "E", "at": 1.0}
    decided.decide(7, {"ecg": [[0, 2]]}, {"ecg": pa.table({"mv": [1.0, 2.0]})}, record)
    watch = PromiseWatch(graph := followed())
    watch.gone = gone_since(OLD, cut(graph), tmp_path)
    [found] = watch.statuses({}, {}, 0.0)
    assert (found.state, found.why) == ("kept", "2 rows in quarantine")
