"""The values are named, so the columns are known before the first frame."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("columns_from_data", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def wide(probes: DataFrame) -> DataFrame:
    return probes.groupBy("ts").pivot("zone", [1, 2, 3]).agg(F.max("celsius"))


p.sink("wide", hf.write.console())
