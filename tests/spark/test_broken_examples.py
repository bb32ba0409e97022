"""The rules that need Spark's analyser: each broken example gets its code, each remedy passes.

What is refused without need is as bad as what is let through, so ordinary PySpark is
held against the rules as well.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.declare.loading import load
from holdfast.engine.check.types import infer
from holdfast.errors import Finding
from tests.graph.test_broken_examples import BROKEN, NAMES, marked, needs_spark

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = "ts timestamp, zone int, celsius double, name string, tags array<int>"


def errors(path: Path, spark) -> list[Finding]:
    return [finding for finding in infer(load(path).graph(), spark)[1] if not finding.warning]


@pytest.mark.parametrize("name", [*(name for name in NAMES if needs_spark(name)), "feedback_types_differ"])
def test_a_broken_process_gets_its_code_its_vertex_and_its_line(name, spark, capfd):
    """One finding and no more: the one that has to be mended. And no stack of Spark's on the terminal."""
    path = BROKEN / f"{name}.py"
    code, line = marked(path)
    (finding,) = errors(path, spark)
    assert finding.code == code
    assert re.match(rf"\S*{path.name}:{line}\b", finding.where), finding.where
    vertex = next(operator.name for operator in load(path).graph().operators if operator.line in finding.where)
    assert f"operator '{vertex}'" in str(finding)
    assert finding.why and finding.do and finding.effect == "nothing was started, nothing was read"
    assert capfd.readouterr().err == ""


def test_a_built_in_over_a_misspelt_column_is_named_with_its_line(spark):
    """`check` has no line of the user's to show but this one: which of ten aggregates was it?"""
    p = hf.StreamProcess("hot", frame="1 second", time="ts")
    p.source("probes", hf.read.files("probes.parquet"), schema=SCHEMA)
    p.aggregate("seen", of="probes", by="zoen", emits={"n": "count(*)"})
    (finding,) = [each for each in infer(p.graph(), spark)[1] if not each.warning]
    assert (finding.code, finding.do) == ("HF-O025", "did you mean 'zone'?")
    assert Path(__file__).name in finding.where and "operator 'seen'" in finding.where


def test_a_column_made_at_import_is_named_with_its_line():
    """In a process without a session: with one, nothing is wrong."""
    path = BROKEN / "session_needed_at_import.py"
    made = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli.main import main; main()", "check", "--no-types", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    said = made.stdout + made.stderr
    assert made.returncode == 3, said
    assert "HF-G026" in said
    assert f"{path.name}:{marked(path)[1]}" in said


@pytest.mark.parametrize("name", NAMES)
def test_every_remedy_passes_with_types_too(name, spark):
    """A remedy that is refused for another reason would be a bad joke."""
    assert errors(BROKEN / f"{name}_mended.py", spark) == []


# ---- ordinary PySpark ----


def named(name, function):
    function.__name__ = name
    return function


def checked(function, spark, *, over: str = "frame", **settings) -> tuple[list[str], bool]:
    """(codes found, whether the operator is pinned to one chunk) for a function as an operator."""
    p = hf.StreamProcess("ordinary", frame="1 second", time="ts", **settings)
    for source in ("probes", "others"):
        p.source(source, hf.read.files(f"{source}.parquet"), schema=SCHEMA)
    p.operator(function, over=over, **({"mode": "append"} if over == "stream" else {}))
    _, findings, pinned = infer(p.graph(), spark)
    assert all(finding.where for finding in findings)
    return [finding.code for finding in findings], function.__name__ in pinned


FINE = {
    "join": lambda probes, others: probes.join(others.select("zone", F.col("celsius").alias("other")), "zone"),
    "left_join_on_condition": lambda probes, others: probes.join(
        others.select(F.col("zone").alias("z"), F.col("ts").alias("t")),
        (F.col("zone") == F.col("z")) & (F.col("ts") > F.col("t")),
        "left",
    ),
    "self_join": lambda probes: probes.alias("a").join(probes.alias("b"), F.expr("a.zone = b.zone")).select("a.*"),
    "semi_and_anti": lambda probes, others: probes.join(others, "zone", "left_semi").join(others, "name", "left_anti"),
    "cross_join": lambda probes, others: probes.crossJoin(others.select(F.col("zone").alias("z"))),
    "broadcast": lambda probes, others: probes.join(F.broadcast(others.select("zone").distinct()), "zone"),
    "row_number": lambda probes: probes.withColumn(
        "place", F.row_number().over(Window.partitionBy("zone").orderBy("ts", "celsius"))
    ).where("place = 1"),
    "lag_and_rank": lambda probes: probes.withColumn(
        "rise", F.col("celsius") - F.lag("celsius").over(Window.partitionBy("zone").orderBy("ts"))
    ).withColumn("rank", F.rank().over(Window.partitionBy("zone").orderBy(F.desc("celsius")))),
    "first_in_ordered_window": lambda probes: probes.withColumn(
        "oldest", F.first("celsius").over(Window.partitionBy("zone").orderBy("ts"))
    ).withColumn("last_known", F.last("celsius", ignorenulls=True).over(Window.partitionBy("zone").orderBy("ts"))),
    "collected_in_ordered_window": lambda probes: probes.withColumn(
        "so_far", F.collect_list("zone").over(Window.partitionBy("name").orderBy("ts"))
    ),
    "share_of_partition": lambda probes: probes.withColumn("n", F.count("*").over(Window.partitionBy("zone"))),
    "sorted_list": lambda probes: probes.groupBy("zone").agg(F.sort_array(F.collect_list("name")).alias("names")),
    "sorted_list_later": lambda probes: (
        probes.groupBy("zone")
        .agg(F.collect_list(F.struct("ts", "name")).alias("rows"), F.collect_set("name").alias("names"))
        .withColumn("rows", F.sort_array("rows"))
        .select("zone", F.col("rows.name").alias("in_order"), F.array_sort("names").alias("names"))
    ),
    "joined_names": lambda probes: probes.groupBy("zone").agg(
        F.concat_ws(",", F.sort_array(F.collect_set("name"))).alias("names")
    ),
    "counted_set": lambda probes: (
        probes.groupBy("zone")
        .agg(F.size(F.collect_set("name")).alias("kinds"), F.collect_list("celsius").alias("all"))
        .select("zone", "kinds", F.array_max("all").alias("most"), F.array_contains("all", 3.0).alias("three"))
    ),
    "collected_and_exploded": lambda probes: probes.groupBy("zone")
    .agg(F.collect_list("celsius").alias("all"))
    .select("zone", F.explode("all").alias("celsius")),
    "listagg_in_order": lambda probes: probes.groupBy("zone").agg(
        F.expr("listagg(name, ',') within group (order by name)").alias("names")
    ),
    "most_frequent_least": lambda probes: probes.groupBy("zone").agg(F.mode("name", True).alias("usual")),
    "pivot": lambda probes: probes.groupBy("zone").pivot("name", ["a", "b"]).agg(F.max("celsius")),
    "unpivot": lambda probes: probes.select("zone", "celsius", F.col("celsius").alias("again")).unpivot(
        "zone", ["celsius", "again"], "what", "value"
    ),
    "explode": lambda probes: probes.select("ts", F.explode("tags").alias("tag")),
    "posexplode_and_inline": lambda probes: probes.select("ts", F.posexplode("tags")),
    "regexp": lambda probes: probes.withColumn("digits", F.regexp_extract("name", r"(\d+)", 1)).where(
        F.col("name").rlike("^a") | F.col("name").like("b%")
    ),
    "text": lambda probes: probes.select(
        "ts", F.upper("name").alias("u"), F.split("name", ",").alias("s"), F.format_string("%s-%d", "name", "zone").alias("f")
    ),
    "when": lambda probes: probes.withColumn("hot", F.when(F.col("celsius") > 80, "hot").otherwise("cold")),
    "struct_and_map": lambda probes: probes.select(
        F.struct("zone", "celsius").alias("both"), F.create_map("name", "zone").alias("by_name"), F.to_json(F.struct("zone")).alias("j")
    ),
    "higher_order": lambda probes: probes.select(
        F.transform("tags", lambda tag: tag + 1).alias("t"),
        F.filter("tags", lambda tag: tag > 1).alias("f"),
        F.aggregate("tags", F.lit(0), lambda total, tag: total + tag).alias("a"),
    ),
    "dates": lambda probes: probes.select(
        F.date_trunc("hour", "ts").alias("h"), F.to_date("ts").alias("d"), F.unix_timestamp("ts").alias("u"),
        (F.col("ts") + F.expr("interval 5 seconds")).alias("later"), F.window("ts", "5 seconds").start.alias("w"),
    ),
    "windows_of_time": lambda probes: probes.groupBy(F.window("ts", "10 seconds", "5 seconds"), "zone").agg(F.count("*").alias("n")).select("window.start", "zone", "n"),
    "sort": lambda probes: probes.orderBy("ts", F.desc("celsius")),
    "sorted_limit": lambda probes: probes.orderBy("ts").limit(10),
    "sorted_selected_limit": lambda probes: probes.orderBy("ts").select("zone").limit(10),
    "distinct": lambda probes: probes.select("zone", "name").distinct(),
    "duplicates_of_all_columns": lambda probes: probes.dropDuplicates(),
    "duplicates_by_all_names": lambda probes: probes.select("zone", "name").dropDuplicates(["name", "zone"]),
    "keys_of_duplicates": lambda probes: probes.dropDuplicates(["zone"]).select("zone"),
    "unions": lambda probes, others: probes.unionByName(others).union(probes),
    "set_operations": lambda probes, others: probes.select("zone").intersect(others.select("zone")).exceptAll(others.select("zone")),
    "missing_values": lambda probes: probes.na.fill({"celsius": 0.0}).na.drop(subset=["name"]),
    "cube": lambda probes: probes.cube("zone", "name").agg(F.count("*").alias("n"), F.grouping_id().alias("g")),
    "aggregates": lambda probes: probes.groupBy("zone").agg(
        F.min("celsius").alias("low"), F.max_by("name", "ts").alias("newest"), F.count_distinct("name").alias("kinds"),
        F.sum("zone").alias("total"), F.avg("zone").alias("mean"), F.median("celsius").alias("middle"),
        F.approx_count_distinct("name").alias("about"), F.bool_and(F.col("zone") > 1).alias("every"),
    ),
    "names_of_sparks_own": lambda probes: probes.groupBy("zone").agg(F.max("celsius"), F.count("*")),
    "hashes": lambda probes: probes.select("ts", F.xxhash64("name", "zone").alias("h"), F.sha2("name", 256).alias("s")),
    "repartitioned": lambda probes: probes.repartition(4, "zone").sortWithinPartitions("ts"),
    "scalar_subquery": lambda probes: probes.sparkSession.sql(
        "select zone, celsius - (select max(celsius) from {d}) as below from {d}", d=probes
    ),
    "python_udf": lambda probes: probes.withColumn("next", F.udf(lambda zone: zone + 1, "int")("zone")),
    "pandas_udf": lambda probes: probes.withColumn(
        "next", F.pandas_udf(_next_celsius, "double")("celsius")
    ),
    "map_in_pandas": lambda probes: probes.mapInPandas(lambda parts: parts, probes.schema),
    "apply_in_pandas": lambda probes: probes.groupBy("zone").applyInPandas(lambda part: part, probes.schema),
    "schema_and_drop": lambda probes: probes.drop("tags").withColumnRenamed("name", "label").withColumns({"x": F.lit(1)}),
    "sql_text": lambda probes: probes.selectExpr("zone", "celsius * 1.8 + 32 as fahrenheit").filter("fahrenheit > 100"),
}  # fmt: skip


def _next_celsius(celsius: pd.Series) -> pd.Series:
    return celsius + 1


@pytest.mark.parametrize("name", FINE)
def test_ordinary_pyspark_is_not_refused(name, spark):
    assert checked(named(name, FINE[name]), spark)[0] == []


FOUND = {
    "HF-G020": {
        "rand": lambda probes: probes.withColumn("x", F.rand(7)),
        "uuid": lambda probes: probes.withColumn("x", F.upper(F.uuid())),
        "shuffle": lambda probes: probes.withColumn("x", F.shuffle("tags")),
        "row_ids": lambda probes: probes.withColumn("x", F.monotonically_increasing_id()),
        "partition": lambda probes: probes.where(F.spark_partition_id() == 0),
        "sample": lambda probes: probes.sample(0.5, seed=1),
        "coins": lambda probes: probes.groupBy("zone").agg(F.expr("kll_sketch_agg_bigint(zone)").alias("x")),
        "own_chance": lambda probes: probes.withColumn("x", F.udf(lambda zone: zone, "int").asNondeterministic()("zone")),
        "chance_in_a_subquery": lambda probes: probes.sparkSession.sql("select zone, (select max(r) from (select rand() as r from {d})) as x from {d}", d=probes),
    },
    "HF-G021": {
        "timestamp": lambda probes: probes.where(F.col("ts") > F.current_timestamp()),
        "interval": lambda probes: probes.withColumn("age", F.current_timestamp() - F.col("ts")),
        "date": lambda probes: probes.withColumn("today", F.current_date()),
        "seconds": lambda probes: probes.withColumn("x", F.unix_timestamp()),
        "sql_now": lambda probes: probes.selectExpr("zone", "now() as x"),
    },
    "HF-G022": {
        "last": lambda probes: probes.groupBy("zone").agg(F.last("name").alias("x")),
        "any_value": lambda probes: probes.groupBy("zone").agg(F.any_value("name").alias("x")),
        "list": lambda probes: probes.groupBy("zone").agg(F.collect_list("name").alias("x")),
        "list_carried_on": lambda probes: probes.groupBy("zone").agg(F.collect_list("name").alias("x")).withColumn("y", F.col("x")).drop("x"),
        "list_joined": lambda probes: probes.groupBy("zone").agg(F.array_join(F.collect_set("name"), ",").alias("x")),
        "first_of_list": lambda probes: probes.groupBy("zone").agg(F.collect_list("name").alias("x")).select("zone", F.element_at("x", 1).alias("x")),
        "list_of_window_without_order": lambda probes: probes.withColumn("x", F.collect_list("zone").over(Window.partitionBy("name"))),
        "listagg": lambda probes: probes.groupBy("zone").agg(F.listagg("name", F.lit(",")).alias("x")),
        "mode": lambda probes: probes.groupBy("zone").agg(F.mode("name").alias("x")),
        "limit": lambda probes: probes.limit(10),
        "duplicates_of_some_columns": lambda probes: probes.dropDuplicates(["zone"]),
        "filtered_after_duplicates": lambda probes: probes.dropDuplicates(["zone"]).where("celsius > 3").select("zone"),
        "in_a_union": lambda probes, others: others.union(probes.dropDuplicates(["zone"])),
    },
    "HF-G003": {
        "column": lambda probes: probes.where("celcius > 1"),
        "item": lambda probes: probes.select(probes["celcius"]),
        "attribute": lambda probes: probes.select(probes.celcius),
        "join_column": lambda probes, others: probes.join(others, "zona"),
    },
    "HF-G024": {
        "types": lambda probes: probes.where("tags > 1"),
        "function": lambda probes: probes.select(F.expr("no_such_function(zone)")),
        "ambiguous": lambda probes, others: probes.join(others, "zone").select("celsius"),
        "own": lambda probes: probes.select({}["celsius"]),
    },
    "HF-G025": {
        "rows": lambda probes: [],
        "nothing": lambda probes: None,
    },
    "HF-G027": {
        "pivot": lambda probes: probes.groupBy("zone").pivot("name").agg(F.max("celsius")),
    },
}  # fmt: skip


@pytest.mark.parametrize(("code", "name"), [(code, name) for code, cases in FOUND.items() for name in cases])
def test_what_would_differ_on_replay_or_cannot_be_planned_is_found_once(code, name, spark, capfd):
    assert checked(named(name, FOUND[code][name]), spark)[0] == [code]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("over", ["frame", "stream"])
def test_operators_over_the_stream_are_held_to_the_same_rules(over, spark):
    def marked_rows(probes):
        return probes.withColumn("x", F.rand())

    def plain(probes):
        return probes.where("celsius > 80")

    assert checked(marked_rows, spark, over=over)[0] == ["HF-G020"]
    assert checked(plain, spark, over=over)[0] == []


ADDS_FLOATS = {
    "sum": lambda probes: probes.groupBy("zone").agg(F.sum("celsius").alias("x")),
    "mean": lambda probes: probes.groupBy("zone").agg(F.avg("celsius").alias("x")),
    "spread": lambda probes: probes.groupBy("zone").agg(F.stddev("zone").alias("x")),
    "in_window": lambda probes: probes.withColumn("x", F.sum("celsius").over(Window.partitionBy("zone"))),
}


@pytest.mark.parametrize("name", ADDS_FLOATS)
def test_float_sums_are_pinned_or_refused(name, spark):
    """Without chunks= the engine pins them; with chunks= it could not, unless approximate is good enough."""
    function = named(name, ADDS_FLOATS[name])
    assert checked(function, spark) == ([], True)
    assert checked(function, spark, chunks=4) == (["HF-G023"], True)
    assert checked(function, spark, chunks=1) == ([], True)


def test_exact_sums_are_not_pinned(spark):
    def exact(probes):
        return probes.groupBy("zone").agg(
            F.sum(F.col("celsius").cast("decimal(12,3)")).alias("x"), F.sum("zone").alias("y")
        )

    assert checked(exact, spark, chunks=4) == ([], False)


def test_what_sees_rows_in_python_is_pinned(spark):
    """A function over a group may look at the order of its rows, which depends on the chunks."""
    assert checked(named("apply_in_pandas", FINE["apply_in_pandas"]), spark) == ([], True)
    assert checked(named("python_udf", FINE["python_udf"]), spark) == ([], False)
