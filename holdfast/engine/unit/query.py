"""A unit in operation: one Structured Streaming query, one frame after the other.

Order of a frame: Spark logs the offset that names the inputs -> one action loads,
transforms and writes the outputs to staging -> they are renamed into the queue
(sealed) -> the commit record with the new state goes into the unit's journal ->
the function returns and Spark writes commits/N (processed).

A frame that was sealed before is not sealed again: the new content must have the
old checksum, or the run stops. A unit without Spark state takes a new Spark
checkpoint at each activation, since its journal says where it is; a unit with
Spark state forks its checkpoint by hard links under a new query id. So nothing an
orphan of an older run writes is ever read.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.engine.flow.delays import DelayWatch
from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.flow.marking import Marker
from holdfast.engine.flow.parameters import Config
from holdfast.engine.flow.queues import Permit, Sealed
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.session.callbacks import Callback
from holdfast.engine.unit.building import Plans, new_plan, own_session
from holdfast.engine.unit.frame_source import publish_permits, ticks
from holdfast.engine.unit.keyed_plan import NotesFolder, notes_dir
from holdfast.engine.unit.plan import FramePlan, StreamPlan, port_key
from holdfast.engine.unit.poison_search import NotAgain, Ports, alike, guilty, rows_at, search, too_late
from holdfast.engine.unit.protection import Done, Protector, Syncer, damaged_state
from holdfast.engine.unit.sealing import Sealer
from holdfast.engine.unit.spark_errors import explain
from holdfast.engine.unit.spark_files import SparkFiles
from holdfast.engine.unit.state_files import RECORDS_KEPT, RECORDS_UNWRITTEN, StateFiles
from holdfast.engine.unit.worker import FRAME_PROPERTY, Load
from holdfast.errors import HoldfastError, OperatorError
from holdfast.failpoints import UnitKilled, armed, marks_at_work, reach
from holdfast.frames.files import list_frames
from holdfast.graph.model import Graph, Operator
from holdfast.graph.schemas import Schema
from holdfast.graph.units import Unit
from holdfast.hosts.local_checkpoint import write_instance
from holdfast.hosts.spark_checkpoint import drop_older, fork_checkpoint, frame_in
from holdfast.journals.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


__all__ = ["UnitQuery"]

# From this many rows on, a frame is read in chunks and shuffled; below, one task is quicker.
_WIDE_ROWS = 50_000
# Spark commits a batch within milliseconds of our return; a query that needs longer is stuck.
_COMMIT_WAIT_S = 10.0
# A query that hangs in the user's code may not stop at all; it is abandoned then and can do no harm.
_STOP_WAIT_S = 20.0


class UnitQuery:
    def __init__(
        self,
        *,
        unit: Unit,
        graph: Graph,
        schemas: dict[str, Schema],
        folder: Path,
        decisions: Path,
        stream_folders: dict[str, Path],
        staging: Path,
        epoch: int,
        board: Board,
        config: Config,
        may_be_wide: bool,
        ordered: bool,
        begun: int,
        delays: DelayWatch,
        frames_at_once: int,
        settled: int,
        is_changed: bool,
        guards: Protector | None = None,
        durable: Syncer | None = None,
    ) -> None:
        self.unit, self._graph, self.schemas = unit, graph, schemas
        self.folder, self._streams, self._staging = folder, stream_folders, staging
        self._epoch, self._board, self._config = epoch, board, config
        self._may_be_wide, self._ordered, self.begun, self._delays = may_be_wide, ordered, begun, delays
        self.is_changed, self.settled, self._guards, self._durable = is_changed, settled, guards, durable
        self.spark_files = SparkFiles(folder / "spark" / str(epoch), lambda: (self._batch, self._at))
        self.error: BaseException | None = None
        self._has_given_in = False
        self.frames_wanted, self.frames_at_once = frames_at_once, 1
        self._permit_file = folder / "permit.json"
        self._permit_journal = Journal(folder, "permits", keep=512)
        self._commits = Journal(folder, "commits", keep=512)
        self._permits: dict[int, Permit] = {}
        self._stateful = [
            name for name in unit.operators if graph.operator(name).kind in ("keyed", "aggregate", "join")
        ]
        self.uses_spark_state = any(graph.operator(name).kind == "stream" for name in unit.operators)
        self._notes = {name: NotesFolder(notes_dir(folder, name, epoch), graph.partitions) for name in self._stateful}
        self._state: dict[str, dict] = {name: {} for name in self._stateful}
        spark_epoch = epoch if self.uses_spark_state else None
        self.files = StateFiles(folder, self._stateful, spark_epoch=spark_epoch, two_phase=unit.protect.two_phase)
        self.files.unwritten_after = lambda: self._board.unwritten_after(unit.name)
        self._unreported: deque[Done] = deque()
        self._reporting = threading.Lock()
        self.query: StreamingQuery | None = None
        self._spark: SparkSession | None = None
        self._at = 0  # last frame this query has worked on
        self._values: dict[str, Any] = {}  # of parameters, in the plan of a unit with Spark state
        self._just_done: list[int] = []
        self._batch: int | None = None  # the last one Spark began
        self.committed = 0
        self.decided = 0  # the last frame that was made when this attempt began: it may be made again, never otherwise
        # Held while a frame becomes fact. Who was abandoned makes nothing fact any more.
        self._gate = threading.Lock()
        self._is_abandoned = False
        self._exclusions = Exclusions(decisions)
        self._sealer = Sealer(unit.outputs, stream_folders, schemas, staging, epoch)
        self.marker = Marker(graph, unit)

    # ---- activation ----

    def recover(self) -> int:
        """Read the journal: the last frame that is wholly done."""
        # Records up to where it begins tell of state that is no longer its own; one without state may be pinned.
        count = 0 if self._durable is None else self._durable.taken_over(self.unit.name, self.files)
        kept = self._commits.tail(max(RECORDS_KEPT + RECORDS_UNWRITTEN, count))
        tail = [each for each in kept if each["n"] > self.begun or (each["n"] == self.begun and not each["state"])]
        for record in tail:
            self.files.remember(record)
        if tail:
            self.committed = tail[-1]["n"]
            self._state = {name: tail[-1]["state"].get(name, {}) for name in self._stateful}
        self.committed = max(self.committed, self.begun)
        self.marker.recover(self._commits.last(), begun=self.begun)
        self._at = self.committed
        sealed = [n for folder in self._streams.values() for n, _, _ in list_frames(folder)]
        self.decided = max([self.committed, *sealed])
        if self.is_changed:
            # Sealed by the code before: it stays, whatever the new code makes of the same inputs.
            self.settled = max(sealed, default=self.settled)
        return self.committed

    def _clear_strays(self) -> None:
        """What attempts left that never became state, and state that is no longer ours."""
        self.files.clear_strays()
        for name in self._stateful:
            for old in (self.folder / "notes" / name).glob("*"):
                if old.name != str(self._epoch):
                    shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
            self._notes[name].clear()

    @staticmethod
    def last_commit(folder: Path) -> int | None:
        record = Journal(folder, "commits", vital=False).last()  # damage is met when the unit recovers, and told
        return None if record is None else record["n"]

    @property
    def resume_at(self) -> int:
        """The first frame this unit may have to take again after a restart."""
        if self._guards is not None:
            behind = self.spark_files.behind_max(self.committed) if self.uses_spark_state else 0
            return max(self.begun, min(self._guards.safe(self.unit.name, self.committed), self.committed - behind)) + 1
        if not self.uses_spark_state:
            return self.committed + 1
        return max(self.begun, self.committed - self.spark_files.behind_max(self.committed)) + 1

    def start(self, spark: SparkSession) -> None:
        # One unit's operators have one set of Spark settings: others cut it.
        self._spark = spark = own_session(spark, self._graph.operator(self.unit.operators[0]).spark_conf)
        self._clear_strays()
        checkpoint_root = self.folder / "spark"
        self._spark_checkpoint_dir = checkpoint_root / str(self._epoch)
        if self.uses_spark_state:
            forked = self.spark_files.make_durable if self._durable is not None else None
            where = (checkpoint_root, self._epoch, self.committed, self.begun, self.files.inputs)
            self._at = max(self.begun, fork_checkpoint(*where, self.spark_files.behind_max(self.committed), forked))
        else:
            drop_older(checkpoint_root, self._epoch)
        publish_permits(self._permit_file, [])
        permitted = ticks(spark, self._permit_file, self._at)
        if self.uses_spark_state:
            self._stream_plan = StreamPlan(spark, self._graph, self.unit, self.schemas, ordered=self._ordered)
            self._values = self._values_at(self._at + 1)
            df = self._stream_plan.build(permitted, self._config.at(self._at + 1), new_plan())
            writer = df.writeStream.outputMode(self._stream_plan.mode)
        else:
            writer = permitted.writeStream
            plan = FramePlan(
                spark, self._graph, self.unit, self.schemas, str(self.folder), self._graph.chunks or 2, self._ordered
            )
            self._plans = Plans(plan)
            self.frames_at_once = self.frames_wanted if plan.many else 1
        if self._guards is not None:
            write_instance(self.folder, self._epoch)
            self._guards.join(self, self._at, self._epoch)
        self._callback = Callback(spark, self._on_batch)
        self.query = (
            writer.queryName(f"{self._graph.name}.{self.unit.name}")
            .option("checkpointLocation", str(self._spark_checkpoint_dir))
            .foreachBatch(self._callback)
            .start()
        )
        with self._board.changed:
            state = self._board.units[self.unit.name]
            state.permitted = state.processed = self._at
            # One batch in work and one to follow without a pause.
            state.ahead = 2 * self.frames_at_once

    # ---- permits ----

    def permit(self, permit: Permit) -> None:
        """Write the decision down, then make it visible to the query. Called under the board's lock."""
        self._permits[permit.n] = permit
        try:
            self._permit_journal.append(
                {"n": permit.n, "inputs": permit.named(), "boundary_us": permit.boundary_us, "epoch": self._epoch}
            )
            self._show_permits()
        except FileNotFoundError as error:
            if self._guards is None:
                raise
            self.give_in(damaged_state(self.folder, error))  # its host is gone: this unit's trouble, not the run's

    def _show_permits(self) -> None:
        """Show the query what it may take as its next batch: whole frames, one unless all are frame-aware."""
        taken, rows = [], 0
        for n, permit in sorted(self._permits.items()):
            if self.uses_spark_state and n > self._at and self._values_at(n) != self._values:
                break  # Spark's plan has the values as constants: a query with others takes it
            rows += permit.rows
            if n > self._at and (not taken or (len(taken) < self.frames_at_once and rows < _WIDE_ROWS)):
                taken.append({"n": n, "inputs": permit.named()})
            elif taken:
                break
        publish_permits(self._permit_file, taken)

    @property
    def wants_other_values(self) -> bool:
        """The next frame holds other parameter values than the query of a unit with Spark state was built with."""
        if not self.uses_spark_state or self._is_abandoned:
            return False
        with self._board.changed:
            if self._at + 1 not in self._permits or self._values_at(self._at + 1) == self._values:
                return False
        # Not before the last frame is wholly done: it would have to be taken again.
        return self._batch is None or (self._spark_checkpoint_dir / "commits" / str(self._batch)).exists()

    def _values_at(self, n: int) -> dict[str, Any]:
        own = {name for operator in self.unit.operators for name in self._graph.operator(operator).params}
        return {name: value for name, value in self._config.at(n).items() if name in own}

    # ---- one frame ----

    def is_alive(self) -> bool:
        if self._has_given_in:  # its query may end later, or only begin: what it does is nothing any more
            return False
        try:
            return bool(self.query.isActive)
        except Exception:
            return False  # the JVM does not answer

    def stop(self) -> None:
        if self.query is not None:
            self._await_commit()
            self.report()
            with contextlib.suppress(UnitKilled):  # of a query that ends here anyway
                self._reach_committed()
            self._stop_quietly()
        self._permit_journal.close()
        self._commits.close()

    def abandon(self) -> None:
        """Another attempt follows: what this one still does becomes nothing. Returns at once, even if it hangs."""
        self.disown()
        if self.query is not None:
            stopping = threading.Thread(target=self._stop_quietly, name=f"stop {self.unit.name}", daemon=True)
            stopping.start()
            stopping.join(timeout=_STOP_WAIT_S)
        self._permit_journal.close()
        self._commits.close()

    def give_in(self, error: BaseException) -> None:
        """Its state cannot be used: the query ends, and whoever looks after it hears why."""
        self.error, self._has_given_in = error, True

        def end() -> None:  # not here: who calls may hold what the unit's own thread waits for
            self.disown()
            self._stop_quietly()

        threading.Thread(target=end, name=f"stop {self.unit.name}", daemon=True).start()

    def disown(self) -> None:
        """What it does from now on becomes nothing; it is abandoned later."""
        with self._gate:
            self._is_abandoned = True

    def _stop_quietly(self) -> None:
        with contextlib.suppress(Exception):
            self.query.stop()
            self._callback.take_back()

    # ---- poison ----

    def leave_poison_out(self, n: int, operator: Operator, error: HoldfastError) -> bool:
        """Find the rows of frame n on which operators raise, write them down; False if none explain it.

        What becomes of a row is for the operator to say that raises on it: False too if one of them says
        "stop", or cannot be told. The frame is tried without this and that, beside the query, which is dead. Nothing of a
        try is sealed or becomes state. `NotAgain`: it was over before anything could be said of rows.
        """
        permit = self._permits.get(n)
        if permit is None or self.uses_spark_state:
            return False
        described = self._described([permit])
        ports = described["frames"][0]["ports"]
        made_of = permit.made_of()
        before = self._exclusions.at(n, made_of)
        tables = {key: self._table(key, ports[key]) for key in ports}
        items = Ports(tuple((key, table.num_rows) for key, table in tables.items()))
        described["probe"] = True
        for name in self._stateful:
            notes_dir(self.folder, name, self._epoch, probe=True).mkdir(parents=True, exist_ok=True)

        raised_by: dict[frozenset[int], Operator | None] = {}
        culprits_of: dict[str, set[int]] = {}

        def raises(left_out: frozenset[int]) -> bool:
            without = items.ranges(left_out)
            for key, port in ports.items():
                port["without"] = without.get(key, []) + before.get(key, [])
            self._spark.sparkContext.setLocalProperty(FRAME_PROPERTY, json.dumps(described))
            try:
                with self._plans.of(self._config.at(n), wide=False, many=False) as df:
                    df.collect()
            except Exception as raised:
                found = explain(self._graph, self.unit.name, None, raised, n - 1)
                if found.may_pass and not error.may_pass:
                    raise NotAgain from raised  # the network or a lack of memory, met only now: no row's doing
                if isinstance(found, OperatorError):
                    raised_by[left_out] = guilty(self._graph, self.unit, found)
                    return True
                raise
            return False

        def blame(convicted: frozenset[int], left_out: frozenset[int]) -> None:
            by = raised_by[left_out]
            culprits_of.setdefault(by.name if by is not None else "", set()).update(convicted)

        guess = too_late(tables, operator, permit.since_us)
        culprits = search(items.count, raises, alike(tables, operator), blame, guess)
        if culprits is None:
            return False
        if not culprits:
            raise NotAgain
        if any(not name or self._graph.operator(name).on_error == "stop" for name in culprits_of):
            return False
        for name, own in culprits_of.items():
            on_error = self._graph.operator(name).on_error
            ranges, known = items.ranges(own), self._exclusions.at(n, made_of)
            rows = {key: rows_at(tables[key], ranges[key]) for key in ranges}
            merged = {key: ranges.get(key, []) + known.get(key, []) for key in {*ranges, *known}}
            record = {
                "operator": name,
                "on_error": on_error,
                "rows": len(own),
                "error": error.what,
                "at": time.time(),
            }
            self._exclusions.decide(n, merged, rows if on_error == "quarantine" else {}, record, made_of)
        return True

    def _table(self, key: str, port: dict) -> pa.Table:
        stream = key.split("@")[0]
        schema = self.schemas[stream]
        return pa.Table.from_batches(list(Load(key, schema, 1).rows(port, 0)), schema.arrow)

    def rows_left_out(self, on_error: str) -> dict[str, int]:
        """By operator, ever since the state folder began."""
        return self._exclusions.rows(on_error)

    def _await_commit(self) -> None:
        """Spark writes commits/N after our function returned; a stop must not come in between."""
        deadline = time.monotonic() + _COMMIT_WAIT_S
        while self._batch is not None and self.error is None and time.monotonic() < deadline and self.is_alive():
            if (self._spark_checkpoint_dir / "commits" / str(self._batch)).exists():
                return
            time.sleep(0.005)

    def _on_batch(self, batch: DataFrame, batch_id: int) -> None:
        self._batch = batch_id
        try:
            self._work(batch, batch_id)
        except BaseException as error:
            if not self._has_given_in:  # else it stumbled because it was stopped
                self.error = error
            raise

    def _work(self, batch: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        n = self._frame_of(batch_id)
        if n == self._at:
            # Spark plans a first batch even when nothing is permitted yet. It has no frame,
            # but a query with state must still commit its version.
            if self.uses_spark_state:
                batch.write.format("noop").mode("overwrite").save()
            return
        self._reach_committed()
        self._report()  # Spark has committed the batch before, or this one would not have begun
        with self._board.changed:
            permits = [self._permits[each] for each in range(self._at + 1, n + 1)]
        for permit in permits:
            self._delays.began(self.unit, permit.n, started)
        self.marker.look(permits)
        if self._durable is not None:
            self._durable.wait_for_room(self.unit.name, n)
        results = self._execute(batch, permits)
        found = {(row["n"], row["out"]): row for row in results}
        for permit in permits:
            reach("sealed, not renamed", permit.n, self.unit.name)
            with self._gate:
                if self._is_abandoned:
                    return
                sealed = self._sealer.seal(permit, found, self.settled, self.marker.at(permit.n))
                reach("renamed", permit.n, self.unit.name)
                self._commit(permit, sealed)
                reach("state committed", permit.n, self.unit.name)
                self._at = permit.n
                self._delays.done(self.unit, permit.n, time.monotonic())
                with self._board.changed:
                    self._permits.pop(permit.n, None)
                    for stream, frame in sealed.items():
                        self._board.seal(stream, frame)
                self._done_with(permit)
        with self._board.changed:
            self._board.process(self.unit.name, n, (time.monotonic() - started) * 1000 / len(permits))
            self._show_permits()
        if self._guards is None and self._durable is None:
            self.acknowledge(n)
        self._just_done = [permit.n for permit in permits]
        for permit in permits:
            if armed("sink written, not committed", permit.n, self.unit.name):
                self._board.await_written(self.unit.outputs, permit.n)
                reach("sink written, not committed", permit.n, self.unit.name)

    def _reach_committed(self) -> None:
        """Seen only when the next batch begins, or when the query ends without one."""
        for done in self._just_done:
            reach("committed", done, self.unit.name)
        self._just_done = []

    # ---- what its protection is told ----

    def _done_with(self, permit: Permit) -> None:
        if self._guards is None:
            return
        sizes = {
            (port.stream, port.feedback_frames): 0 if sealed is None else sealed.bytes for port, sealed in permit.inputs
        }
        runs = (run for shards in self._state.values() for own in shards.values() for run in own)
        done = Done(
            permit.n,
            permit.rows,
            tuple(sizes[port.stream, port.feedback_frames] for port in self.unit.inputs),
            sum(run[-1] for run in runs),
        )
        with self._reporting:
            self._unreported.append(done)
        if not self.uses_spark_state:  # its journal is the commit; of Spark's state it is Spark's commit log
            self._report()

    def report(self) -> None:
        """Say what is processed, once Spark has committed it too."""
        if self._unreported and (self._spark_checkpoint_dir / "commits" / str(self._batch)).exists():
            self._report()

    def _report(self) -> None:
        with self._reporting:
            while self._unreported and not self._is_abandoned:
                self._guards.processed(self.unit.name, self._unreported.popleft())

    def _frame_of(self, batch_id: int) -> int:
        """Spark's offset log says which frame this batch is."""
        offset = self._spark_checkpoint_dir / "offsets" / str(batch_id)
        with self._board.changed:
            permitted = {n: permit.named() for n, permit in self._permits.items() if n > self._at}
        return frame_in(offset, permitted, self._at)

    def _execute(self, batch: DataFrame, permits: list[Permit]) -> list:
        self._spark.sparkContext.setLocalProperty(FRAME_PROPERTY, json.dumps(self._described(permits)))
        if self.uses_spark_state:
            return self._stream_plan.seal(batch).collect()
        # Rows left out are counted from the first of the port: it is then read as one chunk.
        whole = not any(self._exclusions.at(permit.n, permit.made_of()) for permit in permits)
        wide = whole and self._may_be_wide and sum(permit.rows for permit in permits) >= _WIDE_ROWS
        with self._plans.of(self._config.at(permits[0].n), wide=wide, many=len(permits) > 1) as df:
            return df.collect()

    def _described(self, permits: list[Permit]) -> dict:
        return {
            "epoch": self._epoch,
            "staging": str(self._staging),
            "state": self._state,
            "frames": [
                {
                    "n": permit.n,
                    "boundary_us": permit.boundary_us,
                    "since_us": permit.since_us,
                    "params": self._config.at(permit.n),
                    "ports": self._ports(permit, self._exclusions.at(permit.n, permit.made_of())),
                    **self._strike(permit.n),
                    **self.marker.told(permit.n),
                }
                for permit in permits
            ],
        }

    def _strike(self, n: int) -> dict[str, list[str]]:
        """Tell the worker that seals this frame to die, if that was asked for."""
        marks = marks_at_work(n, self.unit.name)
        return {"strike": marks} if marks else {}

    @staticmethod
    def _ports(permit: Permit, without: dict[str, list[int]]) -> dict[str, dict]:
        ports = {}
        for port, sealed in permit.inputs:
            key = port_key(port.stream, port.feedback_frames)
            if sealed is not None and sealed.references:
                ports[key] = {"references": [reference.to_json() for reference in sealed.references]}
            else:
                ports[key] = {"file": "" if sealed is None else sealed.file}
            if without.get(key):
                ports[key]["without"] = without[key]
        return ports

    def _commit(self, permit: Permit, sealed: dict[str, Sealed]) -> None:
        n = permit.n
        state = {}
        counts: dict[str, int] = {}
        for name in self._stateful:
            state[name], counted = self._notes[name].collect(n, self._state[name])
            counts.update({f"{name}.{what}": count for what, count in counted.items()})
        if n <= self.committed:
            return  # done before; only Spark's own state had to be brought up to here
        self._state = state
        record = {
            "n": n,
            "epoch": self._epoch,
            "boundary_us": permit.boundary_us,
            "inputs": permit.named(),
            "outputs": {
                stream: {"rows": each.rows, "bytes": each.bytes, "checksum": each.checksum}
                for stream, each in sealed.items()
            },
            "state": state,
            "counts": counts,
            "at": time.time(),
            **self.marker.committed(n, sealed, counts),
        }
        self._commits.append(record)
        self.committed = n
        self.files.remember(record)

    def acknowledge(self, n: int) -> None:
        """Two frames late: the last commit entry may be lost and its frame redone."""
        needed = {}  # a unit may read one stream by several ports: what the slowest of them needs
        for port in self.unit.inputs:
            needed[port.stream] = min(n, needed.get(port.stream, n), n - 2 - port.feedback_frames)
        for stream, safe in needed.items():
            if safe > 0:
                self._board.acknowledge(stream, self.unit.name, safe)
