"""What an operator may not do to others: the part of `check` that looks at what its call leaves behind.

A function is called on DataFrames without rows (`engine.check.types`). What it cached over them
is dropped; a view that all sessions see is a finding, since two units may make one of the
same name; so is a Spark setting that a query cannot have for itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.engine.session import spark_settings as settings
from holdfast.engine.unit.building import Caches
from holdfast.errors import Finding
from holdfast.graph.model import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["alone", "settings_of"]

_NOTHING = "nothing was started, nothing was read"
# Frames come out the same with any number; it is slower or quicker, and that is the user's to say.
_FREE = frozenset({"spark.sql.shuffle.partitions"})
_KEPT = {
    setting.key: setting.why for setting in settings.SETTINGS if setting.kind == "safe" and setting.key not in _FREE
}


@contextlib.contextmanager
def alone(operator: Operator, spark: SparkSession, dfs: list[DataFrame]) -> Iterator[list[Finding]]:
    """The function is called inside; the list is filled afterwards."""
    findings: list[Finding] = []
    before, caches = _global_views(spark), Caches(spark)
    known = {each.identity for each in caches.entries()}
    try:
        yield findings
    finally:
        for df in dfs:
            caches.drop_below(df)
        caches.drop(each for each in caches.entries() if each.is_over_rdd and each.identity not in known)
    for name in sorted(_global_views(spark) - before):
        findings.append(_global_view(operator, name))
        spark.catalog.dropGlobalTempView(name)


def _global_views(spark: SparkSession) -> set[str]:
    names = spark._jsparkSession.sharedState().globalTempViewManager().listViewNames("*")
    return {names.apply(at) for at in range(names.size())}


def settings_of(operator: Operator, spark: SparkSession) -> list[Finding]:
    """`spark_conf=` of an operator holds for the query of its unit, as far as a query can have it."""
    findings = []
    for key, value in sorted(operator.spark_conf.items()):
        if key in _KEPT:
            why = f"Holdfast sets it itself: {_KEPT[key]}"
            findings.append(_setting(operator, key, value, why, "leave it out of spark_conf="))
        elif not spark.conf.isModifiable(key):
            why = "Spark reads it when the session starts, for all queries in it"
            findings.append(
                _setting(
                    operator, key, value, why, f"hand in a session that has it: run(spark=...); or leave {key} out"
                )
            )
    return findings


def _setting(operator: Operator, key: str, value: str, why: str, do: str) -> Finding:
    return Finding(
        "HF-G042", "SettingNotForAQuery", f"operator {operator.name!r} cannot have {key}={value}.",
        where=f"{operator.line}, operator {operator.name!r}",
        why=why,
        effect=_NOTHING,
        do=do,
    )  # fmt: skip


def _global_view(operator: Operator, name: str) -> Finding:
    return Finding(
        "HF-G041", "ViewForAll", f"operator {operator.name!r} makes a view that all units see: global_temp.{name}.",
        where=f"{operator.line}, operator {operator.name!r}",
        why="units plan their frames at the same time: one that makes a view of that name would be answered by another's",
        effect=_NOTHING,
        do="make it with createOrReplaceTempView and ask df.sparkSession: every unit has a session of its own",
    )  # fmt: skip
