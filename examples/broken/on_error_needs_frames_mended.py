"""Without on_error: a row on which it raises gives the unit up, and nothing is lost."""

from pyspark.sql import functions as F

import holdfast as hf

p = hf.StreamProcess("on_error_needs_frames", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="stream", mode="update")
def hottest(probes):
    return probes.groupBy("zone").agg(F.max("celsius").alias("celsius"))


p.sink("hottest", hf.write.console())
