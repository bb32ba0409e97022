"""Who looks at a run from outside: its log, and the metrics if they are asked for.

Opened once the run holds its folder, closed with it. What they are shown are statuses;
nothing here can hold a run up or end it, except an address that cannot be served, which
is said before Spark starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.observe.logs import RunLog, StatusLog
from holdfast.engine.profile import Profile

if TYPE_CHECKING:
    from holdfast.engine.observe.metrics import MetricsServer
    from holdfast.engine.observe.status import Status

__all__ = ["Observers"]


class Observers:
    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._log: RunLog | None = None
        self._lines = StatusLog()
        self._metrics: MetricsServer | None = None

    def open(self, root: Path, ask: Callable[[], Status]) -> list[str]:
        """What to tell the user: where metrics are served."""
        self._log = RunLog(root / "logs")
        if self._profile.metrics is None:
            return []
        from holdfast.engine.observe.metrics import MetricsServer, address_of

        host, port = address_of(self._profile.metrics, may_be_open=bool(self._profile.metrics_open))
        self._metrics = MetricsServer((host, port), lambda: ask().to_json())
        return [f"metrics http://{f'[{host}]' if ':' in host else host}:{self._metrics.port}/metrics"]

    def saw(self, status: Status) -> None:
        if self._log is not None:
            now_s = time.monotonic()
            self._lines.saw(status.to_json(), now_s)
            self._log.look(now_s)

    def close(self) -> None:
        """Safe to call twice."""
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        if self._log is not None:
            self._log.close()
            self._log = None
