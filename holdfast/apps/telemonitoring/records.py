"""Annotated recordings in WFDB's format, and how well found beats fit the annotations.

A beat is found if a detection is within 100 ms of it; each counts once. Beats are the marks that WFDB calls beats; a
stretch annotated as ventricular flutter or fibrillation ("[" to "]") has none, so neither beats nor detections inside
it count (ANSI/AAMI EC57).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import UsageError

__all__ = ["Record", "Score", "read", "score", "write_parquet"]

WITHIN_S = 0.1
_BEATS = frozenset("NLRBAaJSVrFejnE/fQ?")
# For records that do not say when they were made; any moment does.
_SOME_DAY = datetime(2026, 1, 5, 6, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Record:
    name: str
    lead: str
    hz: float
    mv: np.ndarray
    start_us: int
    beats: np.ndarray  # sample numbers
    left_out: np.ndarray  # pairs of sample numbers

    def times_us(self) -> np.ndarray:
        return self.start_us + np.floor(np.arange(len(self.mv)) * (1e6 / self.hz)).astype(np.int64)

    def samples(self, us: np.ndarray) -> np.ndarray:
        return np.round((us - self.start_us) * (self.hz / 1e6)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Score:
    found: int
    missed: int
    extra: int

    @property
    def sensitivity(self) -> float:
        return self.found / max(1, self.found + self.missed)

    @property
    def precision(self) -> float:
        return self.found / max(1, self.found + self.extra)


def read(path: str | Path, lead: str | None = None, annotator: str = "atr") -> Record:
    """One lead of a record (its path without suffix) with its annotated beats."""
    import wfdb

    name = re.sub(r"\.(hea|dat|atr)$", "", str(path))
    try:
        header = wfdb.rdheader(name)
        number = _lead_number(header, lead, name)
        record = wfdb.rdrecord(name, channels=[number])
    except (OSError, ValueError) as error:
        raise UsageError(
            "HF-A001",
            "RecordNotReadable",
            f"record {name!r} cannot be read.",
            why=f"{type(error).__name__}: {error}",
            effect="nothing was run",
            do="give the path of a WFDB record without suffix; its .hea and .dat files stand beside each other",
        ) from error
    try:
        marks = wfdb.rdann(name, annotator)
    except (OSError, ValueError) as error:
        raise UsageError(
            "HF-A002",
            "NoAnnotations",
            f"record {name!r} has no annotations {annotator!r}.",
            why=f"{type(error).__name__}: {error}",
            effect="nothing was run",
            do="put the annotation file beside the record, or name its suffix: --annotator qrs",
        ) from error
    start = record.base_datetime.replace(tzinfo=UTC) if record.base_datetime else _SOME_DAY
    start = max(start, _SOME_DAY.replace(year=1971))  # some records hide their day in another century
    symbols, samples = np.array(marks.symbol), np.array(marks.sample, np.int64)
    return Record(
        Path(name).name,
        header.sig_name[number],
        float(record.fs),
        record.p_signal[:, 0],
        int(start.timestamp()) * 1_000_000,
        samples[np.isin(symbols, list(_BEATS))],
        _flutter(symbols, samples, len(record.p_signal)),
    )


def write_parquet(record: Record, path: Path) -> None:
    """The lead as a stream's rows: patient, lead, ts, mv."""
    rows = len(record.mv)
    table = pa.table(
        {
            "patient": pa.array([record.name]).take(pa.array(np.zeros(rows, np.int32))).dictionary_encode(),
            "lead": pa.array([record.lead]).take(pa.array(np.zeros(rows, np.int32))).dictionary_encode(),
            "ts": pa.array(record.times_us()).cast(pa.timestamp("us", "UTC")),
            "mv": pa.array(record.mv, from_pandas=True),
        }
    )
    pq.write_table(table, path, compression="zstd", store_schema=False)


def score(record: Record, us: np.ndarray) -> Score:
    """Detections at these times against the annotations."""
    reference, found = record.beats, np.sort(record.samples(us))
    for start, stop in record.left_out:
        reference = reference[(reference < start) | (reference > stop)]
        found = found[(found < start) | (found > stop)]
    pairs = _pairs(reference, found, WITHIN_S * record.hz)
    return Score(pairs, len(reference) - pairs, len(found) - pairs)


def _pairs(reference: np.ndarray, found: np.ndarray, within: float) -> int:
    """Greedy in time, but a detection is left for the beat it is nearer to."""
    pairs = at = 0
    for beat in reference:
        while at < len(found) and found[at] < beat - within:
            at += 1
        while at + 1 < len(found) and abs(found[at + 1] - beat) < abs(found[at] - beat):
            at += 1
        if at < len(found) and abs(found[at] - beat) <= within:
            pairs += 1
            at += 1
    return pairs


def _lead_number(header: Any, lead: str | None, record: str) -> int:
    names = header.sig_name
    if lead is None:
        # The first that can be an ECG: beds record breathing and brain too, in the same unit.
        voltages = [unit.lower() in ("mv", "uv", "v") for unit in header.units]
        others = [name.upper().startswith(("RESP", "EEG", "EOG", "EMG")) for name in names]
        return next((i for i in range(len(names)) if voltages[i] and not others[i]), 0)
    if lead in names:
        return names.index(lead)
    if lead.isdigit() and int(lead) < len(names):
        return int(lead)
    near = difflib.get_close_matches(lead, names, n=1, cutoff=0.3)
    raise UsageError(
        "HF-A003",
        "UnknownLead",
        f"record {record!r} has no lead {lead!r}.",
        why=f"it has {', '.join(names)}",
        effect="nothing was run",
        do=f"did you mean {near[0]!r}?" if near else f"take --lead {names[0]}, or its number from 0 on",
    )


def _flutter(symbols: np.ndarray, samples: np.ndarray, length: int) -> np.ndarray:
    pairs, start = [], None
    for symbol, sample in zip(symbols, samples, strict=True):
        if symbol == "[" and start is None:
            start = sample
        elif symbol == "]" and start is not None:
            pairs.append((start, sample))
            start = None
    if start is not None:
        pairs.append((start, length))
    return np.array(pairs, np.int64).reshape(-1, 2)
