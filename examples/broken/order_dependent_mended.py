"""The value of the earliest element."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("order_dependent", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def marked(probes: DataFrame) -> DataFrame:
    return probes.groupBy("zone").agg(F.min_by("celsius", "ts").alias("celsius"))


p.sink("marked", hf.write.console())
