"""The feedback edge has no schema, and frame 1 needs one."""

import holdfast as hf

p = hf.StreamProcess("feedback_without_schema", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame", inputs={"last": hf.feedback("average")})  # HF-G008
def damped(probes, last):
    return probes.join(last, "zone", "left").where("mean is null or mean < 80").select("ts", "zone", "celsius")


p.aggregate("average", of="damped", by="zone", window="10 seconds", emits={"mean": "avg(celsius)"})
p.sink("damped", hf.write.console())
