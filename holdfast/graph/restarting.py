"""What happens when a unit dies, as declared: tries, pauses, when it counts as stalled, whom to tell.

Pure: plain values; `protocols.restarts` decides by them, `engine.recover.supervisor` carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.graph.declared import refuse
from holdfast.graph.durations import duration_ms

__all__ = ["ON_ERROR", "SINK_ON_ERROR", "OnDegraded", "RestartPolicy", "Supervision", "checked_alert", "restarts"]

# What becomes of a row (or key) on which an operator raises each time.
ON_ERROR = ("stop", "quarantine", "drop")
SINK_ON_ERROR = ("fail", "quarantine", "drop")

OnDegraded = str | Callable[[Mapping[str, Any]], None] | None


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    tries: int = 8  # restarts within the window; one death more gives the unit up
    first_s: float = 0.25
    longest_s: float = 30.0
    window_s: float = 600.0
    jitter: float = 0.5  # at most this part of a pause is left out
    # Deaths of one error on one frame that make it futile to go on. Two in a row are met by chance (the second try
    # comes within half a second of the first); a third time is the rule.
    same: int = 3

    def pause_s(self, attempt: int, chance: float) -> float:
        """Before restart number `attempt` (from 1); `chance` in [0, 1)."""
        whole = min(self.longest_s, self.first_s * 2.0 ** (attempt - 1))
        return whole * (1.0 - self.jitter * chance)


@dataclass(frozen=True, slots=True)
class Supervision:
    policy: RestartPolicy = RestartPolicy()
    stalled_s: float = 300.0


def restarts(
    *,
    tries: int = 8,
    first: object = "250 ms",
    longest: object = "30 seconds",
    window: object = "10 minutes",
    stalled_after: object = "5 minutes",
) -> Supervision:
    """How a unit that dies is restarted: at most `tries` times within `window`, `first` doubling up to `longest`.

    A frame in work for longer than `stalled_after` counts as a death. tries=0 gives a unit up at once. `tries` are for
    what may pass; another error that comes back in the same way at the same frame gives a unit up the third time.
    """
    if isinstance(tries, bool) or not isinstance(tries, int) or tries < 0:
        raise refuse("HF-C003", "UnknownWord", f"tries={tries!r} is no count.", do="write tries=8, or 0 for never")
    seconds = {
        name: duration_ms(value, what=name) / 1000
        for name, value in {
            "first": first,
            "longest": longest,
            "window": window,
            "stalled_after": stalled_after,
        }.items()
    }
    policy = RestartPolicy(tries, seconds["first"], seconds["longest"], seconds["window"])
    return Supervision(policy, seconds["stalled_after"])


def checked_alert(alert: object) -> OnDegraded:
    if alert is None or callable(alert) or (isinstance(alert, str) and alert.strip()):
        return alert
    raise refuse(
        "HF-C003",
        "UnknownWord",
        f"on_degraded={alert!r} is neither a command nor an address.",
        do="write a command ('notify-send ward'), a webhook ('http://127.0.0.1:8080/alert') or a function",
    )
