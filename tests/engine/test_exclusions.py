"""Rows left out of a frame: decided once, kept for good, and each decision with its own rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.engine.flow.exclusions import Exclusions
from holdfast.records.kept import Kept
from tests.records.conftest import Folder


@pytest.fixture
def make_kept(tmp_path):
    def make() -> Kept:
        return Kept(Folder(tmp_path / "kiln", tmp_path).root)

    return make


def decision(operator, rows):
    return {"operator": operator, "on_error": "quarantine", "rows": rows, "error": "ValueError", "at": 1.0}


def test_a_second_decision_about_a_frame_keeps_the_rows_of_the_first(tmp_path):
    """Without the first rows the next operator may raise on others; neither may vanish from the quarantine."""
    subject = Exclusions(tmp_path)
    subject.decide(41, {"probes": [[3, 4]]}, {"probes": pa.table({"zone": [3]})}, decision("hot", 1))
    subject.decide(41, {"probes": [[3, 4], [7, 9]]}, {"probes": pa.table({"zone": [7, 8]})}, decision("cold", 2))

    again = Exclusions(tmp_path)

    assert again.at(41) == {"probes": [[3, 4], [7, 9]]}
    assert again.rows("quarantine") == {"hot": 1, "cold": 2}
    kept = {path.name: pq.read_table(path)["zone"].to_pylist() for path in (tmp_path / "quarantine").glob("*.parquet")}
    assert kept == {"00000041-probes.parquet": [3], "00000041-probes.2.parquet": [7, 8]}


def test_the_shell_tells_the_decisions_apart(make_kept):
    from holdfast.records.quarantine import set_aside

    kept = make_kept()
    subject = Exclusions(kept.root / "units" / "hot")
    subject.decide(3, {"probes": [[0, 1]]}, {"probes": pa.table({"zone": [3]})}, decision("hot", 1))
    subject.decide(3, {"probes": [[0, 3]]}, {"probes": pa.table({"zone": [7, 8]})}, decision("cold", 2))

    assert [(each.rows, each.stream, each.why) for each in set_aside(kept)] == [
        (2, "probes", "operator cold raised: ValueError"),
        (1, "probes", "operator hot raised: ValueError"),
    ]


def test_rows_that_were_written_and_never_decided_about_are_not_in_quarantine(make_kept):
    """Killed in between, and the operator mended: the rows are in the frame, and put back they would be there twice."""
    from holdfast.records.quarantine import set_aside

    kept = make_kept()
    subject = Exclusions(kept.root / "units" / "hot")
    subject.decide(3, {"probes": [[0, 1]]}, {"probes": pa.table({"zone": [3]})}, decision("hot", 1))
    folder = kept.root / "units" / "hot" / "quarantine"
    for name in ("00000003-probes.2.parquet", "00000004-probes.parquet"):
        pq.write_table(pa.table({"zone": [7]}), folder / name)

    assert [each.item for each in set_aside(kept)] == ["units/hot/quarantine/00000003-probes.parquet"]


def test_a_decision_holds_for_what_it_was_made_about(tmp_path):
    subject = Exclusions(tmp_path)
    subject.decide(41, {"hot": [[3, 4]]}, {}, decision("cold", 1), {"hot 41": "a1"})
    subject = Exclusions(tmp_path)
    assert subject.at(41, {"hot 41": "a1"}) == {"hot": [[3, 4]]}
    assert subject.at(41, {"hot 41": "b2"}) == {}
    subject.decide(41, {"hot": [[0, 1]]}, {}, decision("cold", 1), {"hot 41": "b2"})
    assert Exclusions(tmp_path).at(41, {"hot 41": "b2"}) == {"hot": [[0, 1]]}


def test_a_unit_whose_name_comes_back_keeps_the_rows_that_were_set_aside_under_it(make_kept):
    """An operator is added behind it and taken away again: the quarantine of the first was deleted in silence."""
    from holdfast.engine.state_folder import forget_unit
    from holdfast.records.quarantine import set_aside

    kept = make_kept()
    unit = kept.root / "units" / "hot"
    Exclusions(unit).decide(3, {"probes": [[0, 1]]}, {"probes": pa.table({"zone": [3]})}, decision("hot", 1))
    (unit / "runs" / "hot").mkdir(parents=True)
    (unit / "commits.000000000001.jsonl").write_text("")

    forget_unit(unit)

    assert [each.rows for each in set_aside(kept)] == [1]
    assert [path.name for path in unit.iterdir()] == ["quarantine"]


def test_frames_nobody_decided_about_are_whole(tmp_path):
    assert Exclusions(tmp_path).at(1) == {}
    assert Exclusions(tmp_path).rows("drop") == {}
