"""The delay allowed is at least the delay needed."""

import holdfast as hf

p = hf.StreamProcess("delay_below_minimum", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame", delay_min="300 ms", delay_max="300 ms")
def hot(probes):
    return probes.where("celsius > 80")


p.sink("hot", hf.write.console())
