"""The column the stream has."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("port_types_differ", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def hot(probes: DataFrame) -> DataFrame:
    return probes.where(F.col("celsius") > 80)


p.sink("hot", hf.write.console())
