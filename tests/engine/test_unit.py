"""A unit whose state cannot be used gives in, whatever its query does meanwhile."""

from __future__ import annotations

import threading

import pytest

from holdfast.engine.unit.query import UnitQuery


class Query:
    isActive = True

    def stop(self) -> None:
        self.isActive = False


def a_unit(query: Query | None) -> UnitQuery:
    unit = UnitQuery.__new__(UnitQuery)
    unit.unit, unit.query, unit.error = type("Named", (), {"name": "mean"}), query, None
    unit._has_given_in, unit._gate = False, threading.Lock()
    return unit


def test_a_unit_that_gave_in_is_dead_even_if_its_query_only_begins_then():
    """A start that is under way has no query yet to be stopped; abandoned and alive, it would stand still for ever."""
    unit = a_unit(None)
    unit.give_in(OSError("gone"))
    unit.query = Query()
    assert not unit.is_alive()


def test_why_a_unit_gave_in_is_not_forgotten_when_its_query_stumbles_over_the_stop():
    """Else it would be started again from the very state that cannot be used."""
    unit = a_unit(Query())
    damaged = OSError("gone")
    unit.give_in(damaged)
    unit._work = lambda batch, batch_id: (_ for _ in ()).throw(RuntimeError("stopped"))
    with pytest.raises(RuntimeError):
        unit._on_batch(None, 1)
    assert unit.error is damaged
