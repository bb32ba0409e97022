"""Without chunks= the sum is pinned to one chunk and one partition."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("float_sum_unpinned", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def total(probes: DataFrame) -> DataFrame:
    return probes.groupBy("zone").agg(F.sum("celsius").alias("total"))


p.sink("total", hf.write.console())
