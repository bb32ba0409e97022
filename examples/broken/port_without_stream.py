"""Port 'probe' reads a stream that is not there: it is called 'probes'."""

import holdfast as hf

p = hf.StreamProcess("port_without_stream", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame")  # HF-G001
def hot(probe):
    return probe.where("celsius > 80")


p.sink("hot", hf.write.console())
