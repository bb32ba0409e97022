"""What every study shares: progress on stderr, medians, one JSON line at the end."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from typing import Any

__all__ = ["finish", "median", "say", "spread"]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def median(values: list[float]) -> float:
    return statistics.median(values)


def spread(values: list[float]) -> float:
    """Half the distance between the quartiles, as a share of the median."""
    if len(values) < 4:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / statistics.median(values)


def finish(name: str, figures: dict[str, Any]) -> None:
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"bench": name, **figures, "host": machine}))
