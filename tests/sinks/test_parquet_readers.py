"""The manifest of a Parquet folder, read as docs/howto/parquet.md says, without anything of ours."""

from __future__ import annotations

import json
import re
import signal
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import xxhash

from holdfast.frames.identity import Kind
from holdfast.sinks import ledger, parquet, write

from .conftest import make_frame
from .killed_child import FRAMES, frames
from .test_killed import child, go_on

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "parquet.md"


def printed():
    """The function of the page, as printed."""
    [text] = re.findall(r"```python\n(import json.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict = {}
    exec(text, names)
    return names["committed"]


committed = printed()


def numbers(folder):
    return [int(path.stem[6:]) for path in committed(folder)]


WRITTEN = [n for n in range(1, FRAMES + 1) if n != 5]  # frame 5 has no rows, and so no file
EXPECTED = {record.n: table for record, table in frames()}


def test_a_reader_beside_a_writer_sees_whole_frames_only_and_never_fewer(tmp_path):
    """Reads as fast as it can while another process writes, and is killed in the middle."""
    process = child("parquet", tmp_path, "none", 0, "append")
    out, seen = tmp_path / "out", [0]
    while not (out / "_holdfast" / "ledger.jsonl").exists():
        assert process.poll() is None
    reported = 0
    while reported < FRAMES - 3:
        files = committed(out)
        for path in files:
            assert pq.read_table(path).equals(EXPECTED[int(path.stem[6:])])
        seen.append(len(files))
        reported = int(process.stdout.readline())
        assert [n for n in WRITTEN if n <= reported] == [n for n in numbers(out) if n <= reported]
    process.kill()
    process.communicate()
    assert seen == sorted(seen)
    for path in committed(out):
        assert pq.read_table(path).equals(EXPECTED[int(path.stem[6:])])


@pytest.mark.parametrize(
    ("point", "noted", "there"), [("before rename", 5, 5), ("renamed", 5, 6), ("after ledger line", 6, 6)]
)
def test_after_a_kill_the_manifest_names_what_is_committed(tmp_path, point, noted, there):
    """A file that was renamed and not noted is there for who lists the folder, and not yet committed."""
    process = child("parquet", tmp_path, point, 7, "append")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    out = tmp_path / "out"
    assert len(committed(out)) == noted and len(list(out.glob("*.parquet"))) == there
    go_on("parquet", tmp_path, "append", last=6 if noted == 5 else 7)
    assert numbers(out) == WRITTEN


def test_a_line_that_is_being_written_is_left_out(tmp_path, context):
    with closing(write.parquet("out").open(context())) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0)]), make_frame(2, [(2, 2, 2.0)])])
    manifest = tmp_path / "out" / "_holdfast" / "ledger.jsonl"
    manifest.write_text(manifest.read_text()[:-9])
    assert numbers(tmp_path / "out") == [1]


def test_frames_older_than_the_manifest_are_committed(tmp_path, context, monkeypatch):
    for module in (ledger, parquet):
        monkeypatch.setattr(module, "KEPT_FRAMES", 3)
    with closing(write.parquet("out").open(context())) as sink:
        for n in range(1, 10):
            sink.write([make_frame(n, [(n, n, float(n))])])
    lines = (tmp_path / "out" / "_holdfast" / "ledger.jsonl").read_text().splitlines()
    assert len(lines) < 9
    assert numbers(tmp_path / "out") == list(range(1, 10))


def test_the_head_says_what_the_lines_hold(tmp_path, context):
    with closing(write.parquet("out").open(context())) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0)], kind=Kind.TENTATIVE, checksum="a")])
        sink.write([make_frame(1, [(1, 1, 2.0)], checksum="b")])
    head, *lines = map(json.loads, (tmp_path / "out" / "_holdfast" / "ledger.jsonl").read_text().splitlines())
    last = dict(zip(head["lines"], lines[-1], strict=True))
    size, check = last.pop("bytes"), last.pop("check")
    assert check == xxhash.xxh32_hexdigest(json.dumps(lines[-1][:-1]).encode())
    assert last == {"frame": 1, "kind": "stable", "checksum": "b", "epoch": 1, "rows": 1, "mark": "", "left_out": 0}
    assert (head["process"], head["sink"], head["schema"]) == ("kiln", "average", "zone int, ts timestamp, mean double")
    [file] = committed(tmp_path / "out")
    assert pq.read_schema(file).metadata[b"holdfast.checksum"] == b"b"
    assert file.stat().st_size == size
