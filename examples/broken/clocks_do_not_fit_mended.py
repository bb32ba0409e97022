"""The window is a whole number of frames."""

import holdfast as hf

p = hf.StreamProcess("clocks_do_not_fit", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.aggregate("average", of="probes", by="zone", window="3 seconds", emits={"mean": "avg(celsius)"})
p.sink("average", hf.write.console())
