"""A protection is given to 'averages', which is not declared."""

import holdfast as hf

p = hf.StreamProcess("unknown_operator", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.aggregate("average", of="probes", by="zone", window="10 seconds", emits={"mean": "avg(celsius)"})
p.sink("average", hf.write.console())
p.protect(hf.snapshot(every="5 seconds"), "averages")  # HF-G017
