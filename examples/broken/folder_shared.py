"""Two hosts in one folder: who loses the one loses the other, and the copies with them."""

import holdfast as hf

p = hf.StreamProcess("folder_shared", frame="1 second", time="ts", hosts={"a": "/disk1", "b": "/disk1"})  # HF-G032
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")
p.filter("hot", of="probes", where="celsius > 40")
p.sink("hot", hf.write.console())
p.protect(hf.ecoc(every=hf.frames(10)))
