"""first() takes whichever row comes first, and no order is promised. Seen by `check` with types."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("order_dependent", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")  # HF-G022
def marked(probes: DataFrame) -> DataFrame:
    return probes.groupBy("zone").agg(F.first("celsius").alias("celsius"))


p.sink("marked", hf.write.console())
