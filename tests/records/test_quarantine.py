"""Rows set aside are listed, shown and put back, each file once."""

from __future__ import annotations

import json
import multiprocessing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import HoldfastError, UsageError
from holdfast.graph.schemas import Schema
from holdfast.journals.journal import Journal
from holdfast.records.kept import Kept
from holdfast.records.quarantine import put_back, put_mended, set_aside, shown_item
from holdfast.sources.live.log import SourceLog
from holdfast.sources.live.putback import PutBack
from tests.records.conftest import ROWS, SCHEMA

LATE = "sources/probes/quarantine/00000002.parquet"
BAD = "sources/probes/quarantine/bad-000000000007.jsonl"
RAISED = "units/hot/quarantine/00000003-probes.parquet"


def quarantine(folder):
    """As the engine leaves it: late rows, unreadable records, rows an operator raised on."""
    late = folder.root / LATE
    late.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(ROWS[:2], SCHEMA.arrow), late)
    (folder.root / BAD).write_text(
        json.dumps({"at": "t", "frame": None, "reason": "no number: '9x'", "raw": '{"zone": "9x"}'}) + "\n"
    )
    raised = folder.root / RAISED
    raised.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(ROWS[8:9], SCHEMA.arrow), raised)
    (raised.parent / "00000003.json").write_text(
        json.dumps({"frame": 3, "operator": "hot", "ports": {"probes": [[0, 1]]}, "error": "ValueError: 78.0 is odd"})
    )
    (folder.root / "sources/probes/log").mkdir(exist_ok=True)
    return Kept(folder.root)


@pytest.fixture
def kept(folder):
    return quarantine(folder)


def test_everything_set_aside_is_listed_with_its_reason(kept):
    found = [(each.kind, each.of, each.frame, each.rows, each.stream) for each in set_aside(kept)]

    assert found == [
        ("late", "probes", 2, 2, "probes"),
        ("bad", "probes", None, 1, "probes"),
        ("raised", "hot", 3, 1, "probes"),
    ]
    assert [each.why for each in set_aside(kept)] == [
        "came late, while frame 2 was open", "no number: '9x'", "operator hot raised: ValueError: 78.0 is odd",
    ]  # fmt: skip


def test_rows_ahead_of_the_clock_are_listed_and_put_back_once(kept):
    ahead = "sources/probes/quarantine/ahead-000000000009.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS[:1], SCHEMA.arrow), kept.root / ahead)
    found = {each.item: (each.kind, each.rows, each.why) for each in set_aside(kept)}
    assert found[ahead] == ("ahead", 1, "was ahead of the clock when it came")
    put_back(kept, [ahead])
    target = kept.root / "sources/probes/put-back/probes-ahead-000000000009.parquet"
    assert pq.read_table(target).num_rows == 1
    target.rename(kept.root / ahead)
    with pytest.raises(UsageError, match="HF-E021"):
        put_back(kept, [ahead])


def test_rows_are_shown(kept):
    assert [row["celsius"] for row in shown_item(kept, "00000002.parquet")[1]] == [70.0, 71.0]
    assert shown_item(kept, BAD)[1][0]["raw"] == '{"zone": "9x"}'


def test_hidden_values_stay_hidden(make_folder):
    kept = quarantine(make_folder(values="hide"))

    everything = [each.to_json() for each in set_aside(kept)]
    shown = [shown_item(kept, each["item"])[1] for each in everything]

    text = json.dumps([everything, shown])
    assert not any(value in text for value in ("70.0", "71.0", "78.0", "9x"))
    assert "<float>" in text


def test_rows_are_put_back_once(kept):
    """A replay sets the same rows aside again; put back a second time they would count twice."""
    [moved] = put_back(kept, [LATE])

    target = kept.root / "sources/probes/put-back/late-00000002.parquet"
    assert pq.read_table(target).num_rows == moved.rows == 2
    assert not (kept.root / LATE).exists()
    target.rename(kept.root / LATE)  # taken by the source, and set aside again by a replay
    with pytest.raises(UsageError, match="HF-E021.*\n.*\n.*put back at"):
        put_back(kept, [LATE])
    assert (kept.root / LATE).exists()


@pytest.mark.parametrize("killed", ["before the move", "after the move"])
def test_a_put_back_that_died_is_neither_lost_nor_doubled(kept, killed):
    begun = {
        "n": 1,
        "file": "late-00000002.parquet",
        "from": LATE,
        "rows": 2,
        "at": (kept.root / LATE).stat().st_mtime + 5,
    }
    if killed == "after the move":
        begun["at"] -= 10  # the file there now was written since, by a replay
    Journal(kept.root / "sources/probes", "put-back", keep=None).append(begun | {"state": "begun"})

    if killed == "before the move":
        assert put_back(kept, [LATE])[0].rows == 2
    else:
        with pytest.raises(UsageError, match="HF-E021"):
            put_back(kept, [LATE])


def test_a_put_back_that_died_before_the_move_is_not_lost_when_the_clock_was_set_back(kept, monkeypatch):
    """By its time the file was written after the move: rows nobody had moved counted as put back."""
    set_back = (kept.root / LATE).stat().st_mtime - 3600
    with monkeypatch.context() as dying:
        dying.setattr("time.time", lambda: set_back)
        dying.setattr("os.replace", _killed)
        with pytest.raises(KeyboardInterrupt):
            put_back(kept, [LATE])

    assert put_back(kept, [LATE])[0].rows == 2


def test_mended_rows_are_not_lost_when_putting_them_back_dies_twice(kept, tmp_path, monkeypatch):
    """The copy that the second try had begun was taken for a replay's file."""
    pq.write_table(pa.Table.from_pylist(ROWS[:1], SCHEMA.arrow), tmp_path / "mended.parquet")
    with monkeypatch.context() as dying:
        dying.setattr("os.replace", _killed)
        with pytest.raises(KeyboardInterrupt):
            put_mended(kept, tmp_path / "mended.parquet", "probes")
        dying.setattr(Journal, "append", _killed)
        with pytest.raises(KeyboardInterrupt):
            put_mended(kept, tmp_path / "mended.parquet", "probes")

    assert put_mended(kept, tmp_path / "mended.parquet", "probes").rows == 1


def put_from_a_process(root, item, begin, said):
    begin.wait()
    try:
        put_back(Kept(root), [item])
        said.put("moved")
    except UsageError as error:
        said.put(error.code)
    except BaseException as error:
        said.put(repr(error))


def test_two_shells_that_put_rows_back_at_once_move_each_file_once_and_leave_a_whole_journal(kept):
    """Both numbered their entries alike: the same rows were told as moved twice, or an error without a code came."""
    for n in range(3, 11):
        pq.write_table(
            pa.Table.from_pylist(ROWS[:1], SCHEMA.arrow), kept.root / f"sources/probes/quarantine/{n:08d}.parquet"
        )
    items = [f"sources/probes/quarantine/{n:08d}.parquet" for n in range(3, 11)]
    ways = multiprocessing.get_context("spawn")
    begin, said = ways.Event(), ways.Queue()
    shells = [
        ways.Process(target=put_from_a_process, args=(kept.root, item, begin, said))
        for item in [*items, items[0], items[1]]
    ]
    for each in shells:
        each.start()
    begin.set()
    for each in shells:
        each.join()

    assert sorted(said.get(timeout=5) for _ in shells) == sorted(["HF-E020"] * 2 + ["moved"] * 8)
    entries = list(Journal(kept.root / "sources/probes", "put-back", counted=True).entries())
    assert sorted(each["n"] for each in entries) == sorted([*range(1, 9), *range(1, 9)])
    assert len(list((kept.root / "sources/probes/put-back").glob("*.parquet"))) == 8


def test_an_item_that_is_named_twice_is_moved_once(kept):
    assert [each.item for each in put_back(kept, [LATE, "00000002.parquet"])] == [LATE]


def _killed(*_):
    raise KeyboardInterrupt


def test_rows_on_their_way_back_are_listed_until_they_are_in_the_stream(kept):
    """The source may not run, wait for their time, or not take them: they were in no list then, and only the log knew."""
    put_back(kept, [LATE])
    [waits] = [each for each in set_aside(kept) if each.rows == 2]
    assert (waits.kind, waits.item) == ("waits", "sources/probes/put-back/late-00000002.parquet")
    with pytest.raises(UsageError, match="HF-E021"):
        put_back(kept, [waits.item])

    source = PutBack(
        kept.root / "sources/probes/put-back",
        SourceLog(kept.root / "sources/probes/log", SCHEMA),
        Schema.of("ts timestamp, zone string"),
        "ts",
    )
    assert source.next() is None  # its declaration has changed
    [untaken] = [each for each in set_aside(kept) if each.rows == 2]
    assert untaken.kind == "untaken" and "source probes did not take it: HF-S003" in untaken.why

    put_back(kept, [untaken.item])  # and back again
    source = PutBack(
        kept.root / "sources/probes/put-back", SourceLog(kept.root / "sources/probes/log", SCHEMA), SCHEMA, "ts"
    )
    path, rows = source.next()
    assert path.name == "late-00000002.parquet" and rows.num_rows == 2


def test_rows_another_unit_has_had_are_not_put_back(kept):
    """One unit left them out, the other did not: as new elements of their source the other would have them twice."""
    kept.deployment["inputs"] = {"hot": ["probes"], "cold": ["probes"], "below": ["hot"]}

    with pytest.raises(UsageError, match="HF-E021.*\n.*\n.*feeds unit 'cold' too(.|\n)*--to probes"):
        put_back(kept, [RAISED])
    assert (kept.root / RAISED).exists()

    put_back(kept, [LATE])  # these no unit has had


def test_rows_an_operator_raised_on_go_back_to_their_source(kept):
    put_back(kept, [RAISED])

    assert [path.name for path in (kept.root / "sources/probes/put-back").iterdir()] == ["hot-00000003-probes.parquet"]


def test_what_has_no_way_back_stays_with_all_that_was_named(kept):
    with pytest.raises(UsageError, match="could not be read"):
        put_back(kept, [LATE, BAD])
    assert (kept.root / LATE).exists()

    (kept.root / "sources/probes/log").rmdir()
    with pytest.raises(UsageError, match="has no log"):
        put_back(kept, [LATE])


def test_an_item_must_be_named_unmistakably(kept):
    with pytest.raises(UsageError, match="HF-E020"):
        put_back(kept, ["parquet"])


def test_mended_rows_go_to_the_source_that_is_named_once(kept, tmp_path):
    file = tmp_path / "mended.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS[:3], SCHEMA.arrow), file)

    assert put_mended(kept, file, "probes").rows == 3

    [put] = (kept.root / "sources/probes/put-back").iterdir()
    assert pq.read_table(put).num_rows == 3
    assert file.exists()
    put.unlink()  # taken by the source
    with pytest.raises(UsageError, match="HF-E021"):
        put_mended(kept, file, "probes")


def test_mended_rows_must_fit(kept, tmp_path):
    file = tmp_path / "mended.parquet"
    file.write_text("no parquet")
    with pytest.raises(UsageError, match="HF-E021"):
        put_mended(kept, file, "probes")
    pq.write_table(pa.table({"zone": [1]}), file)
    with pytest.raises(HoldfastError, match="HF-S002"):
        put_mended(kept, file, "probes")
    with pytest.raises(UsageError, match="HF-E015"):
        put_mended(kept, file, "prob")
    assert not (kept.root / "sources/probes/put-back").exists()
