"""What one run is made of. `activation` makes and joins the parts, `keeper` keeps them moving, `run` shows them to a user.

Threads of a run: one per source, one per sink, one query per unit, one that gives permits and watches, one that syncs.
They meet on the board; each of the parts says under which lock it may be called.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.flow.delays import DelayWatch
from holdfast.engine.flow.disks import DiskWatch
from holdfast.engine.flow.parameters import Config
from holdfast.engine.flow.promises import PromiseWatch
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.flow.sink_runner import Outlet
from holdfast.engine.flow.source_runner import Intake
from holdfast.engine.observe.alerts import Alerts
from holdfast.engine.observe.control import ControlServer
from holdfast.engine.observe.observers import Observers
from holdfast.engine.observe.status import Status
from holdfast.engine.profile import Profile
from holdfast.engine.protect.checkpointer import Guards
from holdfast.engine.protect.durable import Durable
from holdfast.engine.protect.shadow import Beside
from holdfast.engine.recover.attempts import Crew
from holdfast.engine.recover.restore import Recovery
from holdfast.engine.recover.supervisor import Supervisor
from holdfast.engine.run.deployment import Changes
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import Finding
from holdfast.graph.model import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FRAMES_AT_ONCE", "RunParts"]

# Frames a batch may hold when a unit of frame-aware operators is behind: amortises Spark's cost
# per batch, and holds a parameter change back by a fraction of a second.
FRAMES_AT_ONCE = 64


class RunParts:
    def __init__(
        self,
        graph: Graph,
        root: Path,
        *,
        rate: object = None,
        until: int | None = None,
        frames_at_once: int = FRAMES_AT_ONCE,
        profile: Profile = Profile(),
        beside: Sequence[Beside] = (),
    ) -> None:
        # As asked for.
        self.graph, self.profile, self.beside = graph, profile, beside
        self.rate, self.until, self.frames_at_once = rate, until, frames_at_once
        # What is known of it.
        self.state = "activating"
        self.started, self.running_since, self.first_frame = time.monotonic(), 0.0, 0
        self.findings: list[Finding] = []
        self.notes: list[str] = list(profile.notes)
        self.changes = Changes()
        self.done = threading.Event()
        # Made at once.
        self.folder = StateFolder(root.absolute())
        self.board = Board(closing_frames=1)
        self.delays = DelayWatch(graph)
        self.promises = PromiseWatch(graph)
        self.alerts = Alerts(graph.on_degraded)
        self.supervisor = Supervisor(self.board, graph.supervision, now=time.monotonic, chance=random.random)
        self.units = Crew(graph, self.folder, self.board, self.supervisor)
        self.disk = DiskWatch(self.folder.root, [Path(host.folder) for host in graph.homes if host.folder])
        self.observers = Observers(profile)
        # Made by the activation.
        self.begin: dict[str, int] = {}  # the frame after which the state of each unit begins
        self.intakes: list[Intake] = []
        self.outlets: list[Outlet] = []
        self.config: Config | None = None
        self.guards: Guards | None = None
        self.durable: Durable | None = None
        self.recovery: Recovery | None = None
        self.control: ControlServer | None = None
        self.spark: SparkSession | None = None
        self.owns_session = False
        # Set by whoever shows the run.
        self.status: Callable[[], Status]
        self.tell: Callable[[], None] = lambda: None
        self.listen: Callable[[], None] = lambda: None

    def release(self) -> None:
        """Give back session, socket and lock. Safe to call twice."""
        self.observers.close()
        if self.control is not None:
            self.control.close()
            self.control = None
        self.units.stop()  # those that had begun when the activation failed
        if self.guards is not None:
            self.guards.close()
        for intake in self.intakes:
            intake.stop()
        for outlet in self.outlets:
            outlet.give_back()
        if self.owns_session:
            from holdfast.engine.session.session import close_session

            close_session(self.spark)
            self.owns_session = False
        self.folder.release()
