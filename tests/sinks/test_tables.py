"""What every table promises, on SQLite, DuckDB and PostgreSQL alike."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import duckdb
import psycopg
import pyarrow as pa
import pytest

from holdfast.errors import FrameDiffers, SinkError
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Column, Schema
from holdfast.sinks import write

from .conftest import make_frame

DATABASES = {"sqlite": (write.sqlite, sqlite3), "duckdb": (write.duckdb, duckdb)}


@pytest.fixture(params=[*DATABASES, "postgres"])
def database(request, tmp_path):
    if request.param == "postgres":
        return Server(request.getfixturevalue("postgres").url)
    return Database(*DATABASES[request.param], tmp_path / "out.db")


@pytest.fixture(params=DATABASES)
def file_database(request, tmp_path):
    return Database(*DATABASES[request.param], tmp_path / "out.db")


class Database:
    """A database file."""

    def __init__(self, writer, module, path):
        self.writer, self.module, self.path = writer, module, path
        self.address = path.name

    def sink(self, context, keys=None, table="average", **options):
        return self.writer(self.address, table, keys, **options).open(context)

    def connect(self):
        return closing(self.module.connect(str(self.path)))

    def rows(self, sql="select zone, mean from average order by _frame, _i"):
        with self.connect() as connection:
            return connection.execute(sql).fetchall()

    def run(self, *statements):
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()


class Server(Database):
    def __init__(self, url):
        self.writer, self.module, self.address = write.postgres, psycopg, url

    def connect(self):
        return psycopg.connect(self.address)


def test_a_frame_sent_twice_is_written_once(database, context):
    frame = make_frame(1, [(1, 10, 0.5), (2, 20, None)])
    with closing(database.sink(context())) as sink:
        assert sink.last() == 0
        assert sink.write([frame]) == [True]
        assert sink.write([frame]) == [False]
    with closing(database.sink(context(epoch=2))) as sink:
        assert sink.last() == 1
        assert sink.write([frame, make_frame(2, [(3, 30, 1.5)])]) == [False, True]
    assert database.rows() == [(1, 0.5), (2, None), (3, 1.5)]
    assert database.rows("select _frame, _i from average order by 1, 2") == [(1, 0), (1, 1), (2, 0)]


def test_many_frames_go_in_one_transaction_or_none_does(database, context):
    """A batch half written would be a hole after a crash."""
    good = [make_frame(n, [(n, n, float(n))]) for n in range(1, 301)]
    with closing(database.sink(context())) as sink:
        assert sink.write(good) == [True] * 300
        with pytest.raises(FrameDiffers):
            sink.write([make_frame(301, [(301, 1, 1.0)]), make_frame(7, [(7, 7, 7.5)])])
        assert sink.last() == 300
        assert sink.write([make_frame(301, [(301, 1, 1.0)])]) == [True]
    assert database.rows("select count(*), sum(zone) from average") == [(301, 301 * 302 // 2)]
    assert database.rows("select count(*), sum(rows) from _holdfast_ledger") == [(301, 301)]


def test_an_old_epoch_is_refused_as_soon_as_the_new_run_has_opened(database, context):
    """The new run starts at once, while an orphan may still live."""
    orphan = database.sink(context(epoch=1))
    orphan.write([make_frame(1, [(1, 1, 1.0)])])
    new = database.sink(context(epoch=2))
    with pytest.raises(SinkError) as caught:
        orphan.write([make_frame(2, [(2, 2, 2.0)])])
    assert caught.value.code == "HF-K003"
    assert new.write([make_frame(2, [(9, 9, 9.0)])]) == [True]
    with pytest.raises(SinkError) as caught:
        database.sink(context(epoch=1))
    assert caught.value.code == "HF-K003"
    orphan.close(), new.close()
    assert database.rows() == [(1, 1.0), (9, 9.0)]


def test_another_checksum_is_refused_and_the_first_frame_stays(database, context):
    with closing(database.sink(context())) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0)])])
        with pytest.raises(FrameDiffers) as caught:
            sink.write([make_frame(1, [(1, 1, 2.0)])])
    assert caught.value.code == "HF-F001" and caught.value.effect and caught.value.do
    assert database.rows() == [(1, 1.0)]


def test_stable_takes_the_place_of_tentative(database, context):
    guess = make_frame(2, [(1, 1, 1.0), (2, 2, 2.0)], kind=Kind.TENTATIVE)
    answer = make_frame(2, [(1, 1, 1.5)])
    with closing(database.sink(context())) as sink:
        sink.write([make_frame(1, [(0, 0, 0.0)]), guess])
        assert sink.write([answer]) == [True]
        assert sink.write([guess, answer]) == [False, False]
    assert database.rows() == [(0, 0.0), (1, 1.5)]
    assert database.rows("select frame, kind, rows from _holdfast_ledger order by 1") == [
        (1, "stable", 1),
        (2, "stable", 1),
    ]


def test_empty_and_lost_frames_are_in_the_ledger(database, context):
    with closing(database.sink(context())) as sink:
        assert sink.write([make_frame(1), make_frame(2, kind=Kind.LOST)]) == [True, True]
        assert sink.last() == 2
        assert sink.write([]) == []
    assert database.rows("select frame, kind from _holdfast_ledger order by 1") == [(1, "stable"), (2, "lost")]


def test_with_keys_the_newest_frame_wins(database, context):
    """Also when an older frame comes after a newer one."""
    with closing(database.sink(context(), keys=["zone"])) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0), (2, 1, 1.0)])])
        sink.write([make_frame(3, [(1, 3, 3.0)])])
        assert sink.write([make_frame(2, [(1, 2, 2.0), (2, 2, 2.0)])]) == [True]
    rows = database.rows("select zone, mean, _frame from average order by zone")
    assert rows == [(1, 3.0, 3), (2, 2.0, 2)]


def test_a_key_twice_in_a_frame_leaves_the_last_row_in_canonical_order(database, context):
    with closing(database.sink(context(), keys="zone")) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0), (1, 2, 2.0), (2, 2, 8.0), (1, 3, 3.0)])])
        assert sink.write([make_frame(3, [(2, 9, 9.0), (2, 9, 9.5)]), make_frame(2, [(2, 7, 7.0), (1, 7, 7.5)])]) == [
            True,
            True,
        ]
    assert database.rows("select zone, mean, _frame from average order by zone") == [(1, 7.5, 2), (2, 9.5, 3)]


def test_all_columns_may_be_keys(database, context):
    with closing(database.sink(context(), keys=["zone", "ts", "mean"])) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0)]), make_frame(2, [(1, 1, 1.0), (2, 2, 2.0)])])
    assert database.rows("select zone, _frame from average order by zone") == [(1, 2), (2, 2)]


@pytest.mark.parametrize(("value", "key"), [(None, "zone"), (float("nan"), "mean")])
def test_a_null_key_is_refused_because_it_would_not_be_replaced(database, context, value, key):
    row = (value, 1, 1.0) if key == "zone" else (1, 1, value)
    with closing(database.sink(context(), keys=[key])) as sink:
        with pytest.raises(SinkError) as caught:
            sink.write([make_frame(1, [row])])
        assert caught.value.code == "HF-K008"
        assert sink.last() == 0


def test_a_keyed_table_refuses_tentative_frames(database, context):
    """What a tentative row replaced could not be brought back."""
    with closing(database.sink(context(), keys=["zone"])) as sink, pytest.raises(SinkError) as caught:
        sink.write([make_frame(1, [(1, 1, 1.0)], kind=Kind.TENTATIVE)])
    assert caught.value.code == "HF-K009"


@pytest.mark.parametrize(
    ("create", "keys", "why"),
    [
        ("create table average (zone integer, mean double precision, _frame bigint, _i bigint)", None, "'ts'"),
        ("create table average (zone text, ts text, mean text, _frame bigint, _i bigint)", None, "needs"),
        ("create table average (zone integer)", None, "'ts'"),
        ("create view average as select 1 as zone", None, "view"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(database, context, create, keys, why):
    database.run(create)
    with pytest.raises(SinkError) as caught:
        database.sink(context(), keys)
    assert caught.value.code == "HF-K001"
    assert why in caught.value.why
    assert "_holdfast_ledger" not in {name for (name,) in database.rows(TABLES[database.module])}


TABLES = {
    sqlite3: "select name from sqlite_master",
    duckdb: "select table_name from information_schema.tables",
    psycopg: "select table_name from information_schema.tables where table_schema = 'public'",
}
TIME = {sqlite3: "text", duckdb: "timestamptz", psycopg: "timestamptz"}


def test_a_users_own_table_is_taken_when_it_fits(database, context):
    columns = f"note text default 'x', zone bigint, mean double precision, ts {TIME[database.module]}"
    database.run(f"create table average ({columns}, _frame bigint, _i bigint)")
    with closing(database.sink(context())) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0)])])
    assert database.rows("select note, zone, mean from average") == [("x", 1, 1.0)]


def test_a_column_that_needs_a_value_is_refused(database, context):
    columns = f"note text not null, zone bigint, mean double precision, ts {TIME[database.module]}"
    database.run(f"create table average ({columns}, _frame bigint, _i bigint)")
    with pytest.raises(SinkError, match="'note' must not be null"):
        database.sink(context())


def test_keys_need_a_unique_constraint_in_a_users_own_table(database, context):
    columns = f"zone integer, ts {TIME[database.module]}, mean double precision, _frame bigint"
    database.run(f"create table average ({columns})")
    with pytest.raises(SinkError, match="unique"):
        database.sink(context(), ["zone"])
    database.run("drop table average", f"create table average ({columns}, unique (zone))")
    with closing(database.sink(context(), ["zone"])) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0)]), make_frame(2, [(1, 2, 2.0)])])
    assert database.rows("select zone, mean from average") == [(1, 2.0)]


def test_a_key_that_is_no_column_gets_a_suggestion(database, context):
    with pytest.raises(SinkError, match="did you mean 'zone'") as caught:
        database.sink(context(), ["zoen"])
    assert caught.value.code == "HF-K002"
    assert "_holdfast_ledger" not in {name for (name,) in database.rows(TABLES[database.module])}


@pytest.mark.parametrize("names", [("zone", "Zone"), ("_frame",), ("_I",)])
def test_names_that_a_table_cannot_tell_apart_are_refused(database, context, names):
    with pytest.raises(SinkError) as caught:
        database.sink(context(schema=Schema(tuple(Column(name, "int") for name in names))))
    assert caught.value.code == "HF-K001"


def test_two_sinks_may_share_a_file_but_not_a_table(database, context):
    """Two counts of frames in one table: the second would take the first's rows for its own."""
    first = database.sink(context())
    second = database.sink(context(sink="damped"), table="damped")
    with pytest.raises(SinkError) as caught:
        database.sink(context(sink="third"), table="damped")
    assert caught.value.code == "HF-K006"
    frames = [make_frame(n, [(n, n, 1.0)]) for n in range(1, 21)]
    threads = [
        threading.Thread(target=lambda sink=sink: [sink.write([frame]) for frame in frames]) for sink in (first, second)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert first.last() == second.last() == 20
    first.close(), second.close()
    assert database.rows("select count(*) from average") == database.rows("select count(*) from damped") == [(20,)]


def test_a_dropped_table_is_noticed(database, context):
    """Going on would leave a table without its first frames, and no one would know."""
    with closing(database.sink(context())) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0)])])
    database.run("drop table average")
    with pytest.raises(SinkError) as caught:
        database.sink(context())
    assert caught.value.code == "HF-K007"
    forget = [line for line in caught.value.do.splitlines() if line.startswith("delete from")]
    database.run(*forget)
    with closing(database.sink(context())) as sink:
        assert sink.last() == 0


def test_a_file_that_is_no_database_is_an_error_and_stays_as_it_is(file_database, context):
    file_database.path.write_bytes(b"zone,ts,mean\n" * 1000)
    with pytest.raises(SinkError) as caught:
        file_database.sink(context())
    assert caught.value.code == "HF-K004"
    assert file_database.path.read_bytes() == b"zone,ts,mean\n" * 1000


def test_names_are_quoted(database, context):
    schema = Schema.of('`se"lect` int, `a b?` string, `x;--%s` double')
    with closing(database.sink(context(schema=schema), keys=['se"lect'], table='or"der %? by')) as sink:
        sink.write([make_frame(1, [(1, "it's", 2.0)], schema=schema), make_frame(2, [(1, "b", 3.0)], schema=schema)])
    assert database.rows('select * from "or""der %? by"') == [(1, "b", 3.0, 2)]


def test_a_write_that_fails_is_rolled_back_and_can_be_repeated(database, context):
    sink = database.sink(context())
    sink.write([make_frame(1, [(1, 1, 1.0)])])
    sink.run("drop table average")
    with pytest.raises(SinkError) as caught:
        sink.write([make_frame(2, [(2, 2, 2.0)])])
    assert caught.value.code == "HF-K005" and "rolled back" in caught.value.effect
    sink.close()
    assert database.rows("select max(frame) from _holdfast_ledger") == [(1,)]


def test_columns_in_another_order_or_type_are_brought_into_the_declared_one(database, context):
    record, table = make_frame(1, [(1, 1, 1.0)])
    table = table.select(["mean", "zone", "ts"]).set_column(1, "zone", pa.array([1], pa.int64()))
    with closing(database.sink(context())) as sink:
        sink.write([(record, table)])
    assert database.rows() == [(1, 1.0)]


WIDER = Schema.of("zone int, ts timestamp, mean double, note string")


def test_a_column_the_table_lacks_is_refused_unless_it_may_be_added(database, context):
    """Declared by new_columns=: a column that appears by itself is a surprise to whoever reads the table."""
    with closing(database.sink(context())) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0)])])
    with pytest.raises(SinkError, match="'note'.*\n.*\n.*new_columns='add'") as caught:
        database.sink(context(epoch=2, schema=WIDER))
    assert caught.value.code == "HF-K001"

    with closing(database.sink(context(epoch=2, schema=WIDER), new_columns="add")) as sink:
        waited = make_frame(2, [(2, 2, 2.0)], epoch=1)  # sealed by the run before, without the column
        assert sink.write([waited, make_frame(3, [(3, 3, 3.0, "x")], epoch=2, schema=WIDER)]) == [True, True]
    assert database.rows("select zone, note from average order by zone") == [(1, None), (2, None), (3, "x")]


def test_a_waiting_frame_loses_no_column_that_the_stream_lost_meanwhile(database, context):
    """Renamed while the table was away: the values of the frames that waited were left out in silence."""
    with closing(database.sink(context(schema=WIDER))) as sink:
        sink.write([make_frame(1, [(1, 1, 1.0, "a")], schema=WIDER)])
    with closing(database.sink(context(epoch=2))) as sink:
        with pytest.raises(SinkError, match="'note'(.|\n)*holdfast remake average 2") as caught:
            sink.write([make_frame(2, [(2, 2, 2.0, "b")], epoch=1, schema=WIDER)])
        assert caught.value.code == "HF-K001"
        assert sink.write([make_frame(2, [(2, 2, 2.0, None)], epoch=1, schema=WIDER)]) == [True]
    assert database.rows("select zone, note from average order by zone") == [(1, "a"), (2, None)]


def test_neither_keys_nor_our_own_columns_are_added(database, context):
    database.run(f"create table average (zone integer, ts {TIME[database.module]}, mean double precision)")
    with pytest.raises(SinkError, match="'_frame'") as caught:
        database.sink(context(), new_columns="add")
    assert caught.value.code == "HF-K001"
    assert database.rows("select * from average") == []


def test_a_lock_of_another_program_is_away_and_not_the_end(tmp_path, context, monkeypatch):
    """Somebody with an open transaction in a shell ended the run."""
    from holdfast.errors import SinkAway
    from holdfast.sinks import sqlite

    monkeypatch.setattr(sqlite, "BUSY_S_MAX", 0.05)
    frame = make_frame(1, [(1, 10, 0.5)])
    with closing(write.sqlite("out.db", "average").open(context())) as sink:
        with closing(sqlite3.connect(tmp_path / "out.db", isolation_level=None)) as person:
            person.execute("begin immediate")
            for _ in range(2):
                with pytest.raises(SinkAway) as caught:
                    sink.write([frame])
                assert caught.value.code == "HF-K013" and "another program holds the database" in caught.value.do
            with pytest.raises(SinkAway):
                sink.last()
            person.execute("rollback")  # as the error says: end its transaction
        assert sink.write([frame]) == [True]
        assert sink.last() == 1


@pytest.mark.parametrize("keys", [None, ["zone"]])
def test_a_table_is_taken_whatever_the_case_of_its_name(file_database, context, keys):
    """SQLite and DuckDB tell no case in names: two sinks would write over each other's rows."""
    first = file_database.sink(context(sink="a"), keys, "seen")
    first.write([make_frame(1, [(1, 1, 1.0)])])
    first.close()
    with pytest.raises(SinkError, match="HF-K006"):
        file_database.sink(context(sink="b"), keys, "SEEN")
    assert file_database.rows("select mean from seen") == [(1.0,)]


@pytest.mark.parametrize("kind", ["string", "decimal(10, 2)", "array<int>"])
def test_a_column_of_sqlite_for_times_takes_no_other_text(tmp_path, context, kind):
    """Its affinity is numeric: '12.30' would become 12.3."""
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        db.execute("create table average (code timestamp, _frame integer, _i integer)")
    with pytest.raises(SinkError, match="HF-K001"):
        write.sqlite("out.db", "average").open(context(schema=Schema.of(f"code {kind}")))
    write.sqlite("out.db", "average").open(context(schema=Schema.of("code timestamp"))).close()
