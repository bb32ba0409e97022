"""The time column is one of the source's."""

import holdfast as hf

p = hf.StreamProcess("time_column_missing", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int")
p.filter("first", of="probes", where="zone = 1")
p.sink("first", hf.write.console())
