"""One operator on two hosts: it can live on one only."""

import holdfast as hf

p = hf.StreamProcess("placed_twice", frame="1 second", time="ts", hosts=("a", "b"))
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")
p.filter("hot", of="probes", where="celsius > 40")
p.place("a", "hot")
p.place("b", "hot")  # HF-G033
p.sink("hot", hf.write.console())
p.protect(hf.ecoc(every=hf.frames(10)))
