"""inputs= names a parameter of the function."""

import holdfast as hf

p = hf.StreamProcess("unknown_port", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame", inputs={"readings": "probes"})
def hot(readings):
    return readings.where("celsius > 80")


p.sink("hot", hf.write.console())
