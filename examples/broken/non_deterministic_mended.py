"""A hash of the element's own columns is as good as chance, and the same each time."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("non_deterministic", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def marked(probes: DataFrame) -> DataFrame:
    return probes.withColumn("draw", F.xxhash64("ts", "zone"))


p.sink("marked", hf.write.console())
