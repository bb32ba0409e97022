"""A float sum over frames read in four chunks depends on which chunk is added first. Seen by `check` with types."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("float_sum_unpinned", frame="1 second", time="ts", chunks=4)
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")  # HF-G023
def total(probes: DataFrame) -> DataFrame:
    return probes.groupBy("zone").agg(F.sum("celsius").alias("total"))


p.sink("total", hf.write.console())
