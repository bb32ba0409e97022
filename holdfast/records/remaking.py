"""`holdfast remake STREAM FRAME`: a sealed frame that nobody has seen is made again by the next run.

For a frame that a sink refuses for ever: fix the operator, remake the frame, run. The units
that made it, and what was made of it, go back to the frame before (`protocols.remaking`
decides whether they can). Their commit records after it go first and their frames after
that, consumers before producers, so one that was killed in between is asked again and ends
the same way. Who asked, when, and the old checksum are noted before anything is removed;
the run that makes the frame again notes the new one (`engine.recover.remade`).

The folder's lock is held meanwhile: no run can begin in between.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import StateRefused
from holdfast.journals.incidents import Incidents
from holdfast.journals.journal import Journal
from holdfast.protocols.remaking import Facts, Plan, Refusal, UnitFacts, decide
from holdfast.records.cleaning import held_still
from holdfast.records.kept import Kept
from holdfast.sinks.ledger_reader import entry_in

__all__ = ["Remade", "asked_remakes", "remake_frame"]

_NAMES = {"not sealed": "NotSealedYet", "seen": "FrameSeen", "inputs": "InputsGone", "state": "StateGone"}
_CODES = {"not sealed": "HF-R070", "seen": "HF-R071", "inputs": "HF-R072", "state": "HF-R073"}
_DO = {
    "not sealed": "holdfast status says how far it is",
    "seen": "a frame that a sink or another host has is never changed: correct the rows with a new element, or begin with "
    "another state folder and another target",
    "inputs": "if a sink refuses the frame, declare on_error='quarantine' for that sink: it takes the frame without the rows it "
    "cannot hold; or begin with another state folder",
    "state": "if a sink refuses the frame, declare on_error='quarantine' for that sink: it takes the frame without the rows it "
    "cannot hold; or begin with another state folder",
}


@dataclass(frozen=True)
class Remade:
    process: str
    stream: str
    frame: int
    units: tuple[str, ...]  # that go back to the frame before
    checksum: str  # as it was
    frames: int  # sealed frames that were removed, over all streams
    who: str
    at: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def remake_frame(root: Path, stream: str, n: int, *, who: str) -> Remade:
    kept = Kept(root)
    stream = kept.checked(stream)
    if stream in kept.sources:
        raise _refused(kept, stream, n, Refusal("seen", f"{stream} is a source: its frames are what came from outside"))
    with held_still(root, kept.process, "taking frames back"):
        unit = kept.unit_of(stream)
        decided = decide(_facts(kept, n), unit, n)
        if isinstance(decided, Refusal):
            raise _refused(kept, stream, n, decided)
        return _go_back(kept, decided, stream, n, who)


def asked_remakes(root: Path) -> list[dict[str, Any]]:
    """All that were asked for: stream, n, old checksum, who, at."""
    return list(Journal(root / "records", "remakes").entries()) if (root / "records").is_dir() else []


def _go_back(kept: Kept, plan: Plan, stream: str, n: int, who: str) -> Remade:
    outputs = {
        name: [each for each, maker in kept.deployment["streams"].items() if maker == name] for name in plan.units
    }
    old = kept.record(stream, n)
    checksum = old.checksum if old is not None else _committed_checksum(kept, stream, n)
    at = time.time()
    incidents = Incidents(kept.root)
    incidents.note(
        f"remake of frame {n} of {stream} asked for by {who}; its checksum was {checksum}; "
        f"{', '.join(reversed(plan.units))} go back to frame {n - 1}",
        unit=kept.unit_of(stream), frame=n,
    )  # fmt: skip
    incidents.close()
    journal = Journal(kept.root / "records", "remakes", keep=1024, sync=True)
    number = 1 + max((each["n"] for each in journal.entries()), default=0)
    journal.append({"n": number, "stream": stream, "frame": n, "checksum": checksum, "who": who, "at": at})
    journal.close()
    for name in plan.units:
        for journals in ("commits", "permits"):
            Journal(kept.root / "units" / name, journals).cut_after(n - 1)
    removed = 0
    for name in plan.units:
        for each in outputs[name]:
            for m, path in sorted(kept.queued(each).items(), reverse=True):
                if m >= n:
                    path.unlink(missing_ok=True)
                    removed += 1
    return Remade(kept.process, stream, n, tuple(reversed(plan.units)), checksum, removed, who, at)


def _committed_checksum(kept: Kept, stream: str, n: int) -> str:
    for record in reversed(kept.commits(kept.unit_of(stream))):
        if record["n"] == n:
            return record["outputs"].get(stream, {}).get("checksum", "")
    return ""


def _facts(kept: Kept, n: int) -> Facts:
    deployment = kept.deployment
    units: dict[str, UnitFacts] = {}
    unreadable: dict[tuple[str, int], str] = {}
    for name, operators in deployment["units"].items():
        records = kept.commits(name)
        stateful = {each for each in operators if each in deployment["stateful"]}
        begun = int(deployment["start"].get(name, 0))
        needs = {}
        for record in records:
            if record["n"] >= n:
                needs[record["n"]] = frozenset((each[0], each[1]) for each in record["inputs"] if each[4] != "empty")
                for stream, m in needs[record["n"]]:
                    if stream in kept.sources and (why := _unreadable(kept, stream, m)):
                        unreadable[stream, m] = why
        units[name] = UnitFacts(
            outputs=tuple(stream for stream, maker in deployment["streams"].items() if maker == name),
            committed=max([begun, *(record["n"] for record in records)]),
            begun=begun,
            reads=frozenset(deployment.get("inputs", {}).get(name, ())),
            needs=needs,
            states=frozenset(each["n"] for each in records if each["n"] == n - 1 and _has_state(kept, name, each)),
            has_spark_state=bool(records) and not stateful <= {*records[-1]["state"]},
            host="elsewhere" if f"units/{name}" in deployment.get("homes", {}) else "",
        )
    queued = {stream: frozenset(kept.queued(stream)) for stream in deployment["streams"]}
    written: dict[str, dict[str, int]] = {}
    for sink, target in deployment.get("targets", {}).items():
        stream = target["stream"]
        entry = entry_in(target, kept.process, sink, n)
        # Who cannot be asked has acknowledged what left the queue; what is there waits for somebody.
        has = entry.has if entry.has is not None else n not in queued.get(stream, ())
        written.setdefault(stream, {})[sink] = n if has else n - 1
    return Facts(units, queued, unreadable, written)


def _unreadable(kept: Kept, source: str, m: int) -> str:
    if m not in kept.seals(source):
        return "its journal no longer knows it"
    rows, why = kept.rows(source, m)
    return "" if rows is not None or why.startswith("its rows lie scattered") else why


def _has_state(kept: Kept, unit: str, record: dict[str, Any]) -> bool:
    runs = kept.root / "units" / unit / "runs"
    return all(
        (runs / operator / run[0]).is_file()
        for operator, shards in record["state"].items()
        for own in shards.values()
        for run in own
    )


def _refused(kept: Kept, stream: str, n: int, refusal: Refusal) -> StateRefused:
    return StateRefused(
        _CODES[refusal.kind],
        _NAMES[refusal.kind],
        f"frame {n} of {stream!r} cannot be made again.",
        where=f"stream process {kept.process!r}, {kept.root}",
        why=refusal.why,
        effect="nothing was changed; frames, state and sinks are as they were",
        do=_DO[refusal.kind],
    )
