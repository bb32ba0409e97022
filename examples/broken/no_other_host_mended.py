"""A second host: each keeps the copies of the other."""

import holdfast as hf

p = hf.StreamProcess("no_other_host", frame="1 second", time="ts", hosts=("a", "b"))
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")
p.filter("hot", of="probes", where="celsius > 40")
p.sink("hot", hf.write.console())
p.protect(hf.ecoc(every=hf.frames(10)))
