"""ward_live.py: the ward of ward.py, from a broker into a database.

Every element has a serial number, so one that a device sends again counts once. `boundary="hold"`: only the
devices' own clocks close a frame, so a broker that is away for a while changes nothing but the hour.

    MQTT=mqtt://127.0.0.1:1883 PG_URL=postgresql://... holdfast run ward_live.py
"""

import os

from ward import alarms, motion, oxygen

import holdfast as hf
from holdfast.apps.telemonitoring.operators import BEATS, CLEAN, beats, clean
from holdfast.apps.telemonitoring.rhythm import RHYTHM, rhythm

live = hf.StreamProcess("ward_live", frame="5 seconds", time="ts", grace="2 seconds")
live.param("pulse_max", 105.0, per="patient", between=(40, 220))
live.param("oxygen_min", 94.0, per="patient", between=(50, 100))
live.param("pressure_max", 150.0, per="patient", between=(80, 250))

for name, topic, columns in (
    ("ecg", "{patient}/ecg/{lead}", "patient string, lead string, ts timestamp, mv double"),
    ("acc", "{patient}/acc", "patient string, ts timestamp, g double"),
    ("light", "{patient}/light", "patient string, ts timestamp, a double, b double"),
    (
        "pressure_generated",
        "{patient}/pressure_generated",
        "patient string, ts timestamp, systolic double, diastolic double",
    ),
):
    reader = hf.read.mqtt(f"{os.environ.get('MQTT', 'mqtt://127.0.0.1:1883')}/ward4/{topic}", id="serial")
    live.source(name, reader, schema=f"{columns}, serial bigint", boundary="hold")

live.keyed("patient", "lead", **CLEAN)(clean)
live.keyed("patient", "lead", **BEATS)(beats)
live.operator(over="frame")(motion)
live.keyed("patient", **RHYTHM)(rhythm)
live.operator(over="frame")(oxygen)
live.operator(over="frame")(alarms)

live.sink(
    "alarms", hf.write.postgres(hf.secret("PG_URL"), "alarms", keys=["patient", "kind", "ts"]), promise=hf.lossless
)
for name in ("rhythm", "oxygen", "motion"):
    live.sink(name, hf.write.postgres(hf.secret("PG_URL"), name, keys=["patient", "ts"]))
live.sink("clean", hf.write.parquet("record"))  # the record store
