"""The function returns rows instead of a DataFrame. Seen by `check` with types."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("no_data_frame", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")  # HF-G025
def marked(probes: DataFrame) -> DataFrame:
    return probes.where("celsius > 80").collect()


p.sink("marked", hf.write.console())
