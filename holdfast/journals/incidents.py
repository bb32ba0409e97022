"""What went wrong and when: errors, restarts, giving up. One journal per state folder.

Written by the run when it happens, read by `holdfast trace` and `holdfast status`.
An incident keeps the error in the house format, so that a later reader needs no log.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.journals.journal import Journal

__all__ = ["Incident", "Incidents", "incidents_of"]

# A unit that dies every second for a quarter of an hour; older ones tell nothing new.
KEPT = 1024

_UNIT = re.compile(r"unit '([^']+)'")
_FRAME = re.compile(r"\bframe (\d+)")


@dataclass(frozen=True, slots=True)
class Incident:
    """`what` is "error", "restart", "given up" or what else a supervisor names."""

    n: int
    at: float
    what: str
    epoch: int = 0
    unit: str = ""
    frame: int = 0  # 0: not about one frame
    attempt: int = 0
    code: str = ""
    text: str = ""  # the whole error in the house format


class Incidents:
    def __init__(self, root: Path, *, epoch: int = 0) -> None:
        self._journal = Journal(root / "records", "incidents", keep=KEPT, vital=False)
        last = self._journal.last()
        self._next = 1 if last is None else last["n"] + 1
        self._epoch = epoch
        self._lock = threading.Lock()

    def note(
        self,
        what: str,
        *,
        error: BaseException | None = None,
        unit: str = "",
        frame: int = 0,
        attempt: int = 0,
        at: float | None = None,
    ) -> Incident:
        """Unit and frame are taken from the error where they are not given."""
        where = str(getattr(error, "where", ""))
        if not unit and (found := _UNIT.search(where)):
            unit = found[1]
        if not frame and (found := _FRAME.search(where)):
            frame = int(found[1])
        text = "" if error is None else str(error)
        with self._lock:
            incident = Incident(
                self._next,
                time.time() if at is None else at,
                what,
                self._epoch,
                unit,
                frame,
                attempt,
                str(getattr(error, "code", "") or (type(error).__name__ if error is not None else "")),
                text,
            )
            self._journal.append(asdict(incident))
            self._next += 1
        return incident

    def close(self) -> None:
        self._journal.close()


def incidents_of(root: Path) -> list[Incident]:
    """All that are kept, oldest first; fields of a newer version are passed over. A line that is damaged is one, the last."""
    if not (root / "records").is_dir():
        return []
    known = set(Incident.__dataclass_fields__)
    journal = Journal(root / "records", "incidents", vital=False)
    found: list[dict[str, Any]] = list(journal.entries())
    incidents = [Incident(**{name: value for name, value in each.items() if name in known}) for each in found]
    last = incidents[-1] if incidents else Incident(0, 0.0, "")
    return incidents + [
        Incident(last.n, last.at, "damaged record", last.epoch, code=each.code, text=str(each))
        for each in journal.damage
    ]
