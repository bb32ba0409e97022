"""Plain ecoc on a cycle: each operator would wait for the other's acknowledgement for ever."""

import holdfast as hf

p = hf.StreamProcess("plain_ecoc_on_cycle", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")


@p.operator(over="frame", inputs={"last": hf.feedback("average", schema="zone int, mean double")})  # HF-G016
def damped(probes, last):
    return probes.join(last, "zone", "left").where("mean is null or mean < 80").select("ts", "zone", "celsius")


p.aggregate("average", of="damped", by="zone", window="10 seconds", emits={"mean": "avg(celsius)"})
p.sink("damped", hf.write.console())
p.protect(hf.ecoc(every=hf.frames(10)))
