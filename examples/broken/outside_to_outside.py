"""A source is written to a sink as it came."""

import holdfast as hf

p = hf.StreamProcess("outside_to_outside", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.filter("hot", of="probes", where="celsius > 80")
p.sink("hot", hf.write.console())
p.sink("probes", hf.write.parquet("kept"))  # HF-G004
