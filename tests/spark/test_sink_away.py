"""A run that is stopped while its database is away: its sibling has gone on, and the next run loses nothing.

That the database comes back within the run is for tests/live/test_troubles.py.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

import holdfast as hf

SECONDS = 8
START = datetime(2026, 1, 1, tzinfo=UTC)


class Scenario:
    """The source is also the hand that pulls the plug: it gives rows only when the sinks are where they should be."""

    def __init__(self, server):
        self.server, self.run, self.away = server, None, None
        self.ready, self.over = threading.Event(), threading.Event()

    def rows(self):
        yield from self.seconds(0, 4)
        self.ready.wait(60)
        self.until(lambda sinks: sinks["server"].written >= 2)
        self.server.kill()
        yield from self.seconds(4, SECONDS)
        self.until(lambda sinks: sinks["server"].state == "AWAY" and sinks["file"].written >= SECONDS - 1)
        self.away = self.run.status()
        self.over.set()

    @staticmethod
    def seconds(first, last):
        for second in range(first, last):
            for zone in range(3):
                yield {"ts": START + timedelta(seconds=second), "zone": zone, "celsius": 70.0 + second}

    def until(self, holds):
        board = self.run.parts.board
        with board.changed:
            assert board.changed.wait_for(
                lambda: holds({sink.name: sink for sink in self.run.status().sinks}) or self.run.finished, timeout=120
            )


def process(folder, url, rows):
    kiln = hf.StreamProcess("kiln", frame="1 second", time="ts", state=str(folder / "state"))
    kiln.source("probes", hf.read.iterator(rows), schema="ts timestamp, zone int, celsius double")
    kiln.filter("warm", of="probes", where="celsius > 60")
    kiln.sink("warm", hf.write.sqlite(str(folder / "warm.db"), "warm"), name="file")
    kiln.sink("warm", hf.write.postgres(url, "warm", keys=["zone", "ts"]), name="server")
    return kiln


def test_who_stops_does_not_wait_for_a_server_and_loses_no_row(spark, postgres, tmp_path):
    scenario = Scenario(postgres)
    with process(tmp_path, postgres.url, scenario.rows).start(spark=spark) as run:
        scenario.run = run
        scenario.ready.set()
        assert scenario.over.wait(300)
        run.stop()  # while the server is away: it is not waited for

    away = scenario.away
    [told] = [sink for sink in away.sinks if sink.name == "server"]
    assert told.why.startswith("since ") and "try " in told.why and "next in " in told.why
    assert postgres.password not in str(away)
    assert away.state == "running" and "sink server is away since" in away.degraded
    assert not run.status().error
    assert any("sink server is away" in note for note in run.status().notes)

    postgres.start()
    everything = lambda: Scenario.seconds(0, SECONDS)
    process(tmp_path, postgres.url, everything).run(spark=spark)
    with closing(sqlite3.connect(tmp_path / "warm.db")) as connection:
        expected = connection.execute("select zone, celsius, _frame from warm order by 3, 1").fetchall()
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("select zone, celsius, _frame from warm order by 3, 1").fetchall() == expected
        assert connection.execute('select count(*), sum("rows") from _holdfast_ledger').fetchone()[1] == len(expected)
    assert len(expected) == 3 * SECONDS


def test_at_the_start_the_server_has_to_be_there(spark, tmp_path):
    from holdfast.errors import SinkAway

    with pytest.raises(SinkAway) as caught:
        process(tmp_path, "postgresql://me@127.0.0.1:1/x", lambda: Scenario.seconds(0, 2)).run(spark=spark)
    assert caught.value.exit_code == 5
