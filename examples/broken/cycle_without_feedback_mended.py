"""The edge that goes back reads the frame before."""

import holdfast as hf

p = hf.StreamProcess("cycle_without_feedback", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame", inputs={"last": hf.feedback("average", schema="zone int, mean double")})
def damped(probes, last):
    return probes.join(last, "zone", "left").where("mean is null or mean < 80").select("ts", "zone", "celsius")


p.aggregate("average", of="damped", by="zone", window="10 seconds", emits={"mean": "avg(celsius)"})
p.sink("damped", hf.write.console())
