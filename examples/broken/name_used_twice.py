"""Two operators are called 'hot'."""

import holdfast as hf

p = hf.StreamProcess("name_used_twice", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.filter("hot", of="probes", where="celsius > 80")
p.filter("hot", of="probes", where="celsius > 90")  # HF-G006
p.sink("hot", hf.write.console())
