"""Frames on disk: whole or not there, and damage is found."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import FrameDiffers, UnitError
from holdfast.frames.files import (
    frame_name,
    list_frames,
    publish,
    read_frame,
    read_record,
    seal_frame,
    sweep,
    write_frame,
)
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from tests.frames.disguises import rows_of, schemas, table_of

ECG = Schema.of("patient string, ts timestamp, mv double")
ROWS = [("b", None, 1.0), ("a", None, None), (None, None, -0.0)]


def seal(folder: Path, rows: list[tuple], *, n: int = 12, kind: Kind = Kind.STABLE, epoch: int = 1):
    return seal_frame(
        folder, table_of(rows, ECG), ECG, "ts",
        stream="ecg", n=n, kind=kind, epoch=epoch, boundary_us=50,
    )  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_frame_comes_back_as_it_was_sealed(tmp_path: Path, data: st.DataObject):
    schema = data.draw(schemas())
    rows = table_of(data.draw(rows_of(schema)), schema)
    record = seal_frame(
        tmp_path, rows, schema, None,
        stream="s", n=12, kind=Kind.STABLE, epoch=3, boundary_us=99,
    )  # fmt: skip
    found, table = read_frame(tmp_path / record.path, verify=True)
    assert found == record
    assert table.schema.equals(schema.arrow, check_metadata=True)
    again = seal_frame(
        tmp_path, table, schema, None,
        stream="s", n=12, kind=Kind.STABLE, epoch=4, boundary_us=99,
    )  # fmt: skip
    assert again == record
    (tmp_path / record.path).unlink()


def test_every_flipped_byte_is_found_or_harmless(tmp_path: Path):
    """Bad memory and bad disks change one byte, anywhere."""
    record = seal(tmp_path, ROWS)
    path = tmp_path / record.path
    whole = path.read_bytes()
    expected = read_frame(path, verify=True)
    damaged, found = tmp_path / "damaged.arrow", 0
    for at in range(len(whole)):
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :])
        try:
            actual = read_frame(damaged, verify=True)
        except FrameDiffers as error:
            assert error.code == "HF-F002"
            found += 1
        else:
            assert actual[0] == expected[0]
            assert actual[1].equals(expected[1])
    assert found > record.bytes
    assert found == len(whole)  # of a file with its hash no byte is harmless


def test_every_truncation_is_found(tmp_path: Path):
    """A full disk or a power cut leaves the head of a file."""
    path = tmp_path / seal(tmp_path, ROWS).path
    whole = path.read_bytes()
    damaged = tmp_path / "damaged.arrow"
    for size in range(len(whole)):
        damaged.write_bytes(whole[:size])
        with pytest.raises(FrameDiffers, match="HF-F002"):
            read_frame(damaged, verify=True)


def test_a_swapped_value_is_found_by_whoever_reads_it(tmp_path: Path):
    """Worker, sink and restart read without asking for more, and took `noodle` for what was sealed."""
    path = tmp_path / seal(tmp_path, [("needle", None, 1.0)]).path
    path.write_bytes(path.read_bytes().replace(b"needle", b"noodle"))
    for read in (read_frame, read_record):
        with pytest.raises(FrameDiffers, match="HF-F002"):
            read(path)


def test_a_frame_of_the_version_before_is_read_and_its_rows_are_checked(tmp_path: Path):
    """It has no hash behind it: its own checksum is recomputed, whoever reads it."""
    record = seal(tmp_path, [("needle", None, 1.0)])
    path = tmp_path / record.path
    table = pa.ipc.open_file(path.read_bytes()[:-24]).read_all()
    about = {key: value for key, value in table.schema.metadata.items() if key != b"holdfast.summed"}
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema.with_metadata(about)) as writer:
        writer.write_table(table.replace_schema_metadata(about))
    assert read_frame(path)[0] == record
    path.write_bytes(path.read_bytes().replace(b"needle", b"noodle"))
    with pytest.raises(FrameDiffers, match="HF-F002"):
        read_frame(path)


def test_a_frame_under_the_name_of_another_is_none(tmp_path: Path):
    """A misdirected write, or a file put back under a wrong name."""
    path = tmp_path / seal(tmp_path, ROWS).path
    other = path.rename(tmp_path / frame_name(13, Kind.STABLE))
    with pytest.raises(FrameDiffers, match="HF-F002.*") as raised:
        read_frame(other)
    assert "00000012.stable.arrow" in raised.value.why


def test_the_same_frame_sealed_again_is_accepted_in_any_order_of_rows(tmp_path: Path):
    """A replay after a crash seals what was sealed already."""
    first = seal(tmp_path, ROWS)
    assert seal(tmp_path, ROWS[::-1], epoch=2) == first
    assert [path.name for path in tmp_path.iterdir()] == [first.path]


def test_other_content_under_a_sealed_number_is_refused(tmp_path: Path):
    """Consumers may have read the first one: replacing it would split the stream."""
    first = seal(tmp_path, ROWS)
    with pytest.raises(FrameDiffers, match="HF-F001") as raised:
        seal(tmp_path, ROWS[:2], epoch=2)
    assert first.checksum in raised.value.why
    assert read_frame(tmp_path / first.path, verify=True)[0] == first
    assert [path.name for path in tmp_path.iterdir()] == [first.path]


def test_a_torn_frame_in_the_place_is_replaced(tmp_path: Path):
    """After a power cut the name may be there without its bytes."""
    first = seal(tmp_path, ROWS)
    path = tmp_path / first.path
    path.write_bytes(path.read_bytes()[:100])
    assert seal(tmp_path, ROWS) == first
    assert read_frame(path, verify=True)[0] == first


def test_a_damaged_frame_in_the_place_is_replaced_and_a_whole_one_stays(tmp_path: Path):
    """Its record could be read, so it stayed, and whoever read it next met the damage again."""
    first = seal(tmp_path, [("needle", None, 1.0)])
    path = tmp_path / first.path
    whole = path.read_bytes()
    inode = path.stat().st_ino
    assert seal(tmp_path, [("needle", None, 1.0)], epoch=2) == first
    assert path.stat().st_ino == inode
    path.write_bytes(whole.replace(b"needle", b"noodle"))
    again = seal(tmp_path, [("needle", None, 1.0)], epoch=2)
    assert (again.checksum, again.epoch) == (first.checksum, 2)
    assert read_frame(path)[1]["patient"].to_pylist() == ["needle"]


def test_frames_are_listed_by_number_and_tmp_files_are_not_frames(tmp_path: Path):
    seal(tmp_path, ROWS, n=10)
    seal(tmp_path, ROWS, n=9)
    seal(tmp_path, ROWS, n=9, kind=Kind.TENTATIVE)
    seal(tmp_path, ROWS, n=123_456_789)
    table = pa.table({"x": [1]})
    tmp = write_frame(
        tmp_path, table,
        stream="s", n=11, kind=Kind.STABLE, epoch=1, boundary_us=1, checksum="00",
    )  # fmt: skip
    (tmp_path / "notes.txt").write_text("not a frame")
    assert [(n, kind) for n, kind, _ in list_frames(tmp_path)] == [
        (9, Kind.STABLE),
        (9, Kind.TENTATIVE),
        (10, Kind.STABLE),
        (123_456_789, Kind.STABLE),
    ]
    assert sweep(tmp_path) == 1
    assert not tmp.exists()
    assert len(list_frames(tmp_path)) == 4


def test_a_lost_frame_is_empty_and_says_why(tmp_path: Path):
    table = table_of([], ECG)
    tmp = write_frame(
        tmp_path, table,
        stream="ecg", n=4, kind=Kind.LOST, epoch=1, boundary_us=1, checksum="00", reason="host down",
    )  # fmt: skip
    record = publish(tmp, tmp_path / frame_name(4, Kind.LOST), sync=True)
    assert (record.rows, record.reason, record.path) == (0, "host down", "00000004.lost.arrow")
    assert read_record(tmp_path / record.path) == record


def test_a_missing_frame_is_named(tmp_path: Path):
    with pytest.raises(UnitError, match="HF-F005.*00000007.stable.arrow"):
        read_frame(tmp_path / frame_name(7, Kind.STABLE))
