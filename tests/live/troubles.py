"""troubles.py: readings over TCP into a database that may be away, and into a file beside it."""

import os

import holdfast as hf

troubles = hf.StreamProcess("troubles", frame="1 second", time="ts", state="state")
troubles.source(
    "probes",
    hf.read.lines(f"tcp://127.0.0.1:{os.environ['PROBES_PORT']}"),
    schema="ts timestamp, zone int, celsius double",
    boundary="hold",
)
troubles.filter("hot", of="probes", where="celsius >= 60")
troubles.sink("hot", hf.write.postgres(hf.secret("PG_URL"), "hot"), promise=hf.lossless)
troubles.sink("hot", hf.write.sqlite("hot.db", "hot"), name="beside")
