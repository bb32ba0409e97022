"""Everything known of one frame: sealed when and by whom, made of what, who has it.

A frame names its inputs by stream, number and checksum, so the way back is followed
upstream until a source says file and rows. What has left a journal is said to have
left it; a frame that is not sealed yet says who has been asked to make it. The
frame before, read over a feedback edge, is named and not followed.

Reads through `kept.Kept` only, so it needs neither the process nor its file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from holdfast.frames.identity import FrameRecord
from holdfast.records.kept import Kept
from holdfast.sinks.ledger_reader import entry_in

__all__ = ["FrameTrace", "SinkHas", "trace_frame", "trace_lines"]


@dataclass(frozen=True, slots=True)
class SinkHas:
    sink: str
    has: bool | None  # None: cannot be told from here
    epoch: int = 0
    rows: int = 0
    checksum: str = ""
    why: str = ""


@dataclass(frozen=True)
class FrameTrace:
    stream: str
    n: int
    state: str  # "queued" | "forgotten" | "in work" | "not sealed" | "unknown"
    unit: str = ""  # "" for a source
    sealed_at: str = ""
    epoch: int = 0
    rows: int | None = None
    bytes: int | None = None
    checksum: str = ""
    boundary_us: int | None = None
    late: int = 0
    file: str = ""
    references: tuple[dict[str, Any], ...] = ()  # of a source: path, first and last row, digest
    inputs: tuple[FrameTrace, ...] = ()
    feedback: bool = False  # named as the input of a later frame, and not followed
    sinks: tuple[SinkHas, ...] = ()
    attempts: tuple[int, ...] = ()  # epochs in which it was permitted or handed out
    errors: tuple[dict[str, Any], ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    note: str = ""
    kind: str = ""  # "lost": empty, since it could not be had
    mark: str = ""  # "tainted": made from something that is missing
    why: str = ""  # it is LOST or marked

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def trace_frame(kept: Kept, stream: str, n: int) -> FrameTrace:
    """The frame and, behind it, all frames it was made of."""
    stream = kept.checked(stream)
    return _source_frame(kept, stream, n) if stream in kept.sources else _made_frame(kept, stream, n)


def _source_frame(kept: Kept, stream: str, n: int) -> FrameTrace:
    seals = kept.seals(stream)
    seal = seals.get(n)
    if seal is None:
        newest = max(seals, default=0)
        if n > newest:
            return FrameTrace(stream, n, "not sealed", note=f"the source has sealed up to frame {newest}")
        return FrameTrace(stream, n, "unknown", note=f"its journal begins with frame {min(seals)}")
    references = tuple(
        {
            "path": each["path"],
            "format": each["format"],
            "ranges": each["ranges"],
            "digest": each["digest"],
            **({"scattered": each["scattered"]} if "scattered" in each else {}),
        }
        for each in seal["references"]
    )
    return FrameTrace(
        stream,
        n,
        "by reference",
        sealed_at=_time(seal["first_at"]),
        epoch=seal["epoch"],
        rows=seal["rows"],
        bytes=seal["bytes"],
        checksum=seal["checksum"],
        boundary_us=seal["boundary_us"],
        late=seal["late"],
        references=references,
        attempts=tuple(sorted(set(seal["epochs"]))),
        sinks=_sinks(kept, stream, n, True),
    )


def _made_frame(kept: Kept, stream: str, n: int) -> FrameTrace:
    unit = kept.unit_of(stream)
    commits = kept.commits(unit)
    commit = next((each for each in reversed(commits) if each["n"] == n), None)
    permits = [each for each in kept.permits(unit) if each["n"] == n]
    record = kept.record(stream, n)
    queued = kept.queued(stream).get(n)
    output = commit["outputs"].get(stream, {}) if commit else {}
    named = (commit or (permits[-1] if permits else {})).get("inputs", ())
    inputs = tuple(
        _named(kept, name, number, checksum)
        if number != n  # over a feedback edge: following it would lead through the whole past
        else _checked(trace_frame(kept, name, number), checksum)
        for name, number, _, _, checksum in named
    )
    newest = max((each["n"] for each in commits), default=0)
    note = ""
    if record is not None or commit is not None:
        state = "queued" if queued is not None else "forgotten"
    elif permits:
        state, note = "in work", f"unit {unit} has been given it and has not sealed it"
    elif n > newest:
        state, note = "not sealed", f"unit {unit} has sealed up to frame {newest}"
    else:
        oldest = min((each["n"] for each in commits), default=0)
        state, note = "unknown", f"the journal of unit {unit} begins with frame {oldest}"
    errors = tuple(asdict(each) for each in kept.incidents if each.frame == n and each.unit in (unit, ""))
    return FrameTrace(
        stream,
        n,
        state,
        unit=unit,
        sealed_at=_time(commit["at"]) if commit else "",
        epoch=commit["epoch"] if commit else record.epoch if record else 0,
        rows=output.get("rows", record.rows if record else None),
        bytes=output.get("bytes", record.bytes if record else None),
        checksum=output.get("checksum", record.checksum if record else ""),
        boundary_us=commit["boundary_us"] if commit else record.boundary_us if record else None,
        file=str(queued or ""),
        inputs=inputs,
        sinks=_sinks(kept, stream, n, state in ("queued", "forgotten")),
        attempts=tuple(each["epoch"] for each in permits),
        errors=errors,
        counts=dict(commit.get("counts", {})) if commit else {},
        note=note,
        **_marked(stream, record, commit),
    )


def _marked(stream: str, record: FrameRecord | None, commit: dict[str, Any] | None) -> dict[str, Any]:
    """From the frame's own record or, once the queue has forgotten it, from the commit record."""
    if record is not None:
        return {"kind": str(record.kind), "mark": record.mark, "why": record.reason}
    why = (commit or {}).get("marks", {}).get(stream)
    return {"mark": "tainted", "why": why} if why else {}


def _named(kept: Kept, stream: str, n: int, checksum: str) -> FrameTrace:
    state = "queued" if n in kept.queued(stream) else "forgotten"
    return FrameTrace(stream, n, state, unit=kept.unit_of(stream), checksum=checksum, feedback=True)


def _checked(found: FrameTrace, checksum: str) -> FrameTrace:
    """The commit says what it was made of; where the input's own journal has forgotten, this is what is left."""
    if not found.checksum:
        return FrameTrace(**{**found.__dict__, "checksum": checksum})
    if found.checksum != checksum and checksum != "empty":
        words = f"the frame above was made of content {checksum}, this one is other"
        return FrameTrace(**{**found.__dict__, "note": words})
    return found


def _sinks(kept: Kept, stream: str, n: int, sealed: bool) -> tuple[SinkHas, ...]:
    found = []
    for sink, target in kept.deployment.get("targets", {}).items():
        if target.get("stream") != stream:
            continue
        entry = entry_in(target, kept.process, sink, n)
        has, why = entry.has, entry.why
        if has is None and sealed and stream not in kept.sources and n not in kept.queued(stream):
            has, why = True, "the queue has forgotten it, which it does only once every consumer has it"
        found.append(SinkHas(sink, has, entry.epoch, entry.rows, entry.checksum, why))
    return tuple(found)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ---- for people ----


def trace_lines(found: FrameTrace, depth: int = 0) -> list[str]:
    pad = "    " * depth
    head = f"{pad}{found.stream} {found.n:,}"
    if found.feedback:
        return [f"{head}   over feedback   {found.checksum[:16]}   on: holdfast trace {found.stream} {found.n}"]
    if found.sealed_at:
        by = f"unit {found.unit}" if found.unit else "source"
        head += f"   sealed {found.sealed_at} by {by}, epoch {found.epoch}"
    else:
        head += f"   {found.state}"
    lines = [head]
    if found.rows is not None:
        late = f", {found.late:,} of them late" if found.late else ""
        lines.append(
            f"{pad}  holds     {found.rows:,} rows{late}, {found.bytes or 0:,} bytes, checksum {found.checksum}"
        )
    elif found.checksum:
        lines.append(f"{pad}  checksum  {found.checksum}")
    if found.kind == "lost" or found.mark:
        word = "LOST" if found.kind == "lost" else found.mark.upper()
        lines.append(f"{pad}  mark      {word}{': ' + found.why if found.why else ''}")
    if found.note:
        lines.append(f"{pad}  note      {found.note}")
    if found.unit and found.rows is not None:
        where = found.file or "no longer queued: every consumer has it"
        lines.append(f"{pad}  lies      {where}")
    for each in found.references:
        lines.append(f"{pad}  lies      {each['path']}  {_rows_of(each)}")
    if len(found.attempts) > 1:
        lines.append(f"{pad}  attempts  {len(found.attempts)}: epochs {', '.join(map(str, found.attempts))}")
    for sink in found.sinks:
        word = {True: "has it", False: "does not have it", None: "cannot say"}[sink.has]
        how = f", epoch {sink.epoch}, {sink.rows:,} rows" if sink.epoch else ""
        lines.append(f"{pad}  sink      {sink.sink} {word}{how}{': ' + sink.why if sink.why else ''}")
    for name, count in found.counts.items():
        if count:
            lines.append(f"{pad}  counted   {name} {count:,}")
    for error in found.errors:
        first, *rest = (error["text"] or error["what"]).splitlines()
        tries = f" (try {error['attempt']})" if error["attempt"] else ""
        lines.append(f"{pad}  {error['what']:<9} {_time(error['at'])}{tries}  {first}")
        lines += [f"{pad}            {line}" for line in rest]
    if found.inputs:
        lines.append(f"{pad}  made of")
        for made_of in found.inputs:
            lines += trace_lines(made_of, depth + 1)
    return lines


def _rows_of(reference: dict[str, Any]) -> str:
    ranges = reference["ranges"]
    if "scattered" in reference:
        return f"rows {ranges[0][0]:,} to {ranges[0][1] - 1:,} in {reference['scattered']:,} places"
    # Rows are counted from 0, as Arrow and pandas do.
    said = [f"{a:,}" if b == a + 1 else f"{a:,}-{b - 1:,}" for a, b in ranges[:4]]
    more = f" and {len(ranges) - 4} more places" if len(ranges) > 4 else ""
    return f"row{'s' if len(ranges) > 1 or ranges[0][1] - ranges[0][0] > 1 else ''} {', '.join(said)}{more}"
