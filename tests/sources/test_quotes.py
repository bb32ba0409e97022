"""Quotes: where rows of CSV end, as Arrow sees it; those that are not closed; lines of more than one row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import SourceError, UsageError
from holdfast.frames.clock import FrameClock
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from holdfast.sources.files import growing_source as growing
from holdfast.sources.files import stretches
from holdfast.sources.live.elements import table_of
from holdfast.sources.live.wire import Record
from holdfast.sources.parse import quotes
from holdfast.sources.parse.bad import Terms
from holdfast.sources.parse.quotes import first_row_end, is_open, last_row_end, mark_of, row_ends

from .conftest import SECOND, Driver
from .growing_files import Script, at_once, driven  # noqa: F401
from .test_feed import quarantined

NOTES = Schema.of("ts timestamp, size string, note string")
TIME = "2023-11-14T22:13:2{}Z"
MARK = mark_of('"', ",")


@given(st.lists(st.sampled_from(['"', ",", "\n", "a", '""', ',"', '",']), max_size=40).map("".join))
def test_rows_end_where_arrow_ends_them(words):
    block = words.encode() + b"\n"
    ends = row_ends(block, MARK)
    rows = [block[start:stop] for start, stop in zip(ends, ends[1:], strict=False)]
    assert b"".join(rows) == block
    assert first_row_end(block, MARK) == ends[1]
    if is_open(block, MARK):
        assert last_row_end(block, MARK) == ends[-2]
        return
    assert last_row_end(block, MARK) == len(block)
    wide = max(row.count(b",") for row in rows) + 1
    for row in rows:
        if not row.strip(b"\n"):
            continue
        options = arrow_csv.ReadOptions(column_names=[f"c{at}" for at in range(wide)])
        parsing = arrow_csv.ParseOptions(
            newlines_in_values=True, invalid_row_handler=lambda found: counted.append(found) or "skip"
        )
        counted: list[object] = []
        table = arrow_csv.read_csv(pa.BufferReader(row), options, parsing)
        assert table.num_rows + len(counted) == 1


@given(
    st.lists(st.sampled_from(['"', ",", "\n", "a", '""', ',"', '",', '\n"', '"\n']), max_size=60).map("".join),
    st.sampled_from([None, 4, 9]),
)
def test_counting_quotes_tells_what_looking_at_each_tells(words, limit):
    block = words.encode()
    counted = last_row_end(block, MARK, limit), is_open(block, MARK, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotes, "_quotes_in_pairs", lambda *given: None)
        assert counted == (last_row_end(block, MARK, limit), is_open(block, MARK, limit))


def test_a_quote_inside_of_a_field_is_a_sign_like_any_other(driver, tmp_path):
    """By number they were odd up to the first newline of the quoted text, so the row was cut there into two others."""
    driver.set(schema=NOTES)
    path = tmp_path / "a.csv"
    path.write_text(
        "ts,size,note\n"
        + TIME.format(0)
        + ',5",plain\n'
        + TIME.format(0)
        + ',6" pipe,"one\ntwo"\n'
        + TIME.format(9)
        + ",7,last\n"
    )
    expected = [('5"', "plain"), ('6" pipe', "one\ntwo")]

    for reader in (read.files("a.csv"), read.files("a.csv", growing=True)):
        driver.set(directory=tmp_path / f"state-{reader.growing}")
        frames = driven(driver, reader) if reader.growing else driver.frames(reader)
        rows = driver.rows(frames[0].references).to_pylist()
        assert [(row["size"], row["note"]) for row in rows] == expected


def test_a_quote_that_is_not_closed_is_a_bad_row_of_a_file(driver, tmp_path):
    """All rows behind it were its text, and nobody was told."""
    driver.set(schema=NOTES)
    (tmp_path / "a.csv").write_text(
        "ts,size,note\n" + "".join(f"{TIME.format(n)},1,{'x' if n != 3 else chr(34) + 'x'}\n" for n in range(8))
    )
    with pytest.raises(SourceError, match=r"HF-S006[^$]*line 5[^$]*not closed"):
        driver.frames(read.files("a.csv"))


def test_a_quote_that_is_not_closed_is_a_bad_record():
    records = [Record(raw, format="csv") for raw in (b'1,"a"', b'2,"b', b"3,c", b'4,"d')]
    table, bad = table_of(records, Terms(Schema.of("n int, s string"), "probes"), 0, first_only=False)
    assert (table.column("n").to_pylist(), [each.at for each in bad]) == ([1, 3], [1, 3])


@pytest.mark.parametrize("cuts", [1, 7])
def test_a_stray_quote_in_a_growing_file_is_one_bad_row(driver, tmp_path, monkeypatch, cuts):
    monkeypatch.setattr(stretches, "QUOTED_MAX", 400)
    driver.set(schema=NOTES, bad="quarantine")
    path = tmp_path / "a.csv"
    good = "".join(f"{TIME.format(n // 4)},{n},note\n" for n in range(40))
    whole = "ts,size,note\n" + TIME.format(0) + ',x,"open\n' + good
    step = len(whole) // cuts + 1

    def grow(stop):
        return lambda: path.write_text(whole[:stop])

    path.write_text(whole[:step])
    frames = driven(driver, read.files("a.csv", growing=True), *(grow(at + step) for at in range(0, len(whole), step)))

    rows = driver.rows([each for frame in frames for each in frame.references]).to_pylist()
    assert [int(row["size"]) for row in rows] == list(range(len(rows)))
    assert len(rows) == 36
    [kept] = quarantined(driver)
    assert kept["raw"].endswith('"open') and "not closed" in kept["reason"]


def test_a_quote_that_is_waited_for_is_told(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "PATIENCE_S", 0.0)
    driver.set(schema=NOTES, boundary="hold")
    driver.clock = FrameClock.starting(1_700_000_000 * SECOND, SECOND)
    (tmp_path / "a.csv").write_text("ts,size,note\n" + TIME.format(0) + ',x,"open\n' + TIME.format(1) + ",1,note\n")
    source = driver.open(read.files("a.csv", growing=True))
    assert list(source.frames(Script())) == []
    assert "for a quote to be closed" in source.remark()


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_late_row_behind_a_line_of_two_may_be_corrected(driver, tmp_path, name):
    """Where it began was counted by lines: the correction fell into what counted as used, and was refused (HF-S004)."""
    driver.set(schema=Schema.of("ts timestamp, v int"), late="fail")
    path = tmp_path / name
    times = [TIME.format(n) for n in (0, 1, 2, 3, 0)]
    if name == "a.csv":
        rows = [f"{time},{n}" for n, time in enumerate(times)]
        words, good = "ts,v\n" + rows[0] + "\r" + "\n".join(rows[1:]) + "\n", (f"{times[4]},4", f"{times[3]},4")
    else:
        rows = [f'{{"ts": "{time}", "v": {n}}}' for n, time in enumerate(times)]
        words, good = rows[0] + " " + "\n".join(rows[1:]) + "\n", (rows[4], rows[4].replace(times[4], times[3]))
    path.write_bytes(words.encode())
    with pytest.raises(SourceError, match="HF-F004"):
        driver.frames(read.files(name))
    path.write_bytes(words.replace(*good).encode())
    frames = driver.frames(read.files(name))
    assert sum(frame.rows for frame in frames) == 5


def test_what_to_do_with_carriage_returns_is_said(driver, tmp_path):
    (tmp_path / "a.csv").write_bytes(b"ts,zone,celsius\r2026-01-01T00:00:00Z,1,2.0\r")
    with pytest.raises(SourceError, match="HF-S006") as found:
        driver.frames(read.files("a.csv"))
    assert "tr '\\r' '\\n'" in found.value.do and "string" not in found.value.do


@pytest.mark.parametrize("at_a_time", [1, 2, 5])
def test_a_byte_order_mark_inside_of_a_growing_file_is_bad_however_it_grew(driver, tmp_path, at_a_time):
    """`cat a.csv b.csv`: it was part of the text in the middle of what was read, and passed over at its beginning."""
    driver.set(schema=Schema.of("note string, ts timestamp"), bad="quarantine")
    path = tmp_path / "a.csv"
    rows = [f"{mark}note,{TIME.format(n)}\n" for n, mark in enumerate(["\ufeff", "", "\ufeff", "", ""])]
    reader = read.files("a.csv", growing=True, header=False)
    path.write_text("")

    def grow(stop):
        return lambda: path.write_text("".join(rows[:stop]))

    frames = driven(driver, reader, *(grow(stop) for stop in range(at_a_time, 5 + at_a_time, at_a_time)))
    found = driver.rows([each for frame in frames for each in frame.references]).column("note").to_pylist()
    assert found == ["note"] * 3  # the last is still open
    assert ["order mark" in each["reason"] for each in quarantined(driver)] == [True]


@pytest.mark.parametrize("before", ["", "plain,2023-11-14T22:13:20Z\n"])
def test_a_byte_order_mark_inside_of_a_file_is_a_bad_row(driver, tmp_path, before):
    driver.set(schema=Schema.of("note string, ts timestamp"))
    (tmp_path / "a.csv").write_text("\ufeffnote,ts\n" + before + "\ufeffnote,2023-11-14T22:13:20Z\n")
    with pytest.raises(SourceError, match=rf"HF-S006[^$]*line {3 if before else 2}[^$]*order mark"):
        driver.frames(read.files("a.csv"))
    (tmp_path / "a.csv").write_text("\ufeffnote,ts\n" + before + "note,2023-11-14T22:13:20Z\n")
    assert driver.set(directory=tmp_path / "other").frames(read.files("a.csv"))[0].rows == 1 + bool(before)


@pytest.mark.parametrize(
    "given",
    [{"delimiter": "||"}, {"delimiter": "§"}, {"quote": ""}, {"delimiter": ";", "quote": ";"}, {"missing": "nul"}],
)
def test_signs_that_are_none_are_refused_when_they_are_declared(given):
    with pytest.raises(UsageError, match="HF-C034"):
        read.files("a.csv", **given)
    if "quote" not in given:
        with pytest.raises(UsageError, match="HF-C034"):
            read.lines("tcp://127.0.0.1:9000", format="csv", **given)


FIELDS = ["x", '"q"', '"a\nb"', '5"', '"open', 'a"b', '""', "", "\ufeffz", '"a""b\r\n"', " ", '"x" y', "\r"]
OBJECTS = [
    '{"s": "x", TS}',
    '{"s": null, TS}',
    '{"s": 1, TS}',
    "{TS}",
    ' {"s": "y", TS} {"s": "z", TS}',
    '\ufeff{"s": "x", TS}',
    '{"s": "',
    "null",
]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(["a.csv", "a.jsonl"]))
def test_hostile_rows_are_the_same_good_and_bad_ones_however_the_file_grew(
    tmp_path_factory, monkeypatch_module, data, name
):
    monkeypatch_module.setattr(stretches, "QUOTED_MAX", 60)
    drawn = data.draw(
        st.lists(
            st.tuples(st.sampled_from(FIELDS if name == "a.csv" else OBJECTS), st.sampled_from(["\n", "\r\n", "\n\n"])),
            max_size=12,
        )
    )
    rows = []
    for at, (words, end) in enumerate([*drawn, *[("end" if name == "a.csv" else '{"s": "end", TS}', "\n")] * 8]):
        time = f"2023-11-14T22:13:{20 + at}Z"
        rows.append((f"{words},{time}" if name == "a.csv" else words.replace("TS", f'"ts": "{time}"')) + end)
    raw = "".join(rows).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))

    def read_in(*sizes):
        driver = Driver(tmp_path_factory.mktemp("grown"))
        driver.set(schema=Schema.of("s string, ts timestamp"), bad="quarantine")
        path = driver.folder / name
        path.write_bytes(raw[: sizes[0]])
        reader = read.files(name, growing=True, header=False)
        frames = driven(driver, reader, *(lambda size=size: path.write_bytes(raw[:size]) for size in sizes[1:]))
        good = driver.rows([each for frame in frames for each in frame.references]).to_pylist()
        return good, [each["raw"] for each in quarantined(driver)]

    assert read_in(*cuts, len(raw)) == read_in(len(raw))


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch
