"""One source is cut by a column, the other by arrival: frame 7 means two things."""

import holdfast as hf

p = hf.StreamProcess("clocks_of_two_kinds", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.source("doors", hf.read.iterator(list), schema="ts timestamp, zone int, open boolean", time=hf.ARRIVAL)  # HF-G009
p.join("seen", left="probes", right="doors", on="zone", within="1 second")
p.sink("seen", hf.write.console())
