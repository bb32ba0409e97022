"""The parameter is declared under that name."""

import holdfast as hf

p = hf.StreamProcess("unknown_parameter", frame="1 second", time="ts")
p.param("limit", 80.0, between=(20, 120))
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def hot(probes, *, limit):
    return probes.where(probes.celsius > limit)


p.sink("hot", hf.write.console())
