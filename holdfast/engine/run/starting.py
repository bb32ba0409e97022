"""Start a process as its user asks: the settings that hold here, then the run.

What is said nearer wins (`profile`); nothing of it decides what a frame holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.engine.observe.status import Status
from holdfast.engine.profile import load_profile
from holdfast.engine.run.run import Run, start_graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.graph.model import Declares

__all__ = ["start"]


def start(
    process: Declares,
    *,
    state: str | Path | None = None,
    fresh: Sequence[str] = (),
    keep: Sequence[str] = (),
    rate: object = None,
    until_frame: int | None = None,
    spark: SparkSession | None = None,
    on_progress: Callable[[Status], None] | None = None,
    profile: str | None = None,
    **said: Any,
) -> Run:
    """Check, activate and begin. Returns when every unit's query runs. `said`: settings as in holdfast.toml."""
    graph = process.graph()
    chosen = load_profile(profile, beside=graph.base).with_said(said)
    return start_graph(
        chosen.applied_to(graph),
        state=state if state is not None else chosen.state,
        fresh=fresh,
        keep=keep,
        rate=rate if rate is not None else chosen.rate,
        until_frame=until_frame,
        spark=spark,
        on_progress=on_progress,
        profile=chosen,
    )
