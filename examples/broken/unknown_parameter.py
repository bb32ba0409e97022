"""The operator takes 'limt'; the parameter is called 'limit'."""

import holdfast as hf

p = hf.StreamProcess("unknown_parameter", frame="1 second", time="ts")
p.param("limit", 80.0, between=(20, 120))
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")  # HF-G012
def hot(probes, *, limt):
    return probes.where(probes.celsius > limt)


p.sink("hot", hf.write.console())
