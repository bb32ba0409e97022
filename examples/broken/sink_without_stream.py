"""The sink writes 'hott', which nobody makes."""

import holdfast as hf

p = hf.StreamProcess("sink_without_stream", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.filter("hot", of="probes", where="celsius > 80")
p.sink("hott", hf.write.console())  # HF-G014
