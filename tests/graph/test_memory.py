"""What a function keeps between calls is seen, in its source or by what it changed; what does no harm is let be."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter, defaultdict, deque

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.graph.memory import kept
from holdfast.graph.rules import check_structure
from holdfast.graph.watched import Watch

SEEN: list = []
BY_KEY: dict = {}
COUNTS = Counter()
GROUPS = defaultdict(list)
LAST = deque(maxlen=3)
TOTAL = 0
TOTALS = np.zeros(3)
FRAME = pd.DataFrame({"v": [1]})
DICE = random.Random(1)
NUMBERS = itertools.count()
RANDOM = np.random.default_rng(1)
NAMES = {1: "one"}


class Held:
    rows: list = []
    count = 0

    def __init__(self):
        self.mine = []

    def add(self, v):
        self.mine.append(v)
        return v

    def shared(self, v):
        Held.count += v

    @classmethod
    def of_class(cls, v):
        cls.count = v

    def __call__(self, v):
        self.mine.append(v)
        return v


class Apart:
    """Made anew in each call: what it keeps is the call's."""

    def __init__(self):
        self.rows = []

    def add(self, v):
        self.rows.append(v)


HELD = Held()


def assigns_a_global(v):
    global TOTAL
    TOTAL += v
    return TOTAL


def appends(v):
    SEEN.append(v)


def sets_an_item(v):
    BY_KEY[v] = v


def sets_an_item_deep(v):
    GROUPS[v].append(v)


def memoises(v):
    if v not in BY_KEY:
        BY_KEY[v] = v * 2
    return BY_KEY[v]


def setdefaults(v):
    return BY_KEY.setdefault(v, 1)


def deletes(v):
    del BY_KEY[v]


def counts(v):
    COUNTS[v] += 1


def rolls(v):
    LAST.append(v)


def fills_an_array(v):
    TOTALS[0] += v


def fills_a_frame(v):
    FRAME.loc[0, "v"] = v


def has_a_mutable_default(v, seen=[]):  # noqa: B006
    seen.append(v)
    return seen


def has_a_mutable_keyword(v, *, seen={}):  # noqa: B006
    seen[v] = 1


def has_an_attribute(v):
    has_an_attribute.last = v


def sets_by_name(v):
    setattr(Held, "last", v)  # noqa: B010


def sets_by_globals(v):
    globals()["TOTAL"] = v


def changes_a_class(v):
    Held.count += v


def changes_what_a_class_holds(v):
    Held.rows.append(v)


def calls_a_class_method(v):
    Held.of_class(v)


def calls_a_method_that_changes_the_class(v):
    Held().shared(v)


def calls_an_object(v):
    return HELD.add(v)


def draws(v):
    return DICE.random() + v


def draws_from_numpy(v):
    return RANDOM.normal() + v


def counts_on(v):
    return next(NUMBERS) + v


def asks_a_helper(v):
    return helper(v)


def helper(v):
    return deep_helper(v)


def deep_helper(v):
    SEEN.append(v)


def has_an_inner_function(v):
    def inner(parts):
        for part in parts:
            SEEN.append(part)
            yield part

    return inner


def has_an_inner_lambda(v):
    return list(map(lambda each: SEEN.append(each), [v]))  # noqa: C417


def closes_over():
    count = 0

    def closed(v):
        nonlocal count
        count += v
        return count

    return closed


def closes_over_a_list():
    rows = []

    def closed(v):
        rows.append(v)

    return closed


@functools.lru_cache
def cached_and_kept(v):
    SEEN.append(v)
    return v


def asks_a_cached_one(v):
    return cached_and_kept(v)


@functools.lru_cache
def asked_once(session):
    return session.sql("select max(v) as top from rows").first().top


def remembers_a_view(probes):
    probes.createOrReplaceTempView("rows")
    return probes.where(f"v >= {asked_once(probes.sparkSession)}")


class StatefulProcessor:
    """As Spark's: one object serves all keys of a task."""


class KeepsItself(StatefulProcessor):
    def init(self, handle):
        self.count, self.seen = handle.getValueState("n", "n long"), None
        self.rows = []

    def handleInputRows(self, key, rows, timers):
        self.rows.append(key)
        self.count.update((1,))
        yield from rows


class KeepsLast(KeepsItself):
    def handleInputRows(self, key, rows, timers):
        self.last = key
        yield from rows


class KeepsInSpark(StatefulProcessor):
    def init(self, handle):
        self.count, self.names = handle.getValueState("n", "n long"), {}

    def handleInputRows(self, key, rows, timers):
        self.count.update((len(self.names),))
        yield from rows


def has_a_processor(df):
    return df.transformWithState(KeepsItself())


def has_another_processor(df):
    return df.transformWithState(KeepsLast())


def has_a_good_processor(df):
    return df.transformWithState(KeepsInSpark())


KEEPERS = [
    assigns_a_global, appends, sets_an_item, sets_an_item_deep, memoises, setdefaults, deletes, counts, rolls, fills_an_array,
    fills_a_frame, has_a_mutable_default, has_a_mutable_keyword, has_an_attribute, sets_by_name, sets_by_globals,
    changes_a_class, changes_what_a_class_holds, calls_a_class_method, calls_a_method_that_changes_the_class,
    calls_an_object, draws, draws_from_numpy, counts_on, asks_a_helper, has_an_inner_function, has_an_inner_lambda,
    closes_over(), closes_over_a_list(), asks_a_cached_one, HELD, functools.partial(appends), HELD.add,
    remembers_a_view, has_a_processor, has_another_processor,
]  # fmt: skip


@pytest.mark.parametrize("function", KEEPERS, ids=lambda each: getattr(each, "__name__", type(each).__name__))
def test_what_outlives_a_call_is_found_in_the_source(function):
    found = kept(function)
    assert found, "not seen"
    assert "test_memory.py:" in found[0].where


# ---- what does no harm ----


@functools.lru_cache
def names(session):
    return {row.id: row.name for row in session.read.parquet("names.parquet").collect()}


def looks_up(probes):
    return probes.where(probes.v.isin(list(names(probes.sparkSession))))


class Derived:
    @functools.cached_property
    def table(self):
        return {1: 2}


DERIVED = Derived()


def asks_what_is_derived(v):
    return DERIVED.table.get(v)


@functools.lru_cache
def squared(v):
    return v * v


def uses_a_cache(v):
    return squared(v)


def reads_globals(v):
    return NAMES.get(v, "none"), len(SEEN), TOTAL


def has_rows_of_its_own(v):
    rows = []
    rows.append(v)
    by_key = {}
    by_key[v] = rows
    return by_key


def shadows(SEEN):
    SEEN.append(1)
    return SEEN


def shadows_inside(v):
    SEEN = [v]
    SEEN.append(v)
    return SEEN


def has_its_own_nonlocal(v):
    count = 0

    def step():
        nonlocal count
        count += 1

    step()
    return count


def makes_an_object(v):
    held = Apart()
    held.add(v)
    return held.rows


def changes_its_input(state, rows):
    rows["v"] = rows["v"] * 2
    state.loc[:, "n"] = 1
    rows.drop(columns="v", inplace=True)
    return state, rows


def draws_with_a_seed_of_its_own(v):
    return random.Random(v).random()


def sets_a_column(df):
    df = df.withColumn("x", df.v)
    df.attrs = {}
    return df


HARMLESS = [
    uses_a_cache, reads_globals, has_rows_of_its_own, shadows, shadows_inside, has_its_own_nonlocal, makes_an_object,
    looks_up, asks_what_is_derived, has_a_good_processor,
    changes_its_input, draws_with_a_seed_of_its_own, sets_a_column, lambda v: v + TOTAL, len, np.add,
]  # fmt: skip


@pytest.mark.parametrize("function", HARMLESS, ids=lambda each: getattr(each, "__name__", type(each).__name__))
def test_what_is_the_calls_own_is_no_finding(function):
    assert kept(function) == []


def test_without_source_the_byte_code_is_read():
    home = {"SEEN": [], "TOTAL": 0}
    exec(
        "def adds(v):\n SEEN.append(v)\ndef assigns(v):\n global TOTAL\n TOTAL = v\ndef reads(v):\n return v + TOTAL",
        home,
    )
    assert kept(home["adds"]) and kept(home["assigns"])
    assert kept(home["reads"]) == []


# ---- before and after ----


def alias(v):
    rows = SEEN
    rows.append(v)


def through_another(v):
    for each in (BY_KEY,):
        each[v] = v


@pytest.mark.parametrize(
    "function", [alias, through_another, appends, assigns_a_global, fills_an_array, changes_a_class, has_an_attribute,
                 has_a_mutable_default, closes_over(), closes_over_a_list(), draws, counts_on, HELD.add, HELD, asks_a_helper],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)  # fmt: skip
def test_what_was_changed_under_another_name_is_seen_by_looking(function):
    watch = Watch(function)
    before = watch.look()
    assert watch.changed(before) is None
    function(1.5)
    assert watch.changed(before) is not None


@pytest.mark.parametrize(
    "function",
    [uses_a_cache, reads_globals, has_rows_of_its_own, has_its_own_nonlocal, makes_an_object, asks_what_is_derived],
)
def test_looking_finds_nothing_where_nothing_was_changed(function):
    watch = Watch(function)
    before = watch.look()
    function(1)
    assert watch.changed(before) is None


def test_check_refuses_such_an_operator_of_every_kind_and_names_the_line(tmp_path):
    p = hf.StreamProcess("p", frame="1 second", time="ts")
    p.source("probes", hf.read.files(str(tmp_path / "probes.parquet")), schema="ts timestamp, v long")

    @p.operator
    def once(probes):
        SEEN.append(probes)
        return probes

    @p.operator(over="stream")
    def running(probes):
        BY_KEY["last"] = probes
        return probes

    @p.keyed("v", state="n long", emits="v long, n long")
    def counted(state, probes):
        COUNTS.update(probes["v"])
        return state, None

    for name in ("once", "running", "counted"):
        p.sink(name, hf.write.callback(lambda table, n: SEEN.append(n)))
    found = [finding for finding in check_structure(p.graph()) if finding.code == "HF-G040"]
    assert [finding.what.split("'")[1] for finding in found] == ["once", "running", "counted"]
    assert all("test_memory.py:" in finding.where for finding in found)
    source = open(__file__).read().splitlines()
    line = int(found[0].where.split("test_memory.py:")[1].split(",")[0])
    assert source[line - 1].strip() == "SEEN.append(probes)"
