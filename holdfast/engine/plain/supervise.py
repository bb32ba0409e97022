"""`hf.supervise(spark)`: queries of a plain Structured Streaming job that are started again when they die.

    with hf.supervise(spark, on_degraded=tell) as watch:
        watch.start(df.writeStream.queryName("sales").option("checkpointLocation", "...").foreachBatch(upsert))
        watch.wait()

A query that ended with an error is started again from its own checkpoint, later each
time; more deaths than tries within the window and it is given up, while the others go
on. One whose plan Spark refuses in the same way three times is given up then. One that was stopped, or whose input ended, is left alone. Queries of the session
that were started elsewhere are watched too; of them nobody knows how to start them, so
their death is only reported.

What a restart does to the data is Spark's: the batch in work comes again with its
number, which is what `hf.once` is for. Needs nothing else of Holdfast.

One thread looks; `look` is one round, and takes the clock it was given.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from holdfast.engine.unit.passing import plan_is_refused, same_words
from holdfast.errors import UnitError, UsageError
from holdfast.graph.durations import duration_ms
from holdfast.graph.restarting import RestartPolicy
from holdfast.protocols.restarts import Died, Restart, Restarts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

__all__ = ["QueryState", "Watch", "supervise"]

_log = logging.getLogger("holdfast.supervise")

# How often a query is asked whether it lives: one call into the JVM each.
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class QueryState:
    """What `on_degraded` is told, and what `Watch.status` returns."""

    query: str
    state: str  # RUNNING | RESTARTING | GIVEN_UP | ENDED
    attempt: int = 0  # restarts within the window
    tries: int = 0
    next_in_s: float = 0.0
    batch: int | None = None  # the last one it finished, as Spark counts them
    error: str = ""
    ours: bool = True  # False: started elsewhere, watched and not restarted

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        match self.state:
            case "RESTARTING":
                what = f"died: {self.error}; try {self.attempt} of {self.tries}, next in {self.next_in_s:.1f} s"
            case "GIVEN_UP" if self.ours:
                what = f"given up after {self.attempt} restarts: {self.error}"
            case "GIVEN_UP":
                what = f"died: {self.error}; it was started elsewhere, so it is not restarted"
            case "RUNNING" if self.attempt:
                what = f"runs again after try {self.attempt} of {self.tries}"
            case _:
                what = self.state.lower()
        return f"query {self.query} {what}"


def supervise(
    spark: SparkSession,
    *,
    tries: int = 8,
    first: object = "250 ms",
    longest: object = "30 seconds",
    window: object = "10 minutes",
    on_degraded: Callable[[QueryState], object] | None = None,
) -> Watch:
    """Watch the streaming queries of a session; restart those started through it when they die.

    At most `tries` restarts within `window`, after pauses from `first` doubling up to `longest`. `on_degraded` is
    called with a `QueryState` at each death, and when a query runs again; it is reported by `logging` in any case.
    """
    if isinstance(tries, bool) or not isinstance(tries, int) or tries < 0:
        raise _unusable(f"tries={tries!r}", "it is a whole number, 0 or more")
    if on_degraded is not None and not callable(on_degraded):
        raise _unusable(f"on_degraded={on_degraded!r}", "it cannot be called")
    policy = RestartPolicy(
        tries,
        first_s=duration_ms(first, what="first") / 1000,
        longest_s=duration_ms(longest, what="longest") / 1000,
        window_s=duration_ms(window, what="window") / 1000,
    )
    return Watch(spark, policy, on_degraded)


@dataclass
class _Watched:
    name: str
    query: StreamingQuery
    start: Callable[[], StreamingQuery] | None  # None: started elsewhere
    restarts: Restarts
    state: str = "RUNNING"
    attempt: int = 0
    next_s: float = 0.0
    error: str = ""
    batch: int | None = None


class Watch:
    def __init__(
        self,
        spark: SparkSession,
        policy: RestartPolicy,
        on_degraded: Callable[[QueryState], object] | None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._spark, self._policy, self._on_degraded = spark, policy, on_degraded
        self._clock, self._chance = clock, chance
        self._watched: dict[str, _Watched] = {}
        self._changed = threading.Condition(threading.RLock())
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._keep_looking, name="supervise", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, query: DataStreamWriter | Callable[[], StreamingQuery], name: str | None = None) -> StreamingQuery:
        """Start a query now, and again whenever it dies. Give the writer, or a function that starts the query."""
        begin = query.start if hasattr(query, "start") else query
        if not callable(begin):
            raise _unusable(repr(query), "it is neither a DataStreamWriter nor a function that starts a query")
        # Under the lock: a round must not take it for one that was started elsewhere.
        with self._changed:
            started = begin()
            if not hasattr(started, "isActive"):
                raise _unusable(repr(query), f"it returned {type(started).__name__} and no query: end it with .start()")
            label = name or started.name or f"query {len(self._watched) + 1}"
            if label in self._watched:
                started.stop()
                raise _unusable(f"a second query {label!r}", "each is watched under a name of its own")
            self._watched[label] = _Watched(label, started, begin, Restarts(self._policy, self._chance))
        return started

    def status(self) -> list[QueryState]:
        with self._changed:
            return [self._told(each) for each in self._watched.values()]

    def wait(self) -> None:
        """Until every query started here has ended or is given up; raises if one is."""
        with self._changed:
            while not self._closing.is_set() and any(
                each.state in ("RUNNING", "RESTARTING") for each in self._watched.values() if each.start
            ):
                self._changed.wait(timeout=1.0)
            lost = [each for each in self._watched.values() if each.state == "GIVEN_UP" and each.start]
        if lost:
            raise _given_up(self._told(lost[0]), len(lost))

    def stop(self) -> None:
        """Stop watching, then the queries that were started here."""
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=60)
        with self._changed:
            for each in self._watched.values():
                if each.start is not None and each.state == "RUNNING":
                    each.query.stop()
                    each.state = "ENDED"
            self._changed.notify_all()

    def _keep_looking(self) -> None:
        while not self._closing.is_set():
            try:
                self.look()
            except Exception:  # a round that fails must not end the watch
                _log.exception("could not look after the queries")
            self._closing.wait(_LOOK_S)

    def look(self) -> None:
        """One round: who died, who is due. Restarts happen here."""
        with self._changed:
            self._meet_others()
            watched = list(self._watched.values())
        for each in watched:
            if self._closing.is_set():
                return
            if each.state == "RUNNING":
                self._look_at(each)
            elif each.state == "RESTARTING" and self._clock() >= each.next_s:
                self._restart(each)

    def _meet_others(self) -> None:
        known = {str(each.query.id) for each in self._watched.values()}
        for query in self._spark.streams.active:
            if str(query.id) not in known:
                name = query.name if query.name and query.name not in self._watched else f"query {query.id}"
                self._watched[name] = _Watched(name, query, None, Restarts(self._policy, self._chance))

    def _look_at(self, each: _Watched) -> None:
        if each.query.isActive:
            return
        error = each.query.exception()
        each.batch = _last_batch(each.query)
        if error is None:
            self._move(each, "ENDED", tell=False)
        else:
            self._died(each, error)

    def _restart(self, each: _Watched) -> None:
        try:
            query = each.start()
        except Exception as error:
            self._died(each, error)
            return
        with self._changed:
            each.query = query
        self._move(each, "RUNNING")

    def _died(self, each: _Watched, error: BaseException) -> None:
        each.error = _first_line(error)
        if each.start is None:
            self._move(each, "GIVEN_UP")
            return
        # Never the user's fault alone: a database that is away raises in the user's function too.
        passes = not plan_is_refused(error)
        died = Died(self._clock(), each.batch or 0, same_words(each.error), of_user=False, passes=passes)
        verdict = each.restarts.handle(died)
        if isinstance(verdict, Restart):
            each.attempt, each.next_s = verdict.attempt, verdict.at_s
            self._move(each, "RESTARTING")
        else:
            self._move(each, "GIVEN_UP")

    def _move(self, each: _Watched, state: str, *, tell: bool = True) -> None:
        with self._changed:
            each.state = state
            told = self._told(each)
            self._changed.notify_all()
        if not tell:
            return
        _log.log({"GIVEN_UP": logging.ERROR, "RUNNING": logging.INFO}.get(state, logging.WARNING), "%s", told)
        if self._on_degraded is not None:
            try:
                self._on_degraded(told)
            except Exception:  # whatever the receiver does, the queries go on
                _log.exception("on_degraded failed")

    def _told(self, each: _Watched) -> QueryState:
        wait = max(0.0, each.next_s - self._clock()) if each.state == "RESTARTING" else 0.0
        return QueryState(each.name, each.state, each.attempt, self._policy.tries, round(wait, 3), each.batch,
                          each.error, each.start is not None)  # fmt: skip


def _last_batch(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return None if progress is None else int(progress["batchId"])


def _first_line(error: BaseException) -> str:
    """What a person reads first. Spark wraps the cause in several lines; the last that names one is it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.partition(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:300]


def _given_up(state: QueryState, count: int) -> UnitError:
    others = f"; {count - 1} more with it" if count > 1 else ""
    return UnitError(
        "HF-U050",
        "QueryGivenUp",
        f"query {state.query!r} was given up after {state.attempt} restarts{others}.",
        where="hf.supervise",
        why=state.error,
        effect="what it had committed stays; the batch in work comes again when the query is started next",
        do="mend the cause and start the job again: it goes on from its checkpoint",
    )


def _unusable(value: str, why: str) -> UsageError:
    return UsageError(
        "HF-U051",
        "SuperviseNotUsable",
        f"hf.supervise cannot work with {value}.",
        why=why,
        effect="nothing was started",
        do="with hf.supervise(spark) as watch: watch.start(df.writeStream...); watch.wait()",
    )
