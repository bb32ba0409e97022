"""The default lies in the range."""

import holdfast as hf

p = hf.StreamProcess("parameter_out_of_range", frame="1 second", time="ts")
p.param("limit", 20, between=(20, 120))
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def hot(probes, *, limit):
    return probes.where(probes.celsius > limit)


p.sink("hot", hf.write.console())
