"""The element's own time."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("reads_clock", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def marked(probes: DataFrame) -> DataFrame:
    return probes.withColumn("minute", F.date_trunc("minute", "ts"))


p.sink("marked", hf.write.console())
