"""Two units on hosts with everything that is real about them but Spark: folders, journals, stores, guards, the board.

`first` (host a) reads a source, `second` (host b) reads `first`; copies are kept on the next host. A frame is made by
`Attempt.work`, which seals, commits and tells as a query does. Time is turned by hand, and what a crew does aside is
done when `aside` is asked for it.
"""

from __future__ import annotations

import shutil
import threading
import time
from functools import partial
from pathlib import Path

import pyarrow as pa

import holdfast as hf
from holdfast.engine.flow.delays import DelayWatch
from holdfast.engine.flow.parameters import Config
from holdfast.engine.flow.queues import Permit, Sealed, UnitInputState
from holdfast.engine.flow.scheduler import Board, UnitState
from holdfast.engine.protect.checkpointer import Guards
from holdfast.engine.recover.attempts import Crew
from holdfast.engine.recover.restore import Recovery
from holdfast.engine.recover.supervisor import Supervisor
from holdfast.engine.run.queues_on_disk import restore_queues
from holdfast.engine.state_folder import StateFolder
from holdfast.engine.unit.query import UnitQuery
from holdfast.frames.clock import FrameClock
from holdfast.frames.files import frame_name, seal_frame
from holdfast.frames.identity import Kind
from holdfast.graph.restarting import restarts
from holdfast.graph.schemas import Schema
from holdfast.graph.units import cut
from holdfast.hosts.hosts import Homes
from holdfast.hosts.local_checkpoint import write_instance

HOSTS = ("a", "b", "c")


class Query:
    """Of Spark's: it runs until it is stopped or ends by itself."""

    def __init__(self) -> None:
        self.isActive = True

    def stop(self) -> None:
        self.isActive = False

    def exception(self):
        return None


class Attempt(UnitQuery):
    """A unit as it is, but for Spark: its frames are made by `work`."""

    dies_after_commit = False
    rows_found = True  # what a search for rows comes to; an error: it raises

    def start(self, spark) -> None:
        if isinstance(spark, Exception):
            raise spark
        self._clear_strays()
        self._spark_checkpoint_dir = self.folder / "spark" / str(self._epoch)
        if self._guards is not None:
            write_instance(self.folder, self._epoch)
            self._guards.join(self, self._at, self._epoch)
        self.query, self._callback = Query(), None
        with self._board.changed:
            state = self._board.units[self.unit.name]
            state.permitted = state.processed = self._at

    def _stop_quietly(self) -> None:
        self.query.stop()

    def leave_poison_out(self, n, operator, error) -> bool:
        if isinstance(self.rows_found, Exception):
            raise self.rows_found
        return self.rows_found

    def work(self, permit: Permit) -> None:
        """One frame, as `_work` does it: sealed, committed, told."""
        name = self.unit.name
        with self._gate:
            if self._is_disowned:
                return
            table = pa.table({"x": pa.array([permit.n * 10], pa.int64())})
            sealed = {}
            for stream, folder in self._streams.items():
                record = seal_frame(
                    folder, table, self.schemas[stream], None, stream=stream, n=permit.n, kind=Kind.STABLE,
                    epoch=self._epoch, boundary_us=permit.boundary_us,
                )  # fmt: skip
                file = str(folder / frame_name(permit.n, Kind.STABLE))
                sealed[stream] = Sealed(
                    permit.n, record.boundary_us, record.rows, record.bytes, record.checksum, self._epoch, file=file
                )
            self._commit(permit, sealed)
            self._at = permit.n
            if self.dies_after_commit:
                self.query.stop()
                return
            self._permits.pop(permit.n, None)
            for stream, frame in sealed.items():
                self._board.seal(stream, frame)
            self._done_with(permit)
        self._board.process(name, permit.n, 1.0)


class Plant:
    def __init__(self, root: Path, protection=None, tries: int = 8) -> None:
        self.root, self.now_s = root, 100.0
        p = hf.StreamProcess("plant", frame="1 second", time=hf.ARRIVAL, hosts={h: str(root / h) for h in HOSTS})
        p.protect(protection if protection is not None else hf.uncoordinated(hf.frames(2)))
        p.source("probes", hf.read.files("probes.parquet"), schema="x bigint")

        @p.operator(over="frame", on_error="quarantine")
        def first(probes):
            return probes

        @p.operator(over="frame")
        def second(first):
            return first

        p.place("a", "first")
        p.place("b", "second")
        p.sink("second", hf.write.console())
        self.graph = p.graph()
        self.units = cut(self.graph)
        self.tries = tries
        self.todo: list = []
        self.on_make = lambda: None
        self.fails: Exception | None = None  # what a start ends with

    # ---- a run ----

    def begin(self) -> Plant:
        self.folder = StateFolder(self.root / "state")
        epoch = self.folder.acquire("plant")
        self.board = board = Board(closing_frames=0)
        board.clock = FrameClock(0, 1_000_000)
        self.supervisor = Supervisor(
            board, restarts(tries=self.tries, first="1 second"), now=lambda: self.now_s, chance=lambda: 0.0
        )
        self.crew = Crew(
            self.graph, self.folder, board, self.supervisor, aside=lambda name, work: self.todo.append(work)
        )
        self.homes = Homes(
            self.folder.root, self.graph.homes, self.graph.backup, [(u.name, u.host, u.outputs) for u in self.units]
        )
        self.homes.open()
        self.folder.live_on(self.homes)
        if self.folder.deployment() is None:
            self.folder.deploy({"start": {unit.name: 0 for unit in self.units}})
        self.start = dict(self.folder.deployment()["start"])
        self.guards = Guards(self.graph, self.units, board, fail=board.fail)
        self.recovery = Recovery(self.folder, self.homes, self.units, self.guards, lambda unit: self.start[unit])
        self.crew.protect(self.homes, self.guards, self.recovery)
        schemas = dict.fromkeys(("probes", "first", "second"), Schema.of("x bigint"))
        for unit in self.units:
            self._add(unit, schemas, epoch)
        return self

    def _add(self, unit, schemas, epoch) -> None:
        made = partial(
            Attempt, unit=unit, graph=self.graph, schemas=schemas, folder=self.folder.unit(unit.name),
            decisions=self.folder.decisions(unit.name),
            stream_folders={stream: self.folder.stream(stream) for stream in unit.outputs},
            staging=self.folder.staging_of(unit.name), guards=self.guards, board=self.board,
            config=Config(self.folder.config, ()), may_be_wide=False, ordered=False, delays=DelayWatch(self.graph),
            begun=self.start[unit.name],
        )  # fmt: skip

        def make(**how):
            self.on_make()
            return made(**how)

        begun = self.recovery.begin(unit.name, epoch)
        self.crew.came_back(unit.name, begun)
        query = made(epoch=begun.epoch, frames_at_once=1, settled=0, is_changed=False)
        done = query.recover()
        inputs = tuple(UnitInputState(port.stream, port.feedback_frames) for port in unit.inputs)
        self.board.units[unit.name] = UnitState(unit.name, inputs, unit.outputs, permitted=done, processed=done)
        self.crew.add(query, make)

    def stand(self) -> list[str]:
        """As a run finds its queues."""
        written = self.board.sinks.get("second", ("second", 0))[1]

        def restore():
            restore_queues(self.board, self.graph, self.folder, self.units, self.crew, self.guards)
            self.board.sinks["second"] = ("second", written)
            self.board.streams["second"].acked["sink second"] = written

        restore()
        told = self.crew.make_missing_again({"second": [written]})
        if told:
            restore()
        if self.crew.place_lossy({"second": lambda: written}):
            restore()
        for n in range(1, 40):
            self.board.seal("probes", Sealed(n, n * 1_000_000, 1, 8, f"c{n}", 1))
        return told

    def run(self) -> Plant:
        self.stand()
        self.crew.start(None)
        return self

    def end(self) -> None:
        self.crew.stop()
        self.guards.close()
        self.folder.release()

    # ---- what happens ----

    def make(self, upto: int, *units: str) -> None:
        """Frames up to this one, in all units or these."""
        for name in units or ("first", "second"):
            state = self.board.units[name]
            while state.processed < upto:
                permit = self.board.next_permit(state)
                assert isinstance(permit, Permit), permit
                self.crew[name].permit(permit)
                if not self.crew[name].is_alive():
                    return
                state.permitted = permit.n
                self.crew[name].work(permit)
                if self.crew[name].dies_after_commit:
                    return

    def stored(self, *units: str) -> None:
        """Until a checkpoint of each is at its stores."""
        self.until(lambda: all(self.guards.stored(unit) for unit in units))

    def until(self, holds) -> None:
        """Checkpoints are packed and shipped by threads of their own."""
        deadline, wait = time.monotonic() + 60, threading.Event()
        while not holds():
            assert time.monotonic() < deadline, "it did not come to be"
            wait.wait(0.01)

    def later(self, seconds: float = 0.0) -> None:
        """Time passes, the run looks, and what is aside is done."""
        self.now_s += seconds
        self.crew.look()
        while self.todo:
            self.todo.pop(0)()

    def lose(self, host: str) -> None:
        """At once, whoever writes there at this moment."""
        aside = self.root / f"lost-{host}-{self.homes.lives[host]}"
        (self.root / host).rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def life(self, unit: str):
        return self.supervisor.life(unit)

    def checksums(self, stream: str) -> dict[int, str]:
        return {n: frame.checksum for n, frame in self.board.streams[stream].frames.items()}
