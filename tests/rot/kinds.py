"""Every kind of file that is written: how one comes about, and what is made of it.

Each is built by the parts that write it in a run, without Spark, and read by those that
read it. What is read is a plain value, so that it can be compared; an error with a code
is raised as it is. Where damage is cured by going back to a backup, that is told here
by `Cured`, since the cure needs a run (tests/spark/test_hosts.py has it).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.flow.parameters import Config
from holdfast.engine.flow.source_runner import Intake
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import HoldfastError
from holdfast.frames.content import checksum
from holdfast.frames.files import list_frames, read_frame, seal_frame
from holdfast.frames.identity import FrameRecord
from holdfast.frames.identity import Kind as FrameKind
from holdfast.graph.edge_ids import EdgeId
from holdfast.graph.hosting import Host
from holdfast.graph.model import Param
from holdfast.graph.schemas import Schema
from holdfast.hosts.containers import Packer, unpack
from holdfast.hosts.hosts import Homes
from holdfast.hosts.local_checkpoint import instance_epoch, write_instance
from holdfast.hosts.sealed import Damaged, NewerFormat, from_json, is_whole, to_json
from holdfast.hosts.spark_checkpoint import frame_in, frames_of_batches
from holdfast.journals.asides import read_aside, write_aside
from holdfast.journals.incidents import Incidents, incidents_of
from holdfast.journals.journal import Journal
from holdfast.journals.notes import as_note
from holdfast.journals.seals import SealJournal, seals_of
from holdfast.journals.shown import Shown, shown_to
from holdfast.operators.runs import RunRef, open_run_file, write_run_file
from holdfast.operators.spec import Note, read_notes, write_note
from holdfast.protocols.messages import Manifest
from holdfast.records.quarantine import _bad_records
from holdfast.sinks.parquet import ParquetWriter
from holdfast.sinks.writer import SinkContext
from holdfast.sources.live.log import SourceLog
from holdfast.sources.live.redelivered import Redelivered, _Kept
from holdfast.sources.parse.bad import Bad, quarantine_bad
from holdfast.sources.reader import SourceFrame
from holdfast.sources.reference import load

__all__ = ["KINDS", "Cured", "FileKind"]

ROWS = Schema.of("zone int, ts timestamp, name string, value double, tags array<string>")
LOGGED = Schema.of("x bigint, s string")


class Cured(Exception):
    """Noticed, and made good without an error: by a backup, by a frame that is made again, or told in a list."""


@dataclass(frozen=True)
class FileKind:
    name: str
    files: str  # glob of those that are struck
    build: Callable[[Path], None]
    read: Callable[[Path], Any]
    # What may be read after an end was cut off, beside what is right: an end can look as a crash leaves it.
    after_cut: Callable[[Any, Any], bool] = lambda right, found: False


def _prefix(right: list, found: list) -> bool:
    return found == right[: len(found)]


# ---- frames ----


def _table(n: int) -> pa.Table:
    count = 12 * n
    columns = [
        [at % 5 for at in range(count)], [at * 1000 + n for at in range(count)], [f"zone {at % 3}" for at in range(count)],
        [at / 7 if at % 4 else None for at in range(count)], [["a", "b"][: at % 3] for at in range(count)],
    ]  # fmt: skip
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ROWS.arrow, strict=True)]
    return pa.table(arrays, schema=ROWS.arrow)


def _seal(folder: Path, epoch: int) -> None:
    (folder / "s").mkdir(exist_ok=True)
    for n in (1, 2, 3):
        seal_frame(
            folder / "s",
            _table(n),
            ROWS,
            "ts",
            stream="s",
            n=n,
            kind=FrameKind.STABLE,
            epoch=epoch,
            boundary_us=n * 1000,
        )


def _frames(folder: Path) -> list:
    return [[record.n, record.rows, record.checksum, table.to_pylist()] for record, table in _read(folder)]


def _read(folder: Path) -> list:
    return [read_frame(path) for _, _, path in list_frames(folder / "s")]


def _frames_made_again(folder: Path) -> list:
    _seal(folder, 2)
    return _frames(folder)


# ---- journals ----


def _commit(n: int) -> dict:
    return {
        "n": n, "epoch": 1, "boundary_us": n * 1000, "inputs": [["s", n, "stable", 1, f"{n:032x}"]],
        "outputs": {"o": {"rows": n, "bytes": 10 * n, "checksum": f"{n + 9:032x}"}},
        "state": {"k": {"0": [[f"{n:08d}-ab.arrow", 0, 0, n, 99]]}}, "counts": {}, "at": 1.5,
    }  # fmt: skip


def _build_commits(folder: Path) -> None:
    for first in (1, 5):
        journal = Journal(folder, "commits", keep=512)
        for n in range(first, first + 4):
            journal.append(_commit(n))
        journal.close()


def _read_commits(folder: Path) -> list:
    journal = Journal(folder, "commits", keep=512)
    entries = list(journal.entries())
    last, tail = journal.last(), journal.tail(3)
    if entries[-len(tail) :] != tail or (entries and last != entries[-1]):
        raise AssertionError("two ways to read one journal differ")
    return entries


def _build_changes(folder: Path) -> None:
    config = Config(folder, (Param("limit", 90), Param("name", "x")))
    for n, frame in enumerate((3, 14, 20)):
        config.set("limit", 80 + n, frame=frame, key=None, note="so", who="ada", at="now")
    config._journal.close()


def _read_changes(folder: Path) -> list:
    config = Config(folder, (Param("limit", 90), Param("name", "x")))
    return [config.at(frame) for frame in (1, 3, 14, 15, 20, 99)]


def _build_sealed(folder: Path) -> None:
    journal = SealJournal(folder)
    for n in range(1, 6):
        journal.note(
            n, epoch=1, boundary_us=n, rows=n, size=n, checksum=f"{n:032x}", late=0, references=(), at=float(n)
        )
    journal.close()


def _build_incidents(folder: Path) -> None:
    incidents = Incidents(folder)
    for at in range(4):
        incidents.note("restart", unit=f"u{at}", frame=at, at=float(at))
    incidents.close()


def _read_incidents(folder: Path) -> list:
    found = incidents_of(folder)
    if any(each.what == "damaged record" for each in found):
        raise Cured("it is told as an incident of its own")
    return [asdict(each) for each in found]


# ---- source log ----


def _logged(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64()), "s": [f"element {value}" for value in values]})


def _build_log(folder: Path) -> None:
    log = SourceLog(folder / "log", LOGGED)
    chunks = [log.append(batch, _logged(batch, 10 + batch), {"at": batch}, {"deliveries": 2}) for batch in (1, 2, 3)]
    sealed = SealJournal(folder)
    for n, chunk, rows in ((1, chunks[0], (0, 2)), (2, chunks[1], (0, 1)), (3, chunks[1], (1, 2))):
        reference = chunk.file.reference(np.array([rows], dtype=np.int64))
        frame = SourceFrame(n, (reference,), reference.rows, 1, f"{n:032x}", 0)
        log.seal([frame], {"batch": chunk.batch, "cutter": {}, "open": [], "newest_us": 0})
        sealed.note(
            n, epoch=1, boundary_us=n, rows=1, size=1, checksum=frame.checksum, late=0, references=[reference], at=1.0
        )
    sealed.close()
    for value in (41, 42, 43):
        log.stage(_logged(value), {"at": value}, {"deliveries": 1, "keys": [f"{value}:k"]})
    log.close()


def _read_log(folder: Path) -> list:
    log = SourceLog(folder / "log", LOGGED)
    log.check_reaches(SealJournal(folder).last_n())
    sealed = [
        [
            frame.n,
            frame.checksum,
            [row for each in frame.references for batch in load(each, LOGGED) for row in batch.to_pylist()],
        ]
        for frame in log.sealed(1)
    ]
    rows = [row for chunk in log.chunks() for row in log.table(chunk).to_pylist()]
    log.close()
    return [sealed, log.state, rows]


def _staged_cut(right: list, found: list) -> bool:
    return found[:2] == right[:2] and _prefix(right[2], found[2])


def _build_redelivered(folder: Path) -> None:
    log = SourceLog(folder / "log", LOGGED)
    Redelivered(folder / "redelivered.arrow", log, None)._save([_Kept(n, (n, n + 1), (f"{n}:k",), 2) for n in (1, 2)])


def _read_redelivered(folder: Path) -> list:
    log = SourceLog(folder / "log", LOGGED)
    return [
        [each.batch, each.ids, each.keys, each.deliveries]
        for each in Redelivered(folder / "redelivered.arrow", log, None)._saved()
    ]


def _build_bad(folder: Path) -> None:
    error = HoldfastError("HF-S006", "X", "x")
    quarantine_bad(folder, 7, [Bad(at, error, f"no number: {at}", '{"x": "ä' + str(at)) for at in range(4)])


def _read_bad(folder: Path) -> list:
    found = [record for path in sorted(folder.glob("bad-*")) for record in _bad_records(path)]
    if any("damaged" in str(each.get("reason")) for each in found):
        raise Cured("it is told in the quarantine")
    return [[each["reason"], each["raw"]] for each in found]


def _build_aside(folder: Path) -> None:
    write_aside(folder / "00000012.parquet", _table(2))


def _read_aside(folder: Path) -> list:
    return read_aside(folder / "00000012.parquet").to_pylist()


# ---- small files ----


def _build_state(folder: Path) -> None:
    state = StateFolder(folder / "state")
    for _ in range(17):
        state.acquire("kiln")
        state.release()
    state.deploy({"process": "kiln", "start": {"hot": 12}, "t0_us": 5, "schemas": {"s": "x bigint"}})


def _read_state(folder: Path) -> list:
    state = StateFolder(folder / "state")
    try:
        # An id of a start that cannot be read is one that is not known: the ledgers of sinks ask for it.
        return [state.acquire("kiln"), state.identity, state.deployment(), len(state.owner().starts) > 0]
    finally:
        state.release()


def _homes(folder: Path) -> Homes:
    return Homes(folder / "state", [Host("a"), Host("b")], None, [("u", None, ("s",))])


def _build_homes(folder: Path) -> None:
    _homes(folder).open()
    write_instance(folder / "state" / "hosts" / "a" / "units" / "u", 31)


def _read_homes(folder: Path) -> list:
    homes = _homes(folder)
    if homes.open():
        raise Cured("the host counts as lost: its units come back from their backups")
    instance = instance_epoch(folder / "state" / "hosts" / "a" / "units" / "u")
    if instance is None:
        raise Cured("the unit comes back from its backup")
    return [homes.lives, homes.identity, instance]


def _build_end(folder: Path) -> None:
    (folder / "end.json").write_text(as_note({"last": 17, "extent": 1234}))


def _read_end(folder: Path) -> Any:
    return Intake._known(SimpleNamespace(_end_file=folder / "end.json"))


def _build_shown(folder: Path) -> None:
    Shown(folder, "hot", sync=False).trying(7)


def _build_declared(folder: Path) -> None:
    for frame, value in ((1, 80.0), (9, 90.0), (17, 70.0)):
        Config(folder, (Param("limit", value),)).declare(frame)


def _read_declared(folder: Path) -> list:
    config = Config(folder, (Param("limit", 70.0),))
    return [config.at(n)["limit"]["value"] for n in (1, 9, 17)]


def _build_exclusions(folder: Path) -> None:
    for n in (4, 9):
        record = {"operator": "f", "on_error": "quarantine", "rows": 2, "error": "boom", "at": 1.0}
        Exclusions(folder).decide(n, {"s": [[1, 3]]}, {}, record)


def _read_exclusions(folder: Path) -> list:
    found = Exclusions(folder)
    return [found.at(4), found.at(9), found.rows("quarantine")]


def _build_notes(folder: Path) -> None:
    (folder / "notes").mkdir()
    for shards in ((0, 1), (2, 3)):
        runs = {shard: (RunRef("00000003-ab-cd.arrow", shard, 0, 5, 77),) for shard in shards}
        write_note(
            folder / "notes", Note(n=3, epoch=1, shards=shards, runs=runs, keys=5, rows=9, counts={"late_rows": 1})
        )


def _read_notes(folder: Path) -> list:
    return sorted(map(repr, read_notes(folder / "notes", 3, range(4))))


# ---- state and backups ----


def _build_runs(folder: Path) -> None:
    (folder / "runs").mkdir()
    write_run_file(folder / "runs", 3, _table(2))


def _read_runs(folder: Path) -> list:
    return [open_run_file(path).to_pylist() for path in sorted((folder / "runs").iterdir())]


def _build_container(folder: Path) -> None:
    packer = Packer("u", 1, folder / "containers")
    frame = folder / "00000003.stable.arrow"
    _seal(folder, 1)
    frame.write_bytes((folder / "s" / frame.name).read_bytes())
    manifest = packer.pack(1, 3, ((EdgeId.parse("s>v"), 2),), {f"streams/s/{frame.name}": frame}, record={"n": 3})
    (folder / "manifest.json").write_bytes(to_json(manifest))


def _read_container(folder: Path) -> list:
    try:
        manifest: Manifest = from_json((folder / "manifest.json").read_bytes())
    except (Damaged, NewerFormat):
        raise Cured("another copy is asked, or a code says that there is none") from None
    contents = {name: (folder / "containers" / name).read_bytes() for name in manifest.files}
    if not all(is_whole(name, content) for name, content in contents.items()):
        raise Cured("another copy is asked, or a code says that there is none")
    found = unpack(manifest, contents)
    return [
        repr(manifest),
        found.head["record"],
        sorted((name, bytes(content)) for name, content in found.files.items()),
    ]


def _build_spark(folder: Path) -> None:
    for log in ("offsets", "commits"):
        (folder / log).mkdir()
    for batch in range(4):
        said = json.dumps({"n": batch + 9, "inputs": [["s", batch + 9, "stable", 1, f"{batch:032x}"]]})
        (folder / "offsets" / str(batch)).write_text('v1\n{"batchWatermarkMs":0}\n' + said)
        (folder / "commits" / str(batch)).write_text('v2\n{"nextBatchWatermarkMs":0}')


def _read_spark(folder: Path) -> list:
    inputs = {batch + 9: [["s", batch + 9, "stable", 1, f"{batch:032x}"]] for batch in range(4)}
    found = frames_of_batches(folder)
    return [found, [frame_in(folder / "offsets" / str(batch), inputs) for batch in range(4)]]


# ---- sinks ----


def _sink(folder: Path, epoch: int) -> Any:
    return ParquetWriter(Path("out")).open(SinkContext("kiln", "seen", ROWS, "ts", folder, epoch))


def _batch(*numbers: int) -> list:
    found = []
    for n in numbers:
        table = _table(n)
        total = checksum(table, n=n, boundary_us=n, kind=FrameKind.STABLE)
        found.append((FrameRecord("s", n, FrameKind.STABLE, 1, n, table.num_rows, table.nbytes, total), table))
    return found


def _build_ledger(folder: Path) -> None:
    sink = _sink(folder, 3)
    sink.write(_batch(1, 2))
    sink.write(_batch(3))


def _read_ledger(folder: Path) -> list:
    sink = _sink(folder, 4)
    last = sink.last()
    sink.write(_batch(*range(max(1, min(3, last)), 5)))
    rows = [pq.read_table(path).to_pylist() for path in sorted((folder / "out").glob("*.parquet"))]
    return [sorted(sink._entries.items()), sink.last(), rows]


KINDS = [
    FileKind("sealed frame", "s/*.arrow", lambda folder: _seal(folder, 1), _frames),
    FileKind("sealed frame, made again", "s/*.arrow", lambda folder: _seal(folder, 1), _frames_made_again),
    FileKind("journal of commits", "commits.*", _build_commits, _read_commits, _prefix),
    FileKind("journal of parameters", "changes.*", _build_changes, _read_changes),
    FileKind("journal of declared values", "declared.*", _build_declared, _read_declared),
    FileKind("what a sink was handed", "shown", _build_shown, lambda folder: shown_to(folder, "hot")),
    FileKind("journal of sealed source frames", "sealed.*", _build_sealed, seals_of, _prefix),
    FileKind("journal of incidents", "records/*", _build_incidents, _read_incidents, _prefix),
    FileKind("chunk of a source log", "log/*.arrow", _build_log, _read_log),
    FileKind("seals of a source log", "log/seals.jsonl", _build_log, _read_log),
    FileKind("list of chunks", "log/chunks.jsonl", _build_log, _read_log),
    FileKind("staged deliveries", "log/staged", _build_log, _read_log, _staged_cut),
    FileKind("redelivered", "redelivered.arrow", _build_redelivered, _read_redelivered),
    FileKind("records that could not be read", "bad-*", _build_bad, _read_bad, _prefix),
    FileKind("rows set aside", "*.parquet", _build_aside, _read_aside),
    FileKind("epoch, identity, deployment", "state/*[!k]", _build_state, _read_state),
    FileKind("hosts", "state/**/*", _build_homes, _read_homes),
    FileKind("end of a source", "end.json", _build_end, _read_end),
    FileKind("rows left out", "quarantine/*", _build_exclusions, _read_exclusions),
    FileKind("notes of tasks", "notes/*", _build_notes, _read_notes),
    FileKind("state run", "runs/*", _build_runs, _read_runs),
    FileKind("manifest", "manifest.json", _build_container, _read_container),
    FileKind("container", "containers/*", _build_container, _read_container),
    FileKind("Spark's offsets", "offsets/*", _build_spark, _read_spark),
    FileKind("ledger of a Parquet folder", "out/_holdfast/*[!k]", _build_ledger, _read_ledger),
]
