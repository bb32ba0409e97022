"""examples/sales.py: an existing job, moved; it goes on over a restart, and its table is what a batch query says."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import psycopg

from holdfast.declare.loading import load

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sales.py"


def add_file(folder, number):
    rows = [
        {"shop": f"s{i % 3}", "ts": f"2026-11-15T10:{number:02}:{i:02}Z", "amount": f"{number}.{i:02}"}
        for i in range(40)
    ]
    whole = folder / f"_{number}.json"
    whole.write_text("\n".join(map(json.dumps, rows)))
    whole.rename(folder / f"{number}.json")
    found: dict = {}
    for row in rows:
        key = (row["shop"], f"10:{number:02}")
        found[key] = found.get(key, 0) + Decimal(row["amount"])
    return found


def test_the_moved_job_runs_as_printed(spark, postgres, tmp_path, monkeypatch):
    folder = tmp_path / "orders"
    folder.mkdir()
    monkeypatch.setenv("ORDERS", str(folder))
    monkeypatch.setenv("PG_URL", postgres.url)
    with psycopg.connect(postgres.url) as pg:
        pg.execute("create table sales (shop text, minute timestamptz, amount numeric, primary key (shop, minute))")

    def table():
        with psycopg.connect(postgres.url) as pg:
            rows = pg.execute(
                "select shop, to_char(minute at time zone 'UTC', 'HH24:MI'), amount from sales"
            ).fetchall()
        return {(shop, minute): amount for shop, minute, amount in rows}

    def runs_until(expected):
        with load(str(EXAMPLE)).start(spark=spark, state=tmp_path / "state") as run:
            with run.parts.board.changed:  # the table follows what happens on the board
                assert run.parts.board.changed.wait_for(lambda: table() == expected or run.finished, timeout=120), (
                    table()
                )
        return run

    expected = add_file(folder, 1) | add_file(folder, 2)
    run = runs_until(expected)
    assert "HF-K015" in {finding.code for finding in run.findings}, "check has to say that a frame may come again"
    before = run.status().frame
    expected |= add_file(folder, 3)
    run = runs_until(expected)
    assert run.status().frame > before, "frame numbers go on, whatever Spark's batches do"
