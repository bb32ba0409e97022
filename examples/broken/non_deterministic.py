"""rand() gives other numbers when the frame is replayed. Seen by `check` with types."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("non_deterministic", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")  # HF-G020
def marked(probes: DataFrame) -> DataFrame:
    return probes.withColumn("draw", F.rand())


p.sink("marked", hf.write.console())
