"""The feedback edge declares 'mean float'; the aggregate emits double."""

import holdfast as hf

p = hf.StreamProcess("feedback_types_differ", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame", inputs={"last": hf.feedback("average", schema="zone int, mean float")})  # HF-G003
def damped(probes, last):
    return probes.join(last, "zone", "left").where("mean is null or mean < 80").select("ts", "zone", "celsius")


p.aggregate("average", of="damped", by="zone", window="10 seconds", every="1 second", emits={"mean": "avg(celsius)"})
p.sink("damped", hf.write.console())
