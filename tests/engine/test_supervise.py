"""hf.supervise, one round at a time: queries and the clock are the test's."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from holdfast.engine.plain.supervise import QueryState, supervise
from holdfast.errors import UnitError, UsageError


class Query:
    """A query as the watch sees it."""

    def __init__(self, name, id="1"):
        self.name, self.id, self.lastProgress = name, id, {"batchId": 7}
        self.isActive, self._error, self.stopped = True, None, False

    def exception(self):
        return self._error

    def die(self, text):
        self.isActive, self._error = False, RuntimeError(text)

    def end(self):
        self.isActive = False

    def stop(self):
        self.end()
        self.stopped = True


class Writer:
    """A DataStreamWriter: may be started again and again."""

    def __init__(self, name="sales"):
        self.name, self.made, self.fails = name, [], []

    def start(self):
        if self.fails:
            raise self.fails.pop(0)
        self.made.append(Query(self.name))
        return self.made[-1]

    @property
    def query(self):
        return self.made[-1]


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def session():
    return SimpleNamespace(streams=SimpleNamespace(active=[]))


def watching(session, clock, tell, **options):
    """As declared by the user, but with the test's clock and no chance in the pauses."""
    watch = supervise(session, on_degraded=tell, **options)
    watch._clock, watch._chance = clock, lambda: 0.0
    return watch


def test_a_dead_query_is_restarted_after_a_pause_and_reported(session, caplog):
    caplog.set_level(logging.INFO, "holdfast.supervise")
    clock, told, writer = Clock(), [], Writer()
    watch = watching(session, clock, told.append, first="1 second")
    watch.start(writer)
    writer.query.die("[STREAM_FAILED] Query terminated\n\nValueError: no such shop\n")
    watch.look()
    assert told == [QueryState("sales", "RESTARTING", 1, 8, 1.0, 7, "ValueError: no such shop")]
    clock.now += 0.9
    watch.look()
    assert len(writer.made) == 1  # not due yet
    clock.now += 0.1
    watch.look()
    assert len(writer.made) == 2 and writer.query.isActive
    assert [state.state for state in told] == ["RESTARTING", "RUNNING"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "query sales died: ValueError: no such shop; try 1 of 8, next in 1.0 s" in caplog.text


def test_it_is_given_up_after_its_tries_while_the_others_go_on(session):
    clock, told, ill, well = Clock(), [], Writer("ill"), Writer("well")
    watch = watching(session, clock, told.append, tries=3)
    watch.start(ill), watch.start(well)
    for _ in range(4):
        ill.query.die("ValueError: again")
        watch.look()
        clock.now += 30
        watch.look()
    assert [state.state for state in watch.status()] == ["GIVEN_UP", "RUNNING"]
    assert len(ill.made) == 4 and len(well.made) == 1
    assert [state.attempt for state in told if state.state == "RESTARTING"] == [1, 2, 3]
    well.query.end()
    watch.look()
    with pytest.raises(UnitError) as caught:
        watch.wait()
    assert caught.value.code == "HF-U050" and "ValueError: again" in caught.value.why


class AnalysisException(Exception):
    pass


def test_a_plan_that_spark_refuses_three_times_is_not_started_again(session):
    """What the user's function raises keeps its tries: a database that is away raises there."""
    clock, told, writer = Clock(), [], Writer()
    watch = watching(session, clock, told.append, tries=8)
    watch.start(writer)
    writer.fails = [AnalysisException(f"Sorting is not supported: plan {n}") for n in range(8)]
    writer.query.die("x")
    for _ in range(12):
        watch.look()
        clock.now += 30
    assert len(writer.fails) == 5 and told[-1].state == "GIVEN_UP"
    with pytest.raises(UnitError) as caught:
        watch.wait()
    assert "after 3 restarts" in caught.value.what and "Sorting is not supported" in caught.value.why


def test_deaths_long_ago_are_forgotten(session):
    clock, told, writer = Clock(), [], Writer()
    watch = watching(session, clock, told.append, tries=1, window="1 minute")
    watch.start(writer)
    for _ in range(5):
        writer.query.die("ValueError: once an hour")
        watch.look()
        clock.now += 3600
        watch.look()
    assert writer.query.isActive and all(state.attempt == 1 for state in told)


def test_a_query_that_was_stopped_or_whose_input_ended_is_left_alone(session):
    clock, told, writer = Clock(), [], Writer()
    watch = watching(session, clock, told.append)
    watch.start(writer)
    writer.query.end()
    watch.look()
    watch.wait()
    assert told == [] and [state.state for state in watch.status()] == ["ENDED"]


def test_a_restart_that_fails_is_one_more_death(session):
    clock, told, writer = Clock(), [], Writer()
    watch = watching(session, clock, told.append, tries=2)
    watch.start(writer)
    writer.fails = [RuntimeError("the old one still stops"), RuntimeError("the old one still stops")]
    writer.query.die("x")
    for _ in range(4):
        watch.look()
        clock.now += 30
    assert [state.state for state in told] == ["RESTARTING", "RESTARTING", "GIVEN_UP"]


def test_a_query_started_elsewhere_is_reported_and_not_restarted(session):
    clock, told = Clock(), []
    other = Query("other", id="9")
    session.streams.active.append(other)
    watch = watching(session, clock, told.append)
    watch.look()
    session.streams.active.clear()
    other.die("ValueError: x")
    watch.look()
    assert [(state.query, state.state, state.ours) for state in told] == [("other", "GIVEN_UP", False)]
    watch.wait()  # not ours to wait for
    watch.stop()
    assert not other.stopped


def test_a_receiver_that_raises_does_not_end_the_watch(session, caplog):
    clock, writer = Clock(), Writer()

    def broken(state):
        raise ConnectionError("no mail today")

    watch = watching(session, clock, broken)
    watch.start(writer)
    writer.query.die("x")
    watch.look()
    clock.now += 30
    watch.look()
    assert writer.query.isActive and "no mail today" in caplog.text


def test_leaving_the_block_stops_what_was_started_in_it(session):
    writer = Writer()
    with supervise(session) as watch:
        watch.start(writer)
    assert writer.query.stopped and [state.state for state in watch.status()] == ["ENDED"]


def test_two_queries_without_names_and_a_name_twice(session):
    watch = supervise(session)
    watch.start(Writer(None)), watch.start(Writer(None))
    assert [state.query for state in watch.status()] == ["query 1", "query 2"]
    second = Writer("query 1")
    with pytest.raises(UsageError) as caught:
        watch.start(second)
    assert caught.value.code == "HF-U051" and second.query.stopped


@pytest.mark.parametrize("wrong", [{"tries": -1}, {"tries": True}, {"on_degraded": "mail"}, {"first": "soon"}])
def test_values_that_make_no_sense_are_refused(session, wrong):
    with pytest.raises(UsageError):
        supervise(session, **wrong)


@pytest.mark.parametrize("wrong", [5, lambda: None])
def test_what_starts_no_query_is_refused(session, wrong):
    with pytest.raises(UsageError) as caught:
        supervise(session).start(wrong)
    assert caught.value.code == "HF-U051"
