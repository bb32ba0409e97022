"""A Spark column at module level needs a session that is not there yet."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

HOT = F.col("celsius") > 80  # HF-G026
p = hf.StreamProcess("session_needed_at_import", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def hot(probes: DataFrame) -> DataFrame:
    return probes.where(HOT)


p.sink("hot", hf.write.console())
