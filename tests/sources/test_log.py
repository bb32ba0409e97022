"""What is logged and sealed is there after a crash, once; what was not is not."""

import os
import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.sources.live.log import SourceLog
from holdfast.sources.reader import SourceFrame
from holdfast.sources.reference import load

SCHEMA = Schema.of("x bigint")


def elements(*values):
    return pa.table({"x": pa.array(values, pa.int64())})


def frame(n, chunk, *ranges):
    reference = chunk.file.reference(np.array(ranges, dtype=np.int64))
    return SourceFrame(n, (reference,), reference.rows, 1, f"sum{n}", 0)


def state(batch):
    return {"batch": batch, "cutter": {}, "open": [], "newest_us": 0}


@pytest.fixture
def log(tmp_path):
    """Batches 1 to 3, frames 1 and 2."""
    log = SourceLog(tmp_path, SCHEMA)
    chunks = [log.append(batch, elements(batch, batch)) for batch in (1, 2, 3)]
    log.seal([frame(1, chunks[0], (0, 2))], state(1))
    log.seal([frame(2, chunks[1], (0, 1)), frame(3, chunks[1], (1, 2))], state(2))
    return log


def test_the_log_is_as_it_was_after_a_crash(log, tmp_path):
    again = SourceLog(tmp_path, SCHEMA)
    assert list(again.sealed(1)) == list(log.sealed(1))
    assert (again.logged, again.next_batch, again.last_n) == (6, 4, 3)
    assert again.state == state(2)


def test_a_batch_logged_twice_is_there_once(log, tmp_path):
    """The ingest side sends a batch again when it does not know whether it came through."""
    log.append(3, elements(99, 99))
    assert log.logged == 6
    assert log.read(SourceLog(tmp_path, SCHEMA).chunk(3), "x").to_pylist() == [3, 3]


def test_half_a_chunk_is_cleared_away(log, tmp_path):
    (tmp_path / "000000000004.tmp").write_bytes(b"half")
    assert SourceLog(tmp_path, SCHEMA).logged == 6
    assert not list(tmp_path.glob("*.tmp"))


def test_a_seal_torn_anywhere_never_happened(log, tmp_path):
    """Frames 2 and 3 were sealed together: half of it must not count."""
    data = (tmp_path / "seals.jsonl").read_bytes()
    first = data.index(b"\n") + 1
    for length in range(first, len(data) - 1, 17):
        (tmp_path / "seals.jsonl").write_bytes(data[:length])
        again = SourceLog(tmp_path, SCHEMA)
        assert (again.last_n, again.state) == (1, state(1))
        again.seal([frame(2, again.chunk(2), (0, 2))], state(2))
        assert SourceLog(tmp_path, SCHEMA).last_n == 2


def test_damage_in_the_middle_is_not_taken_for_a_torn_end(log, tmp_path):
    data = bytearray((tmp_path / "seals.jsonl").read_bytes())
    data[20] ^= 1
    (tmp_path / "seals.jsonl").write_bytes(data)
    with pytest.raises(SourceError, match="HF-S009 LogDamaged"):
        SourceLog(tmp_path, SCHEMA)


def test_a_damaged_chunk_is_found_when_its_frame_is_wanted(log, tmp_path):
    path = tmp_path / "000000000001.arrow"
    one, seven = (value.to_bytes(8, "little") * 2 for value in (1, 7))
    assert one in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(one, seven))
    with pytest.raises(SourceError, match="HF-S009 LogDamaged"):
        list(SourceLog(tmp_path, SCHEMA).sealed(1))


def test_trimming_keeps_what_a_later_frame_needs(log, tmp_path):
    assert log.trim(before_n=3) == 1  # frame 3 needs batch 2; batch 3 is not cut yet
    again = SourceLog(tmp_path, SCHEMA)
    for one in (log, again):
        assert [found.n for found in one.sealed(3)] == [3]
        assert one.logged == 6
    with pytest.raises(SourceError, match="HF-S010 LogTrimmed"):
        list(again.sealed(1))


def test_the_log_stays_small_when_it_is_trimmed(tmp_path):
    log = SourceLog(tmp_path, SCHEMA)
    for n in range(1, 60):
        chunk = log.append(n, elements(n))
        log.seal([frame(n, chunk, (0, 1))], state(n))
        log.trim(n)
    assert len(list(tmp_path.glob("*.arrow"))) <= 2


# -- small deliveries --------------------------------------------------------


def values(log):
    return [value for chunk in log.chunks() for value in log.read(chunk, "x").to_pylist()]


def test_what_is_staged_is_a_chunk_after_a_crash(log, tmp_path):
    log.stage(elements(4), {"batch": 1}, {"deliveries": 1, "keys": ["a"]})
    log.stage(elements(5), None, {"deliveries": 2, "keys": ["b"]})
    assert (log.logged, log.mark) == (8, {"batch": 1})
    again = SourceLog(tmp_path, SCHEMA)
    assert values(again) == [1, 1, 2, 2, 3, 3, 4, 5]
    assert (again.mark, again.chunk(4).note) == ({"batch": 1}, {"deliveries": 3, "keys": ["a", "b"]})
    assert values(SourceLog(tmp_path, SCHEMA)) == values(again)


def test_what_was_settled_before_a_crash_is_not_there_twice(log, tmp_path):
    """Killed after the chunk was there and before the staged file was cleared."""
    log.stage(elements(4), None, {})
    staged = (tmp_path / "staged").read_bytes()
    log.settle()
    (tmp_path / "staged").write_bytes(staged)
    assert values(SourceLog(tmp_path, SCHEMA)) == [1, 1, 2, 2, 3, 3, 4]


def test_a_staged_record_torn_anywhere_never_happened(log, tmp_path):
    log.stage(elements(4), None, {})
    first = (tmp_path / "staged").stat().st_size
    log.stage(elements(5), None, {})
    data = (tmp_path / "staged").read_bytes()
    for length in range(first, len(data), 37):
        folder = tmp_path / f"torn-{length}"
        folder.mkdir()
        (folder / "staged").write_bytes(data[:length])
        for path in tmp_path.glob("*.arrow"):
            (folder / path.name).write_bytes(path.read_bytes())
        assert values(SourceLog(folder, SCHEMA)) == [1, 1, 2, 2, 3, 3, 4]


def test_a_column_declared_later_is_null_in_what_was_logged_before(log, tmp_path):
    """The remedy for a new field is to declare it: the log must still be readable then."""
    log.stage(elements(4), None, {})
    wider = Schema.of("unit string, x bigint")
    again = SourceLog(tmp_path, wider)
    again.append(5, pa.table({"unit": ["C"], "x": [5]}))
    rows = [row for chunk in again.chunks() for row in again.table(chunk).to_pylist()]
    assert rows[-3:] == [{"unit": None, "x": 3}, {"unit": None, "x": 4}, {"unit": "C", "x": 5}]
    [sealed] = list(again.sealed(3))
    [batch] = load(sealed.references[0], wider)
    assert batch.to_pylist() == [{"unit": None, "x": 2}]


# -- damage ------------------------------------------------------------------


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_flip_in_an_acknowledged_delivery_is_an_error_and_cuts_nothing_off(log, tmp_path):
    """One bit in the 3rd of 5 acknowledged records cut off the 3rd to 5th without a word."""
    for value in range(4, 9):
        log.stage(elements(value), None, {})
    staged = tmp_path / "staged"
    data = staged.read_bytes()
    size = len(data) // 5
    for bit in [*range(2 * size * 8, 2 * size * 8 + 256, 9), *range(2 * size * 8, len(data) * 8, 797)]:
        staged.write_bytes(flipped(data, bit))
        try:
            again = SourceLog(tmp_path, SCHEMA)
        except SourceError as error:
            assert error.code == "HF-S009"
            assert staged.read_bytes() == flipped(data, bit)
        else:  # the end of a record is not part of what was acknowledged
            assert values(again) == [1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8]
            (tmp_path / "000000000004.arrow").unlink()
            (tmp_path / "chunks.jsonl").unlink()
    staged.write_bytes(flipped(data, 2 * size * 8 + 300))
    with pytest.raises(SourceError, match="record 3"):
        SourceLog(tmp_path, SCHEMA)
    staged.unlink()  # what the error says to do
    assert values(SourceLog(tmp_path, SCHEMA)) == [1, 1, 2, 2, 3, 3]


def test_what_the_version_before_has_staged_is_read(tmp_path):
    out = pa.BufferOutputStream()
    table = elements(7).replace_schema_metadata({"batch": "1", "mark": "null", "note": "{}"})
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    body = out.getvalue().to_pybytes()
    record = struct.pack("<QQ", len(body), xxhash.xxh3_64_intdigest(body)) + body
    (tmp_path / "staged").write_bytes(record + record[:30])
    assert values(SourceLog(tmp_path, SCHEMA)) == [7]


def test_a_batch_that_is_lost_before_it_is_sealed_is_an_error_at_once(log, tmp_path):
    """The source waited for it for ever, and went on answering ok to its senders."""
    log.append(4, elements(4))
    for batch in (3, 4):  # in the middle, and the last
        path = tmp_path / f"{batch:012d}.arrow"
        path.rename(tmp_path / "away")
        with pytest.raises(SourceError, match="HF-S009") as raised:
            SourceLog(tmp_path, SCHEMA)
        assert raised.value.where == str(path) and "is gone" in raised.value.why
        (tmp_path / "away").rename(path)
    assert values(SourceLog(tmp_path, SCHEMA)) == [1, 1, 2, 2, 3, 3, 4]


def test_a_batch_that_rots_before_it_is_sealed_is_an_error_at_once(log, tmp_path):
    """Its digest was taken when it was cut, so what had become of it was believed."""
    path = tmp_path / "000000000003.arrow"
    data = path.read_bytes()
    for bit in range(0, len(data) * 8, 211):
        path.write_bytes(flipped(data, bit))
        with pytest.raises(SourceError, match="HF-S009"):
            SourceLog(tmp_path, SCHEMA)


def test_a_batch_that_rots_after_it_was_sealed_is_found_by_the_worker_that_reads_it(log, tmp_path):
    [reference] = next(log.sealed(1)).references
    path = tmp_path / "000000000001.arrow"
    data, stat = path.read_bytes(), path.stat()
    for bit in range(0, len(data) * 8, 211):
        path.write_bytes(flipped(data, bit))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        with pytest.raises(SourceError, match="HF-S009"):
            list(load(reference, SCHEMA))


def test_a_seal_that_is_damaged_or_left_out_is_an_error_also_at_the_end(log, tmp_path):
    seals = tmp_path / "seals.jsonl"
    data = seals.read_bytes()
    for bit in range(0, (len(data) - 1) * 8, 37):
        seals.write_bytes(flipped(data, bit))
        with pytest.raises(SourceError, match="HF-S009"):
            SourceLog(tmp_path, SCHEMA)
    lines = data.splitlines(keepends=True)
    seals.write_bytes(lines[0] + lines[2])
    with pytest.raises(SourceError, match="HF-S009") as raised:
        SourceLog(tmp_path, SCHEMA)
    assert "frames 2 to 2 are missing" in raised.value.why
    seals.write_bytes(lines[0])
    with pytest.raises(SourceError, match="HF-S009"):
        SourceLog(tmp_path, SCHEMA).check_reaches(3)


def test_a_log_that_is_new_is_not_behind_what_another_kind_of_source_handed_out(tmp_path):
    SourceLog(tmp_path, SCHEMA).check_reaches(300)
