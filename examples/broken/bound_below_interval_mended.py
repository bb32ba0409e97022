"""The promise leaves room for the frame."""

import holdfast as hf

p = hf.StreamProcess("bound_below_interval", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.filter("hot", of="probes", where="celsius > 80")
p.sink("hot", hf.write.console(), promise=hf.within("2 seconds"))
