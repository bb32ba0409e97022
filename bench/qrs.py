"""How well beats are found: python -m bench.qrs FOLDER [--minutes N] scores every annotated WFDB record in it.

Each lead of each record, as recorded and changed (other rates, turned over, with hum, drift and
noise), through the ward's noise filter and QRS detection on the bare samples: the pipeline on Spark
finds the same beats (tests/live/test_score_qrs.py). Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

from holdfast.apps.telemonitoring import cleaning, qrs, records

NOISE_MV, DRIFT_MV, HUM_MV = 0.1, 1.0, 0.2


def resampled(hz: int) -> Callable[[records.Record], records.Record]:
    def change(record: records.Record) -> records.Record:
        by = Fraction(hz, round(record.hz))
        mv = resample_poly(record.mv - record.mv[0], by.numerator, by.denominator)
        scale = hz / record.hz
        beats, left_out = (np.round(each * scale).astype(np.int64) for each in (record.beats, record.left_out))
        return replace(record, hz=float(hz), mv=mv, beats=beats, left_out=left_out)

    return change


def disturbed(record: records.Record) -> records.Record:
    rng = np.random.default_rng(7)
    t = np.arange(len(record.mv)) / record.hz
    more = DRIFT_MV * np.sin(2 * np.pi * 0.2 * t) + HUM_MV * np.sin(2 * np.pi * 50 * t)
    return replace(record, mv=record.mv + more + NOISE_MV * rng.standard_normal(len(t)))


VARIANTS: dict[str, Callable[[records.Record], records.Record]] = {
    "as recorded": lambda record: record,
    "turned over, a fiftieth as high": lambda record: replace(record, mv=-0.02 * record.mv + 3.0),
    "128 Hz": resampled(128),
    "250 Hz": resampled(250),
    "1000 Hz": resampled(1000),
    f"drift {DRIFT_MV:g} mV, hum {HUM_MV:g} mV, noise {NOISE_MV:g} mV": disturbed,
}


def found(record: records.Record) -> np.ndarray:
    mv = np.asarray(record.mv)
    value = ~np.isnan(mv)
    made = cleaning.feed(cleaning.Lead(), record.times_us()[value], mv[value])
    memory = qrs.Memory(float(made.hz[0]))
    return np.concatenate([part.us for part in (qrs.feed(memory, made.us, made.mv), qrs.finish(memory))])


def first(record: records.Record, minutes: float) -> records.Record:
    count = round(minutes * 60 * record.hz)
    return replace(record, mv=record.mv[:count], beats=record.beats[record.beats < min(count, len(record.mv))])


def leads(folder: Path, minutes: float) -> list[tuple[int, records.Record]]:
    import wfdb

    listed = []
    for path in sorted(folder.glob("*.atr")):
        names = wfdb.rdheader(str(path.with_suffix(""))).sig_name
        listed += [(at, first(records.read(path.with_suffix(""), str(at)), minutes)) for at in range(len(names))]
    return listed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=30.1)
    parser.add_argument("--only", help="one variant", choices=list(VARIANTS))
    words = parser.parse_args()
    listed = leads(words.folder, words.minutes)
    print("| variant | lead | records | beats | missed | extra | sensitivity | precision | records with both >= 0.99 |")
    print("|---|---|---|---|---|---|---|---|---|")
    worst = {}
    for name, change in VARIANTS.items():
        if words.only not in (None, name):
            continue
        for number in sorted({at for at, _ in listed}):
            scores = {}
            for at, record in listed:
                if at == number:
                    changed = change(record)
                    scores[f"{record.name} {record.lead}"] = records.score(changed, found(changed))
            hit, missed, extra = (
                sum(getattr(s, part) for s in scores.values()) for part in ("found", "missed", "extra")
            )
            good = sum(min(s.sensitivity, s.precision) >= 0.99 for s in scores.values())
            total = records.Score(hit, missed, extra)
            which = "first" if number == 0 else "second" if number == 1 else str(number)
            print(f"| {name} | {which} | {len(scores)} | {hit + missed:,} | {missed:,} | {extra:,} "
                  f"| {total.sensitivity:.4f} | {total.precision:.4f} | {good} |", flush=True)  # fmt: skip
            if name == "as recorded":
                worst[which] = sorted(scores.items(), key=lambda each: min(each[1].sensitivity, each[1].precision))[:8]
    for which, found_worst in worst.items():
        print(f"\nWorst of the {which} leads as recorded: " + ", ".join(
            f"{name} {s.sensitivity:.3f}/{s.precision:.3f}" for name, s in found_worst) + ".")  # fmt: skip


if __name__ == "__main__":
    main()
