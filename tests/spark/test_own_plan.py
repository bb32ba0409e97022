"""Nothing an operator caches, persists, broadcasts or collects answers for another frame, unit or process."""

from __future__ import annotations

import contextlib

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import holdfast as hf
from holdfast.engine.check.types import infer
from holdfast.errors import OperatorError
from holdfast.graph.units import cut

SECONDS = (
    3  # frame 1 is the one that would answer for others, 2 and 3 are those it would answer for, alone and together
)
SCHEMA = "ts timestamp, v long"


@pytest.fixture
def probes(tmp_path):
    """Two rows in each frame; v is 2n and 2n + 1 in frame n + 1."""
    times = [second * 1_000_000 + at for second in range(SECONDS) for at in (1, 2)]
    table = pa.table(
        {"ts": pa.array(times, pa.timestamp("us", tz="UTC")), "v": pa.array(range(len(times)), pa.int64())}
    )
    pq.write_table(table, tmp_path / "probes.parquet")
    pq.write_table(
        pa.table({"v": pa.array(range(100), pa.int64()), "name": [f"n{at}" for at in range(100)]}),
        tmp_path / "names.parquet",
    )
    return tmp_path


def kiln(folder, got, *functions, name="kiln"):
    """A process with these operators on one source, and what their sinks were handed."""
    process = hf.StreamProcess(name, frame="1 second", time="ts", state=str(folder / name))
    process.source("probes", hf.read.files(str(folder / "probes.parquet")), schema=SCHEMA)
    for function in functions:
        process.operator(function)
        process.sink(function.__name__, hf.write.callback(keep(got.setdefault(function.__name__, {}))))
    return process


def keep(frames):
    return lambda table, n: frames.__setitem__(n, sorted(table.to_pandas()["v"].tolist()))


def expected(of=lambda v: v):
    return {n: [of(2 * n - 2), of(2 * n - 1)] for n in range(1, SECONDS + 1)}


def frames(found):
    return {n: rows for n, rows in found.items() if rows or n <= SECONDS}


def cached(spark):
    manager = spark._jsparkSession.sharedState().cacheManager()
    field = manager.getClass().getDeclaredField("cachedData")
    field.setAccessible(True)
    entries = field.get(manager)
    return [entries.apply(at).plan().treeString() for at in range(entries.size())]


def test_what_one_operator_persists_answers_for_no_other_frame_unit_or_process(spark, probes):
    """Spark takes equal plans for one: the frame that was cached first came back for all others."""
    got, other = {}, {}

    def f(probes):
        r = probes.select("ts", "v")
        r.persist()
        return r

    def g(probes):
        return probes.select("ts", "v")

    kiln(probes, got, f, g).run(spark=spark)
    assert frames(got["f"]) == expected()
    assert frames(got["g"]) == expected()
    assert cached(spark) == []

    def persists(probes):
        return probes.select("ts", "v").persist()

    one, two = kiln(probes, got, persists, name="one"), kiln(probes, other, g, persists, name="two")
    first, second = one.start(spark=spark), two.start(spark=spark)
    first.wait(), second.wait()
    assert frames(got["persists"]) == frames(other["g"]) == frames(other["persists"]) == expected()
    assert cached(spark) == []


def test_an_operator_may_cache_collect_and_broadcast_and_every_frame_is_its_own(spark, probes):
    """Each in a unit of its own, all at once, on one source; then nothing is left in memory."""
    got = {}

    def untouched(probes):
        return probes.select("ts", "v")

    def cached_and_counted(probes):
        r = probes.select("ts", "v").cache()
        return r.where(F.lit(r.count()) >= 0)

    def cached_apart(probes):  # and not in the plan that is returned
        probes.agg(F.max("v")).persist().collect()
        return probes.select("ts", "v")

    def cached_table(probes):
        probes.createOrReplaceTempView("now")
        session = probes.sparkSession
        session.catalog.cacheTable("now")
        return session.table("now").select("ts", "v")

    def cached_by_sql(probes):
        probes.createOrReplaceTempView("rows")
        probes.sparkSession.sql("cache table now as select ts, v from rows")
        return probes.sparkSession.table("now")

    def cached_in_a_subquery(probes):
        top = probes.agg(F.max("v").alias("top")).persist()
        probes.createOrReplaceTempView("rows")
        top.createOrReplaceTempView("tops")
        return probes.sparkSession.sql("select ts, v from rows where v >= (select top from tops) - 1")

    def checkpointed(probes):
        return probes.select("ts", "v").localCheckpoint()

    def checkpointed_later(probes):
        return probes.select("ts", "v").localCheckpoint(eager=False)

    def persisted_checkpoint(probes):
        return probes.select("ts", "v").localCheckpoint().persist()

    def by_rdd(probes):
        return probes.sparkSession.createDataFrame(probes.select("ts", "v").rdd, SCHEMA)

    def by_shuffled_rdd(probes):
        rows = probes.groupBy("ts").agg(F.max("v").alias("v"))
        return probes.sparkSession.createDataFrame(rows.rdd, SCHEMA)

    def by_cached_rdd(probes):
        return probes.sparkSession.createDataFrame(probes.select("ts", "v").rdd.cache(), SCHEMA)

    def by_pandas(probes):
        return probes.sparkSession.createDataFrame(probes.select("ts", "v").toPandas(), SCHEMA)

    def by_arrow(probes):
        return probes.sparkSession.createDataFrame(probes.select("ts", "v").toArrow())

    def with_literals(probes):
        least = min([row.v for row in probes.collect()], default=0)
        return probes.where(F.col("v") >= least).select("ts", "v")

    def with_a_job_group(probes):
        probes.sparkSession.sparkContext.setJobGroup("mine", "its own")
        least = min([row.v for row in probes.collect()], default=0)
        return probes.where(F.col("v") >= least).select("ts", "v")

    def with_a_broadcast(probes):
        known = probes.sparkSession.sparkContext.broadcast({row.v for row in probes.collect()})

        def kept(parts):
            for rows in parts:
                yield rows[rows["v"].isin(known.value)]

        return probes.select("ts", "v").mapInPandas(kept, SCHEMA)

    def with_a_broadcast_join(probes):
        return probes.join(F.broadcast(probes.select("v")), "v").select("ts", "v")

    def with_a_view_that_stays(probes):
        session = probes.sparkSession
        if not session.catalog.tableExists("first"):
            probes.createTempView("first")
        return session.table("first").select("ts", "v")

    def with_a_static_table(probes):
        names = probes.sparkSession.read.parquet(str(probes_folder / "names.parquet")).persist()
        return probes.join(names, "v").select("ts", "v")

    probes_folder = probes
    functions = [each for each in locals().values() if callable(each) and getattr(each, "__module__", "") == __name__]
    assert len(functions) == 20
    run = kiln(probes, got, *functions)
    run.run(spark=spark)
    wrong = {name: found for name, found in got.items() if frames(found) != expected()}
    assert wrong == {}
    # The static table is the only one that stays; it is right for every frame.
    left = cached(spark)
    assert len(left) == 1 and "parquet" in left[0] and "holdfast" not in left[0], left
    spark.catalog.clearCache()


LAST = {}


def test_sinks_may_remember_and_keyed_functions_may_not(spark, probes):
    """Two foreach_batch sinks with one name for their views; a keyed function that hides what it keeps behind another name."""
    got, sums = {"one": {}, "two": {}}, {}

    def stored(name, minimum):
        def store(df, n):
            df.persist()
            df.where(f"v >= {minimum}").createOrReplaceTempView("batch")
            got[name][n] = sorted(row.v for row in df.sparkSession.table("batch").collect())

        return store

    def same(probes):
        return probes

    def hides(state, probes):
        known = LAST
        known["v"] = probes["v"].max()
        return state, None

    process = hf.StreamProcess("sinks", frame="1 second", time="ts", state=str(probes / "sinks"))
    process.source("probes", hf.read.files(str(probes / "probes.parquet")), schema=SCHEMA)
    process.operator(same, spark_conf={"spark.sql.shuffle.partitions": "3"})
    process.filter("all_of_them", of="probes", where="v >= 0")

    @process.keyed("v", state="n long", emits="v long, n long")
    def mutates(state, probes):
        """Changes what it is handed, in place, and emits it."""
        probes.loc[:, "v"] = probes["v"]
        probes["n"] = 1
        probes.drop(columns="ts", inplace=True)
        state["n"] = 7
        return state, probes

    process.sink("same", hf.write.foreach_batch(stored("one", 0)))
    process.sink("all_of_them", hf.write.foreach_batch(stored("two", 3)))
    process.sink("mutates", hf.write.callback(lambda table, n: sums.__setitem__(n, table.num_rows)))
    process.run(spark=spark)
    assert frames(got["one"]) == expected()
    assert frames(got["two"]) == {n: [v for v in rows if v >= 3] for n, rows in expected().items()}
    assert {n: rows for n, rows in sums.items() if n <= SECONDS} == dict.fromkeys(range(1, SECONDS + 1), 2)
    assert cached(spark) == []

    process = hf.StreamProcess("hiding", frame="1 second", time="ts", state=str(probes / "hiding"))
    process.source("probes", hf.read.files(str(probes / "probes.parquet")), schema=SCHEMA)
    process.keyed("v", state="n long", emits="v long, n long")(hides)
    process.sink("hides", hf.write.callback(lambda table, n: None))
    with pytest.raises(OperatorError) as caught:
        process.run(spark=spark)
    assert caught.value.code == "HF-U070" and "'LAST'" in caught.value.what


@F.pandas_udf(LongType())
def spoils(v: pd.Series) -> pd.Series:
    v += 100
    v.iloc[0] = -1
    return v * 0


@F.pandas_udf(LongType())
def as_it_is(v: pd.Series) -> pd.Series:
    return v


@F.pandas_udf(LongType())
def spoils_and_sums(v: pd.Series) -> int:
    v[:] = 0
    return 0


@F.pandas_udf(LongType())
def sums(v: pd.Series) -> int:
    return int(v.sum())


def lengthens(tags):
    tags.append(50)
    return 0


def adds(tags):
    return sum(tags)


def test_what_a_function_does_to_its_input_no_other_function_sees(spark, probes):
    """Spark hands one Series, one list to all functions of a projection; two operators may stand in one."""
    got = {}
    quick, slow = (dict(useArrow=how) for how in (True, False))

    def spoiling(probes):
        tagged = probes.withColumn("tags", F.array("v"))
        for name, how in (("quick", quick), ("slow", slow)):
            tagged = tagged.withColumn(name, F.udf(lengthens, "bigint", **how)("tags"))
        return tagged.withColumn("nought", spoils("v"))

    def innocent(spoiling):
        whole = spoiling.withColumn("b", as_it_is("v"))
        for name, how in (("c", quick), ("d", slow)):
            whole = whole.withColumn(name, F.udf(adds, "bigint", **how)("tags"))
        return whole.selectExpr(
            "ts", "if(b = v and c = v and d = v and nought = 0 and quick + slow = 0, v, -1000) as v"
        )

    def in_groups(probes):
        return probes.groupBy("ts").agg(spoils_and_sums("v").alias("n"), sums("v").alias("v")).select("ts", "v")

    def in_windows(probes):
        by = Window.partitionBy("ts")
        return (
            probes.withColumn("n", spoils_and_sums("v").over(by)).withColumn("v", sums("v").over(by)).select("ts", "v")
        )

    def in_parts(probes):
        def change(parts):
            for part in parts:
                part["v"] *= 2
                part.drop(columns="ts", inplace=True)
                yield part

        return (
            probes.select("ts", "v")
            .mapInPandas(change, "v bigint")
            .join(probes, "v", "left")
            .selectExpr("v div 2 as v")
        )

    def by_group(probes):
        def change(rows):
            rows.sort_values("v", inplace=True, ascending=False)
            rows.loc[:, "v"] += 7
            return rows

        known = probes.select("ts", "v").cache()
        return (
            known.groupBy("ts")
            .applyInPandas(change, SCHEMA)
            .selectExpr("ts", "v - 7 as v")
            .where(F.lit(known.count()) >= 0)
        )

    process = kiln(probes, got, spoiling, innocent, in_groups, in_windows, in_parts, by_group, name="spoils")
    units = [set(unit.operators) for unit in cut(process.graph())]

    @process.operator(over="stream")
    def streamed(probes):
        names = probes.sparkSession.read.parquet(str(folder / "names.parquet"))
        known = probes.select("ts", "v", spoils("v").alias("n"), as_it_is("v").alias("w")).join(F.broadcast(names), "v")
        return known.selectExpr("ts", "if(n = 0, w, -1) as v")

    folder, seen = probes, []
    process.sink("streamed", hf.write.callback(keep(got.setdefault("streamed", {}))))

    def spoils_its_table(table, n):
        df = table.to_pandas()
        df["v"] = -1
        for column in table.columns:
            for chunk in column.chunks:
                with contextlib.suppress(pa.ArrowInvalid, ValueError):  # Arrow's memory is not to be written to
                    chunk.to_numpy(zero_copy_only=True)[:] = -1
        seen.append(n)

    def spoils_its_batch(df, n):
        df.persist().createOrReplaceTempView("batch")
        known = df.sparkSession.sparkContext.broadcast(n)
        rows = df.toPandas()
        rows["v"] = known.value
        df.select(spoils("v")).collect()
        seen.append(n)

    process.sink("in_groups", hf.write.callback(spoils_its_table), name="one")
    process.sink("in_groups", hf.write.foreach_batch(spoils_its_batch), name="two")
    process.sink("in_groups", hf.write.callback(keep(got.setdefault("after", {}))), name="zzz")
    process.run(spark=spark)
    assert {"spoiling", "innocent"} in units, "they would not stand in one projection"
    nothing = {name: frames(found) for name, found in got.items() if name != "spoiling" and frames(found) != expected()}
    assert nothing == {}
    assert seen and cached(spark) == []


@F.pandas_udf(LongType())
def hides_in_a_worker(v: pd.Series) -> pd.Series:
    for each in (LAST,):
        each["v"] = v.max()
    return v


def test_what_a_function_keeps_in_its_worker_is_refused(spark, probes):
    def hides(probes):
        return probes.select("ts", hides_in_a_worker("v").alias("v"))

    with pytest.raises(OperatorError) as caught:
        kiln(probes, {}, hides, name="hidden").run(spark=spark)
    assert (
        caught.value.code == "HF-U070" and "'LAST'" in caught.value.what and "'hides_in_a_worker'" in caught.value.what
    )


def test_check_refuses_what_cannot_be_right(spark, probes):
    process = hf.StreamProcess("refused", frame="1 second", time="ts", state=str(probes / "refused"))
    process.source("probes", hf.read.files(str(probes / "probes.parquet")), schema=SCHEMA)

    @process.operator(over="stream")
    def persists(probes):
        return probes.persist()

    @process.operator(over="stream")
    def watermarks(probes):
        return probes.withWatermark("ts", "5 seconds").groupBy(F.window("ts", "2 seconds")).count().select("count")

    @process.operator
    def shows_all(probes):
        probes.createOrReplaceGlobalTempView("everybody")
        return probes.sparkSession.table("global_temp.everybody")

    @process.operator(spark_conf={"spark.executor.memory": "1g", "spark.sql.ansi.enabled": "false"})
    def sets(probes):
        return probes

    @process.operator(outputs=["lo", "hi"])
    def halves(probes):
        return {"lo": probes.where("v < 10"), "hi": probes.where("v >= 10")}

    for stream in ("persists", "watermarks", "shows_all", "sets", "halves.lo", "halves.hi"):
        process.sink(stream, hf.write.callback(lambda table, n: None))
    _, findings, _ = infer(process.graph(), spark)
    found = {(finding.code, finding.what.split("'")[1]) for finding in findings if not finding.warning}
    assert found == {
        ("HF-G024", "persists"), ("HF-G043", "watermarks"), ("HF-G041", "shows_all"), ("HF-G042", "sets"),
    }  # fmt: skip
    assert sum(finding.code == "HF-G042" for finding in findings) == 2
    assert "lateness=" in next(finding.do for finding in findings if finding.code == "HF-G043")
    assert cached(spark) == []
