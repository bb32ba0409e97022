"""A window of 2.5 s over frames of 1 s ends inside a frame."""

import holdfast as hf

p = hf.StreamProcess("clocks_do_not_fit", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.aggregate("average", of="probes", by="zone", window="2500 ms", emits={"mean": "avg(celsius)"})  # HF-G009
p.sink("average", hf.write.console())
