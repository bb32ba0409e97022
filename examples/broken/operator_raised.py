"""The function raises while it is planned. Seen by `check` with types."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("operator_raised", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")  # HF-G024
def marked(probes: DataFrame) -> DataFrame:
    names = {"zone": "place"}
    return probes.withColumnRenamed("zone", names["zona"])


p.sink("marked", hf.write.console())
