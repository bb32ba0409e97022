"""Bad rows in files that grow, and lines that look like one row and are not."""

from __future__ import annotations

import pytest

from holdfast.errors import SourceError
from holdfast.sources import read

from .conftest import Driver
from .growing_files import HEADER, Script, appends, at_once, driven, line, lines, numbers, readings, refused, stamp  # noqa: F401

# -- bad rows ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["drop", "quarantine"])
@pytest.mark.parametrize("restart", [False, True])
def test_bad_rows_are_set_aside_once(driver, tmp_path, policy, restart):
    import json

    driver.set(bad=policy)
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 5) + "x,1,1\n" + lines(5, 7) + "no\n")
    reader = read.files("a.csv", growing=True)
    more = appends(path, "y,2,2\n" + lines(7, 13))
    if restart:
        frames = driven(driver, reader)
        more()
        frames += driven(driver, reader, from_n=len(frames) + 1)
    else:
        frames = driven(driver, reader, more)

    assert numbers(driver, frames) == list(range(12))
    found = [
        json.loads(row)
        for file in sorted((tmp_path / "state" / "quarantine").glob("*"))
        for row in file.read_text().splitlines()
    ]
    assert [each["raw"] for each in found] == (["x,1,1", "no", "y,2,2"] if policy == "quarantine" else [])
    if found:
        assert f"{path}, line 7" in found[0]["reason"]


def test_a_bad_row_stops_the_source_after_those_before_it_and_can_be_corrected(driver, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 9) + "x,1,1\n" + lines(10, 13))
    reader = read.files("a.csv", growing=True)
    driver.set(boundary="hold", grace_us=0)
    error = None
    source, first = driver.open(reader), []
    try:
        first += source.frames(Script())
    except SourceError as raised:
        error = raised
    assert error.code == "HF-S006" and error.where == f"{path}, line 11"

    path.write_text(HEADER + lines(0, 13))
    assert numbers(driver, driven(driver, reader)) == list(range(12))


@pytest.mark.parametrize(("wrong", "code"), [(",1,20.0\n", "HF-S007"), ("2020-01-01T00:00:00Z,1,20.0\n", "HF-F004")])
def test_a_row_that_stops_the_source_is_not_passed_over_by_the_next_run(driver, tmp_path, wrong, code):
    """Frames closed in the same block are sealed; the position they carry lies before the row."""
    driver.set(late="fail")
    path = tmp_path / "a.csv"
    path.write_text(HEADER + lines(0, 9) + wrong + lines(10, 21))
    reader = read.files("a.csv", growing=True)
    for from_n in (1, 2, 3):
        refused(code, driver, reader, from_n=from_n)
    path.write_text(HEADER + lines(0, 21))
    assert numbers(driver, driven(driver, reader)) == list(range(20))


def test_rows_of_a_json_file_need_their_fields(driver, tmp_path):
    path = tmp_path / "a.jsonl"
    time = line(0).split(",")[0]
    path.write_text(f'{{"ts": "{time}", "zone": 1, "celsius": null}}\n{{"ts": "{time}", "zone": 1}}\n')
    error = refused("HF-S006", driver, read.files("a.jsonl", growing=True))
    assert "no field 'celsius'" in error.why


# -- what looks like one row and is not --------------------------------------------


def _two_in_a_line(number: int, other: int) -> str:
    return "".join(f'{{"ts": "{stamp(each)}", "zone": 1, "celsius": {each}}}' for each in (number, other)) + "\n"


@pytest.mark.parametrize(
    ("name", "strange"),
    [
        ("a.jsonl", _two_in_a_line(0, 8)),
        ("a.csv", f"{HEADER}{stamp(0)},1,0\r{stamp(8)},1,8\n"),
    ],
    ids=["two objects in a line", "a carriage return inside a line"],
)
def test_a_line_that_holds_two_rows_is_a_bad_one_and_no_row_behind_it_is_lost(driver, name, strange):
    """Arrow counts rows and we count lines: a source that stopped at a late row went on behind it."""
    late = [16, 1, 17, 24]
    if name.endswith(".csv"):
        body = "".join(f"{stamp(each)},1,{each}\n" for each in late)
    else:
        body = "".join(f'{{"ts": "{stamp(each)}", "zone": 1, "celsius": {each}}}\n' for each in late)
    folder = driver.folder / "in"
    folder.mkdir()
    (folder / name).write_bytes((strange + body).encode())
    reader = read.files("in", growing=True)
    with pytest.raises(SourceError, match="HF-S006"):
        driven(driver.set(late="fail"), reader)
    with pytest.raises(SourceError, match="HF-F004"):
        driven(driver.set(bad="quarantine"), reader)
    assert readings(driver, driven(driver.set(late="admit"), reader)) == [16, 1, 17]


def test_a_header_that_ends_with_a_carriage_return_takes_no_row_along(driver):
    (driver.folder / "a.csv").write_bytes((HEADER.replace("\n", "\r") + lines(0, 12)).encode())
    for reader in (read.files("a.csv"), read.files("a.csv", growing=True)):
        with pytest.raises(SourceError, match=r"HF-S006[^$]*carriage return"):
            driven(Driver(driver.folder / str(reader.growing)).set(base=driver.folder), reader)


def test_a_file_of_carriage_returns_alone_is_not_an_empty_one(driver):
    (driver.folder / "a.csv").write_bytes((HEADER + lines(0, 12)).replace("\n", "\r").encode())
    with pytest.raises(SourceError, match=r"HF-S006[^$]*carriage return"):
        driver.frames(read.files("a.csv"))


def test_a_bad_row_with_signs_that_end_a_line_elsewhere_does_not_stop_the_next_start(driver):
    (driver.folder / "a.csv").write_text(
        HEADER + lines(0, 6) + "half\u2028a\x85row,x,y\n" + lines(6, 12), encoding="utf-8"
    )
    reader = read.files("a.csv", growing=True)
    driver.set(bad="quarantine")
    first = readings(driver, driven(driver, reader))
    assert readings(driver, driven(driver, reader)) == first
