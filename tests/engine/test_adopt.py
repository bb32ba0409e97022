"""holdfast adopt on checkpoints by hand; tests/spark reads one that Spark wrote."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.engine.plain.adopt import read_checkpoint
from holdfast.errors import UsageError

KAFKA = '{"orders":{"1":1187,"0":1200},"refunds":{"0":3}}'


@pytest.fixture
def checkpoint(tmp_path):
    """Two batches done, a third begun: Kafka, files, and a source that has given nothing."""
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "metadata").write_text('{"id":"3f2a"}')
    head = 'v1\n{"batchWatermarkMs":%d,"batchTimestampMs":1,"conf":{}}\n'
    (tmp_path / "offsets" / "9").write_text(head % 0 + '{"orders":{"0":1}}\n{"logOffset":0}\n-')
    (tmp_path / "offsets" / "10").write_text(head % 1_700_000_000_000 + KAFKA + '\n{"logOffset":1}\n-')
    (tmp_path / "offsets" / "11").write_text(head % 5 + '{"orders":{"0":9999}}\n{"logOffset":2}\n-')
    (tmp_path / "offsets" / ".11.crc").write_bytes(b"\0\1")
    for n in (9, 10):
        (tmp_path / "commits" / str(n)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    log = tmp_path / "sources" / "1"
    log.mkdir(parents=True)
    for n, at in ((0, 1_000), (1, 60_000), (2, 99_000)):
        (log / str(n)).write_text("v1\n" + json.dumps({"path": f"file:///in/{n}", "timestamp": at, "batchId": n}))
    operator = tmp_path / "state" / "0" / "_metadata"
    operator.mkdir(parents=True)
    (operator / "metadata").write_text('v1\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"}}')
    return tmp_path


def test_the_last_committed_offsets_are_read_not_the_last_ones(checkpoint):
    """Batch 11 was begun: to start behind it would lose its rows."""
    found = read_checkpoint(checkpoint)
    kafka, files, silent = found.sources
    assert (found.batch, found.begun, found.query_id) == (10, 11, "3f2a")
    assert json.loads(kafka.starting_offsets) == json.loads(KAFKA) and kafka.kind == "kafka"
    assert files.kind == "files" and "2 files seen, the newest of 1970-01-01T00:01:00" in files.go_on
    assert silent.kind == "none"


def test_what_is_not_carried_over_is_said(checkpoint):
    said = "\n".join(read_checkpoint(checkpoint).not_carried_over)
    assert (
        "windows still open" in said and "2023-11-14T22:13:20" in said and "batch 11: begun and not committed" in said
    )


def test_the_command_prints_what_can_be_pasted(checkpoint):
    answer = CliRunner().invoke(app, ["adopt", "--spark-checkpoint", str(checkpoint)])
    assert answer.exit_code == 0, answer.output
    assert """.option("startingOffsets", '{"orders":{"0":1200,"1":1187},"refunds":{"0":3}}')""" in answer.output
    assert "not carried over" in answer.output
    answer = CliRunner().invoke(app, ["adopt", "--spark-checkpoint", str(checkpoint), "--json"])
    assert json.loads(answer.output)["sources"][0]["offset"]["orders"]["1"] == 1187


def test_a_job_that_committed_nothing_has_nothing_to_go_on_from(checkpoint):
    for path in (checkpoint / "commits").iterdir():
        path.unlink()
    found = read_checkpoint(checkpoint)
    assert (found.batch, found.begun, found.sources) == (None, 11, ())
    answer = CliRunner().invoke(app, ["adopt", "--spark-checkpoint", str(checkpoint)])
    assert answer.exit_code == 0 and "nothing to go on from" in answer.output


@pytest.mark.parametrize("text", ["v2\n{}\n5", "v1", "v1\n{not json\n5"])
def test_a_format_nobody_knows_is_refused(checkpoint, text):
    (checkpoint / "offsets" / "10").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_checkpoint(checkpoint)
    assert caught.value.code == "HF-E030"


def test_another_folder_is_refused(tmp_path):
    answer = CliRunner().invoke(app, ["adopt", "--spark-checkpoint", str(tmp_path)])
    assert answer.exit_code == 2 and "HF-E030" in answer.output + answer.stderr


def test_offsets_of_strangers_are_shown_as_they_are(checkpoint):
    text = 'v1\n{"batchWatermarkMs":0}\n42\n{"sourceVersion":1,"index":-1}\nnot json\n{}'
    (checkpoint / "offsets" / "10").write_text(text)
    assert [source.kind for source in read_checkpoint(checkpoint).sources] == ["number", "other", "other", "other"]
