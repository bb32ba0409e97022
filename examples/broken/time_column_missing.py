"""The process is cut by column 'time'; the source calls it 'ts'."""

import holdfast as hf

p = hf.StreamProcess("time_column_missing", frame="1 second", time="time")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int")  # HF-G011
p.filter("first", of="probes", where="zone = 1")
p.sink("first", hf.write.console())
