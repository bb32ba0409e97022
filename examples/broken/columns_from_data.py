"""pivot() without values looks into the data for its columns; a stream has one schema. Seen by `check` with types."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("columns_from_data", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")  # HF-G027
def wide(probes: DataFrame) -> DataFrame:
    return probes.groupBy("ts").pivot("zone").agg(F.max("celsius"))


p.sink("wide", hf.write.console())
