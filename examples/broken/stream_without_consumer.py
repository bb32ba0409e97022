"""Nobody reads port 'cold' of the split."""

import holdfast as hf

p = hf.StreamProcess("stream_without_consumer", frame="1 second", time="ts")
p.source("probes", hf.read.files("../probes/*.parquet"), schema="ts timestamp, zone int, celsius double")

p.split("parts", of="probes", emits={"hot": "celsius > 80", "cold": "celsius <= 80"})  # HF-G002
p.sink("parts.hot", hf.write.console())
