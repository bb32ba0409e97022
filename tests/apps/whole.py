"""The beats of a record without Spark, frames or operators: what every run has to find."""

from __future__ import annotations

import numpy as np

from holdfast.apps.telemonitoring import cleaning, qrs
from holdfast.apps.telemonitoring.records import Record


def beats_us(record: Record, minutes: float | None = None) -> list[int]:
    count = len(record.mv) if minutes is None else round(minutes * 60 * record.hz)
    made = cleaning.feed(cleaning.Lead(), record.times_us()[:count], record.mv[:count])
    memory = qrs.Memory(record.hz)
    parts = [qrs.feed(memory, made.us, made.mv), qrs.finish(memory)]
    return np.concatenate([part.us for part in parts]).tolist()
