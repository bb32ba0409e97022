"""The port has the stream's name."""

import holdfast as hf

p = hf.StreamProcess("port_without_stream", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")
def hot(probes):
    return probes.where("celsius > 80")


p.sink("hot", hf.write.console())
