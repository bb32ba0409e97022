"""The aggregate groups by 'zona'; the stream has 'zone'."""

import holdfast as hf

p = hf.StreamProcess("key_column_missing", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.aggregate("average", of="probes", by="zona", window="10 seconds", emits={"mean": "avg(celsius)"})  # HF-G010
p.sink("average", hf.write.console())
