"""A process with a source and no operator."""

import holdfast as hf

p = hf.StreamProcess("nothing_runs", frame="1 second", time="ts")  # HF-G019
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")
p.disable("probes")
