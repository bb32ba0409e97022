"""Each host has a folder of its own."""

import holdfast as hf

p = hf.StreamProcess("folder_shared", frame="1 second", time="ts", hosts={"a": "/disk1", "b": "/disk2"})
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")
p.filter("hot", of="probes", where="celsius > 40")
p.sink("hot", hf.write.console())
p.protect(hf.ecoc(every=hf.frames(10)))
