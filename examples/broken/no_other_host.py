"""One host, and every checkpoint has a copy on another one: there is none."""

import holdfast as hf

p = hf.StreamProcess("no_other_host", frame="1 second", time="ts", hosts=("a",))  # HF-G029
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")
p.filter("hot", of="probes", where="celsius > 40")
p.sink("hot", hf.write.console())
p.protect(hf.ecoc(every=hf.frames(10)))
