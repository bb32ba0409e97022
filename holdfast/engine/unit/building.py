"""The plan a frame is made by: one for many frames, or one for each where rows of a frame are in it.

A plan is built once and executed anew for every frame; that is right as long as nothing
in it remembers rows. Three things do:

- what Spark caches. It takes equal plans for one, whoever made them, so what one operator
  persists would answer for any other on the same source, in any unit and process of the
  session. Therefore the leaves of every plan we build have a name of their own, and nothing
  cached over the leaves of one plan can stand for another's.
- what the user's function saw when it ran a job while it was planned (`count`, `collect`).
- an RDD: its shuffles, and itself if it is cached or checkpointed, are kept by Spark.

A plan with one of them is executed once; the next frame gets a plan of its own, and what
was cached for this one is dropped. What is cached without a loader below it, a table that
does not change, stays.

Every unit builds in a session of its own, with the settings its operators declare, and
temporary views that an operator makes are gone when it has returned: what it made of them
is planned by then, and no other frame, operator or unit is answered by them.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from holdfast.engine.unit.column_pruning import LOADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.engine.unit.plan import FramePlan

__all__ = ["Caches", "Jobs", "Plans", "active", "new_plan", "own_session", "views_of_its_own"]

# Two Python programs may drive one JVM: numbers alone would meet.
_PROGRAM = secrets.token_hex(4)
_numbers = itertools.count(1)

# They hear of a job within milliseconds; who has not after a second is busy with others'.
_LISTENERS_WAIT_MS = 1000
# More within the planning of one frame: others are so busy that it is not worth asking.
_JOBS_ASKED_MAX = 50

# Leaves that say the same each time they are read, or say it of the frame at hand: a loader stands on a Range.
# Everything else is taken to remember, an RDD first of all.
_FORGETFUL = frozenset(
    {"Range", "LocalRelation", "OneRowRelation", "LogicalRelation", "DataSourceV2Relation", "HiveTableRelation"}
)


def new_plan() -> str:
    """A name no other plan in this JVM has; it goes into the names of its leaves."""
    return f"{_PROGRAM}{next(_numbers)}"


def own_session(spark: SparkSession, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A sibling: the same context, catalogue and settings, its own temporary views and settings from now on."""
    sibling = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for key, value in (conf or {}).items():
        sibling.conf.set(key, value)
    return sibling


@contextlib.contextmanager
def views_of_its_own(spark: SparkSession) -> Iterator[None]:
    """Temporary views that are made inside are dropped; those that were there stay."""
    before = _views(spark)
    try:
        yield
    finally:
        for name in _views(spark) - before:
            # Not by spark.catalog: that would drop what is cached over it as well, before it is used.
            spark._jsparkSession.sessionState().catalog().dropTempView(name)


def _views(spark: SparkSession) -> set[str]:
    found = spark._jsparkSession.sessionState().catalog().listLocalTempViews("*")
    return {found.apply(at).table() for at in range(found.size())}


class Caches:
    """What Spark has cached in this JVM, whoever asked for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._session, self._jvm = spark._jsparkSession, spark._jvm
        self._manager = self._session.sharedState().cacheManager()
        # Spark keeps the list to itself; it is replaced at each change, never changed.
        self._list = self._manager.getClass().getDeclaredField("cachedData")
        self._list.setAccessible(True)

    def stamp(self) -> int:
        """Another number means: something was cached or dropped since."""
        return 0 if self._manager.isEmpty() else self._jvm.System.identityHashCode(self._list.get(self._manager))

    def entries(self) -> list[_Cached]:
        if self._manager.isEmpty():
            return []
        found = self._list.get(self._manager)
        cached = [found.apply(at) for at in range(found.size())]
        return [
            _Cached(self._jvm.System.identityHashCode(each), each.plan(), each.plan().treeString()) for each in cached
        ]

    def drop(self, entries: Iterable[_Cached]) -> None:
        for each in entries:
            self._manager.uncacheQuery(self._session, each.plan, True)

    def drop_below(self, df: DataFrame) -> None:
        """What was cached over a DataFrame, itself included."""
        if not self._manager.isEmpty():
            self._manager.uncacheQuery(df._jdf, True)


@dataclass(frozen=True)
class _Cached:
    identity: int
    plan: Any  # Spark's logical plan
    text: str

    def is_over(self, plan: str) -> bool:
        """Subqueries too: they are in the text."""
        return f"{LOADER}{plan}_" in self.text

    @property
    def is_over_rdd(self) -> bool:
        return LOADER not in self.text and "LogicalRDD" in self.text


@dataclass
class _Built:
    name: str
    values: dict[str, Any]
    df: DataFrame
    once: bool  # it remembers rows: one frame is made by it
    stamp: int  # of the caches, when it was last seen to remember nothing


class Plans:
    """The plans of a unit without Spark state."""

    def __init__(self, plan: FramePlan) -> None:
        self._plan, self._context = plan, plan.spark.sparkContext
        self._caches = Caches(plan.spark)
        self._built: dict[tuple[bool, bool], _Built] = {}  # by (wide, many frames)
        # Only the user's own functions can cache anything; built-ins do not.
        self._is_users = any(plan.graph.operator(name).kind == "frame" for name in plan.unit.operators)
        self._remembers = False
        self._cached_rdds: list[_Cached] = []  # over an RDD, by the plan at hand: its leaves are not in them

    @contextlib.contextmanager
    def of(self, values: dict[str, Any], *, wide: bool, many: bool) -> Iterator[DataFrame]:
        """The DataFrame that makes the frame at hand; what was cached for it is dropped afterwards."""
        built = self._built.get((wide, many))
        if built is None or built.values != values or self._was_cached_since(built):
            built = self._build(values, wide, many)
        try:
            # A physical plan keeps its shuffle files; every frame needs one of its own.
            yield built.df.select("*")
        finally:
            if built.once:
                self._built.pop((wide, many), None)
                self._forget(built.name)

    def _was_cached_since(self, built: _Built) -> bool:
        if not self._is_users or (stamp := self._caches.stamp()) == built.stamp:
            return False
        built.once = any(each.is_over(built.name) for each in self._caches.entries())
        built.stamp = stamp
        return built.once

    def _build(self, values: dict[str, Any], wide: bool, many: bool) -> _Built:
        if not self._is_users:
            name = new_plan()
            built = _Built(name, values, self._plan.build(values, name, wide=wide, many=many), False, 0)
        else:
            built = self._build_watched(values, wide, many)
        self._built[wide, many] = built
        return built

    def _build_watched(self, values: dict[str, Any], wide: bool, many: bool) -> _Built:
        name = new_plan()
        before = {each.identity for each in self._caches.entries()}
        jobs = Jobs(self._context, f"holdfast-plan-{name}")
        try:
            with active(self._plan.spark), jobs:
                df = self._plan.build(values, name, wide=wide, many=many, prune=not self._remembers)
        except BaseException:
            self._forget(name)
            raise
        stamp, entries = self._caches.stamp(), self._caches.entries()
        self._cached_rdds = [each for each in entries if each.is_over_rdd and each.identity not in before]
        cached = bool(self._cached_rdds) or any(each.is_over(name) for each in entries)
        once = jobs.ran or cached or not _is_forgetful(df)
        self._remembers = self._remembers or once
        return _Built(name, values, df, once, stamp)

    def _forget(self, name: str) -> None:
        self._caches.drop([*self._cached_rdds, *(each for each in self._caches.entries() if each.is_over(name))])
        self._cached_rdds = []


class Jobs:
    """Whether a job was run by this thread meanwhile. Counted by a tag: the user's function may set a job group.

    Spark tells of a job only when its listeners have heard of it, some time after it was begun, and forgets old ones. So
    we count jobs first, all of them; if there were any, we wait for the listeners and want to see each. In doubt one was
    run: a plan is then made for the next frame again, which costs time and nothing else.
    """

    def __init__(self, context: SparkContext, tag: str) -> None:
        self._context, self._tag = context, tag
        self._scala = context._jsc.sc()
        self.ran = False

    def __enter__(self) -> None:
        self._first = self._scala.dagScheduler().numTotalJobs()
        self._context.addJobTag(self._tag)

    def __exit__(self, *_: object) -> None:
        self._context.removeJobTag(self._tag)
        self.ran = self._is_mine(range(self._first, self._scala.dagScheduler().numTotalJobs()))

    def _is_mine(self, jobs: range) -> bool:
        if not jobs:
            return False
        tracker = self._scala.statusTracker()
        with contextlib.suppress(Py4JError):  # they do not come to rest
            self._scala.listenerBus().waitUntilEmpty(_LISTENERS_WAIT_MS)
        if len(tracker.getJobIdsForTag(self._tag)):
            return True
        return len(jobs) > _JOBS_ASKED_MAX or any(tracker.getJobInfo(job).isEmpty() for job in jobs)


def _is_forgetful(df: DataFrame) -> bool:
    plan = df._jdf.queryExecution().analyzed()
    inner = plan.subqueriesAll()
    for part in (plan, *(inner.apply(at) for at in range(inner.size()))):
        leaves = part.collectLeaves()
        if any(leaves.apply(at).getClass().getSimpleName() not in _FORGETFUL for at in range(leaves.size())):
            return False
    return True


@contextlib.contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """The session that the user's function meets as the active one is its unit's."""
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()
