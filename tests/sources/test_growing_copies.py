"""A watched folder holds a file twice: copied, compressed, inflated, half there. Its rows come once."""

from __future__ import annotations

import gzip

import pytest

from holdfast.errors import SourceError
from holdfast.sources import read

from .growing_files import HEADER, appends, at_once, driven, lines, numbers, readings, refused  # noqa: F401


def test_a_copy_that_the_pattern_finds_does_not_double_its_rows(driver, tmp_path):
    """copytruncate, looked at between the copy and the cut."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(HEADER + lines(0, 9))
    reader = read.files("in", growing=True)
    first = driven(driver, reader)
    (tmp_path / "in" / "b.csv").write_text(HEADER + lines(0, 9))
    error = refused("HF-S062 FileTwice", driver, reader, from_n=3)
    assert error.where == str(tmp_path / "in" / "b.csv")

    (tmp_path / "in" / "b.csv").rename(tmp_path / "b.csv")
    second = driven(driver, reader, appends(tmp_path / "in" / "a.csv", lines(9, 13)), from_n=3)
    assert numbers(driver, first + second) == list(range(12))


def test_a_file_that_was_read_and_is_compressed_comes_not_twice(driver):
    folder = driver.folder / "in"
    folder.mkdir()
    plain = folder / "a.csv"
    plain.write_text(HEADER + lines(0, 12))

    def compress() -> None:
        (folder / "a.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    reader = read.files("in", growing=True)
    more = [lambda: (folder / "b.csv").write_text(HEADER + lines(40, 48)), lambda: None, compress]
    with pytest.raises(SourceError, match=r"HF-S062[^$]*compressed"):
        driven(driver, reader, *more)
    (folder / "a.csv.gz").rename(driver.folder / "a.csv.gz")
    assert readings(driver, driven(driver, reader, from_n=4)) == list(range(40, 44))


def test_a_compressed_file_that_was_read_comes_not_twice_when_it_is_inflated(driver):
    folder = driver.folder / "in"
    folder.mkdir()
    (folder / "a.csv.gz").write_bytes(gzip.compress((HEADER + lines(0, 12)).encode()))
    with pytest.raises(SourceError, match="HF-S062"):
        driven(driver, read.files("in", growing=True), lambda: (folder / "a.csv").write_text(HEADER + lines(0, 12)))


def test_a_copy_is_known_before_it_is_whole(driver):
    folder = driver.folder / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(HEADER + lines(0, 12))
    copy = folder / "b.csv"

    def go_on() -> None:
        with open(copy, "a") as file:
            file.write(lines(6, 12))

    reader = read.files("in", growing=True)
    with pytest.raises(SourceError, match="HF-S062"):
        driven(driver, reader, lambda: copy.write_text(HEADER + lines(0, 6)), lambda: None, go_on)
    copy.unlink()
    assert readings(driver, driven(driver, reader)) == list(range(8))


def test_a_file_that_begins_as_another_is_read_once_it_differs(driver):
    folder = driver.folder / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(HEADER + lines(0, 12))
    other = folder / "b.csv"

    def go_on() -> None:
        with open(other, "a") as file:
            file.write(lines(20, 28))

    frames = driven(
        driver, read.files("in", growing=True), lambda: other.write_text(HEADER + lines(0, 2)), lambda: None, go_on
    )  # fmt: skip
    assert sorted(readings(driver, frames)) == sorted([*range(12), 0, 1, *range(20, 24)])
