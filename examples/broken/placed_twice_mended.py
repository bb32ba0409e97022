"""Placed once."""

import holdfast as hf

p = hf.StreamProcess("placed_twice", frame="1 second", time="ts", hosts=("a", "b"))
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")
p.filter("hot", of="probes", where="celsius > 40")
p.place("a", "hot")
p.sink("hot", hf.write.console())
p.protect(hf.ecoc(every=hf.frames(10)))
