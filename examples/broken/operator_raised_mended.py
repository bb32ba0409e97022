"""The function can be called on an empty DataFrame."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("operator_raised", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def marked(probes: DataFrame) -> DataFrame:
    names = {"zone": "place"}
    return probes.withColumnRenamed("zone", names["zone"])


p.sink("marked", hf.write.console())
