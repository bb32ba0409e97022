"""What was set aside: late rows, records that could not be read, rows an operator raised on.

    sources/NAME/quarantine/00000012.parquet      late rows, by the frame that was open when they came
    sources/NAME/quarantine/ahead-000000000007.parquet  rows ahead of the clock, by the ingest batch they came in
    sources/NAME/quarantine/bad-000000000007.jsonl  records as they came: {"at", "frame", "reason", "raw"}
    units/NAME/quarantine/00000041-PORT.parquet   rows an operator raised on; 00000041.json says why
    units/NAME/quarantine/00000041-PORT.2.parquet   and those it raised on once the first were left out
    sinks/NAME/quarantine/00000041-STREAM.parquet   rows the target of a sink refused; 00000041.json says why

Rows of a source with a log can be put back: they are handed to the source as a file
in sources/NAME/put-back and become new elements of the next frames. What was put
back is written down before and after the move, under the name of its file, so the
same file is never put back twice, though a replay may set the same rows aside again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.atomic import make_folder, put_in_place
from holdfast.errors import UsageError
from holdfast.journals.journal import Journal
from holdfast.journals.notes import note_in, read_note
from holdfast.records.kept import Kept
from holdfast.records.masking import masked, shown_rows

__all__ = ["SetAside", "put_back", "put_mended", "set_aside", "shown_item"]

_LATE = re.compile(r"(\d{8,})\.parquet")
_AHEAD = re.compile(r"ahead-\d+\.parquet")
_POISON = re.compile(r"(\d{8,})-(.+?)(?:\.(\d+))?\.parquet")  # frame, port, which decision about the frame


@dataclass(frozen=True, slots=True)
class SetAside:
    item: str  # what a user names: from the state folder, as in sources/ecg/quarantine/00000012.parquet
    kind: str  # "late" | "ahead" | "bad" | "raised" | "refused", by a sink | "untaken", by a source | "waits", to be taken by it
    of: str  # source, unit or sink
    frame: int | None
    rows: int
    why: str
    stream: str = ""  # whose rows they are
    put_back: str = ""  # when, if they were

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def set_aside(kept: Kept) -> list[SetAside]:
    """Everything that lies in quarantine, sources first, by name."""
    return sorted(
        [*_of_sources(kept), *_on_their_way(kept), *_of_units(kept), *_of_sinks(kept)], key=lambda each: each.item
    )


def _of_sources(kept: Kept) -> Iterator[SetAside]:
    for path in sorted(kept.root.glob("sources/*/quarantine/*")):
        source, item = path.parts[-3], str(path.relative_to(kept.root))
        if found := _LATE.fullmatch(path.name):
            n = int(found[1])
            at = _put_back_at(kept, source, f"late-{path.name}")
            yield SetAside(
                item, "late", source, n, _parquet_rows(path), f"came late, while frame {n} was open", source, at
            )
        elif _AHEAD.fullmatch(path.name):
            at = _put_back_at(kept, source, f"{source}-{path.name}")
            yield SetAside(
                item, "ahead", source, None, _parquet_rows(path), "was ahead of the clock when it came", source, at
            )
        elif path.name.startswith("bad-") and path.suffix == ".jsonl":
            records = _bad_records(path)
            reasons = sorted({str(each.get("reason", "")) for each in records})
            more = f" and {len(reasons) - 1} more" if len(reasons) > 1 else ""
            why = "cannot be read as declared" if kept.hides_values else f"{reasons[0] if reasons else ''}{more}"
            yield SetAside(item, "bad", source, None, len(records), why, source)


def _on_their_way(kept: Kept) -> Iterator[SetAside]:
    """Rows that were put back, and are not in the stream: the source does not run, waits for their time, or did not take them."""
    for path in sorted(kept.root.glob("sources/*/put-back/*")):
        source, item = path.parts[-3], str(path.relative_to(kept.root))
        if path.suffix == ".parquet":
            why = "was put back; the source takes it when it runs and its time has come"
            yield SetAside(item, "waits", source, None, _parquet_rows(path), why, source)
        elif path.suffix == ".refused":
            said = "" if kept.hides_values else str(_note(path, 0).get("why", ""))
            why = f"was put back, and source {source} did not take it{': ' if said else ''}{said}"
            yield SetAside(item, "untaken", source, None, _parquet_rows(path), why, source)


def _of_units(kept: Kept) -> Iterator[SetAside]:
    for path in sorted(kept.root.glob("units/*/quarantine/*.parquet")):
        found = _POISON.fullmatch(path.name)
        if found is None:
            continue
        unit, n = path.parts[-3], int(found[1])
        note = _note(path, n)
        decisions = note.get("decisions", [note]) if note else []
        at = int(found[3] or 1) - 1
        if at >= len(decisions):
            continue  # we died before it was decided: the rows are in the frame
        note = note | decisions[at]
        operator = str(note.get("operator", "") or (found[2] if found[2] in kept.deployment["operators"] else ""))
        error = str(note.get("error", "")).splitlines()
        why = f"operator {operator or unit} raised"
        if error and not kept.hides_values:
            why += f": {error[0]}"
        stream = next((each for each in (note.get("stream"), note.get("port"), found[2]) if each in kept.streams), "")
        moved = _put_back_at(kept, stream, f"{unit}-{path.name}") if stream in kept.sources else ""
        yield SetAside(str(path.relative_to(kept.root)), "raised", unit, n, _parquet_rows(path), why, stream, moved)


def _of_sinks(kept: Kept) -> Iterator[SetAside]:
    for path in sorted(kept.root.glob("sinks/*/quarantine/*.parquet")):
        found = _POISON.fullmatch(path.name)
        if found is None:
            continue
        sink, n = path.parts[-3], int(found[1])
        decisions, at = _note(path, n).get("decisions", []), int(found[3] or 1) - 1
        if at >= len(decisions):
            continue  # we died before it was decided: the rows are in the frame
        error = str(decisions[at].get("error", "")).splitlines()
        why = f"the target of sink {sink} refused them"
        if error and not kept.hides_values:
            why += f": {error[0]}"
        yield SetAside(str(path.relative_to(kept.root)), "refused", sink, n, _parquet_rows(path), why, found[2])


def _note(path: Path, n: int) -> dict[str, Any]:
    for note in (path.with_suffix(".json"), path.with_name(f"{n:08d}.json")):
        if note.is_file():
            return read_note(note, effect="nothing was shown or moved", do="put the file back from a copy")
    return {}


def _parquet_rows(path: Path) -> int:
    """How many rows it has; 0 if that cannot be read: `shown_item` says why."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path).num_rows
    except (pa.ArrowException, OSError):
        return 0


def _bad_records(path: Path) -> list[dict[str, Any]]:
    found = []
    # Not splitlines: a record may hold U+2028 and its like, which end no line of JSON.
    for line in filter(None, path.read_text(encoding="utf-8", errors="replace").split("\n")):
        try:
            found.append(note_in(line))
        except ValueError:
            found.append({"reason": "this line of the quarantine is damaged", "raw": line})
    return found


def shown_item(kept: Kept, item: str, *, limit: int = 100) -> tuple[SetAside, list[dict[str, Any]]]:
    """One item and its rows, as they may be shown."""
    found = _meant(kept, item)
    path = kept.root / found.item
    if found.kind != "bad":
        from holdfast.journals.asides import read_aside

        return found, shown_rows(read_aside(path).slice(0, limit), hide=kept.hides_values)
    records = _bad_records(path)[:limit]
    if kept.hides_values:
        records = [{**each, "raw": masked(each.get("raw", "")), "reason": ""} for each in records]
    return found, records


def _meant(kept: Kept, item: str) -> SetAside:
    """By its whole name, or by an end of it that only one has."""
    everything = set_aside(kept)
    ends = [each for each in everything if each.item == item or each.item.endswith(f"/{item}")]
    if len(ends) == 1:
        return ends[0]
    raise UsageError(
        "HF-E020",
        "NotInQuarantine",
        f"{item!r} {'is the end of several names' if ends else 'does not lie'} in quarantine.",
        where=str(kept.root),
        why=f"there is: {', '.join(each.item for each in (ends or everything)[:5]) or 'nothing'}",
        effect="nothing was changed",
        do="holdfast quarantine ls",
    )


# ---- putting back ----


def put_back(kept: Kept, items: list[str]) -> list[SetAside]:
    """Hand rows to their sources as new elements. All are looked at before the first is moved."""
    from holdfast.journals.asides import read_aside

    with _one_at_a_time(kept):
        chosen = list(dict.fromkeys(_meant(kept, item) for item in items))
        for each in chosen:
            _refuse(kept, each)
            read_aside(kept.root / each.item)  # or it would be refused by the source, long after
        moved = []
        for each in chosen:
            path = kept.root / each.item
            moved.append(_moved(kept, each, path, _name_of(each, path)))
        return moved


def _name_of(item: SetAside, path: Path) -> str:
    """As the source sees it: it tells late rows, and rows that it has logged, by the name."""
    if item.kind == "untaken":
        return path.with_suffix(".parquet").name
    return f"late-{path.name}" if item.kind == "late" else f"{item.of}-{path.name}"


def put_mended(kept: Kept, file: Path, source: str) -> SetAside:
    """Rows a person has mended, as a Parquet file of the source's columns: new elements of the next frames, once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from holdfast.sources.parse.fit import check_fits
    from holdfast.sources.reference import digest_of

    kept.checked(source)
    try:
        rows = pq.read_metadata(file).num_rows
        check_fits(pq.read_schema(file), kept.schema(source), str(file))
    except (OSError, pa.ArrowException) as error:
        raise UsageError(
            "HF-E021", "CannotPutBack", f"{file} cannot be put back.",
            why=str(error).splitlines()[0], effect="nothing was moved", do="write the rows as Parquet, with the source's columns",
        ) from None  # fmt: skip
    name = f"mended-{digest_of(str(file))}.parquet"
    with _one_at_a_time(kept):
        item = SetAside(
            str(file), "mended", source, None, rows, "mended by hand", source, _put_back_at(kept, source, name)
        )
        _refuse(kept, item)
        # A copy, so that the file stays the user's; whole before it gets the name the source looks for.
        whole = kept.root / "sources" / source / f"{name}.tmp"
        with open(file, "rb") as given, open(whole, "wb") as ours:
            shutil.copyfileobj(given, ours)
            ours.flush()
            os.fsync(ours.fileno())
        return _moved(kept, item, whole, name)


@contextlib.contextmanager
def _one_at_a_time(kept: Kept) -> Iterator[None]:
    """Two shells that put rows back would number their entries alike, and one would miss what the other has moved."""
    handle = os.open(kept.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _refuse(kept: Kept, item: SetAside) -> None:
    why = do = ""
    if item.put_back:
        why = f"it was put back at {item.put_back}; a replay has set the same rows aside again"
        do = "nothing: the rows are in the stream already"
    elif item.kind == "bad":
        why = "these are records as they came, and they could not be read"
        do = "correct them and send them again; of files: write the corrected rows, and only these, into a new file that the "
        do += "source's pattern finds, and leave the old file as it is"
    elif item.kind == "waits":
        why = "it was put back already, and waits for its source"
        do = "holdfast run; a row that is ahead of the clock is taken when its time has come"
    elif item.kind == "refused":
        why = (
            f"the target of sink {item.of!r} refused them after they were made: they would be made, and refused, again"
        )
        do = "mend the rows or the table, and write them there yourself: the item is a Parquet file in the state folder"
    elif item.stream not in kept.sources:
        of = f"stream {item.stream!r}" if item.stream else f"an inner stream of unit {item.of!r}"
        why = f"they are rows of {of}, which is made by operators: it has no way in"
        do = "mend the operator; put back the rows of the source they were made of"
    elif not (kept.root / "sources" / item.stream / "log").is_dir():
        why = f"source {item.stream!r} reads files and is cut from these alone; it has no log"
        do = "write these rows, and only these, into a new file of the source's format that its pattern finds; if the source does "
        do += "not grow, under a name that sorts last"
    elif item.kind == "raised" and (others := _other_readers(kept, item)):
        why = f"source {item.stream!r} feeds {', '.join(others)} too, which left none of these rows out: they would count twice there"
        do = f"if they may: copy the file, then holdfast quarantine put-back COPY --to {item.stream}"
    if why:
        raise UsageError(
            "HF-E021", "CannotPutBack", f"{item.item} cannot be put back.",
            where=str(kept.root), why=why, effect="nothing was moved", do=do,
        )  # fmt: skip


def _other_readers(kept: Kept, item: SetAside) -> list[str]:
    """Units beside the one that left the rows out which read the same source."""
    inputs = kept.deployment.get("inputs", {})
    return [f"unit {name!r}" for name, streams in inputs.items() if name != item.of and item.stream in streams]


def _moved(kept: Kept, item: SetAside, path: Path, name: str) -> SetAside:
    source = kept.root / "sources" / item.stream
    journal = Journal(source, "put-back", keep=None, sync=True, counted=True)
    last = journal.last()
    entry: dict[str, Any] = {
        "n": 1 if last is None else last["n"] + 1,
        "file": name,
        "from": str(path.relative_to(kept.root)),
        "rows": item.rows,
        "at": time.time(),
        "which": _which(path),
    }
    # Before: should we die after the move and a replay write the file again, it is still refused.
    journal.append(entry | {"state": "begun"})
    folder = source / "put-back"
    make_folder(folder, sync=True, mode=0o700)
    put_in_place(path, folder / name, sync=True)  # one file system: the rows are in one place or the other
    journal.append(entry | {"state": "done"})
    journal.close()
    return SetAside(**{**asdict(item), "put_back": _time(entry["at"])})


def _put_back_at(kept: Kept, source: str, name: str) -> str:
    """When this file was put back, "" if it was not."""
    folder = kept.root / "sources" / source
    if not folder.is_dir():
        return ""
    own = [entry for entry in Journal(folder, "put-back", counted=True).entries() if entry["file"] == name]
    if not own:
        return ""
    path = kept.root / own[-1]["from"]
    # Begun and not done: we died around the move. The file we meant has not moved; another one is a replay's.
    moved = own[-1]["state"] == "done" or not path.exists() or not _is_meant(path, own[-1])
    return _time(own[-1]["at"]) if moved else ""


def _which(path: Path) -> list[int]:
    """What tells a file from one that is written in its place later, whatever the clock says."""
    found = path.stat()
    return [found.st_ino, found.st_mtime_ns]


def _is_meant(path: Path, entry: dict[str, Any]) -> bool:
    if path.suffix == ".tmp":  # our own copy of a mended file: no replay writes it
        return True
    if "which" in entry:
        return _which(path) == entry["which"]
    return path.stat().st_mtime <= entry["at"]


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
