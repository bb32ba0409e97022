"""ward.py: alarm when a heart runs fast and the patient is not moving.

Three minutes of three beds, from files (ward_data/README.md: real recordings, and what was
shifted or repeated). The hearts beat at about 75 a minute; a premature beat shows as one
short interval. Of the six that are faster than 100 a minute, two fall while bed 2 moves:

    holdfast run ward.py --rate fast && sqlite3 ward.db "select * from alarms"

gives four alarms. For one patient alone, while it runs: holdfast set ward.py pulse_max=85 --for bed_3
"""
import pandas as pd
from pyspark.sql import DataFrame, functions as F
import holdfast as hf

ward = hf.StreamProcess("ward_4", frame="5 seconds", time="ts")
ward.param("pulse_max", 100.0, per="patient", between=(40, 220), doc="beats a minute that raise an alarm")

ward.source("ecg", hf.read.files("ward_data/ecg.parquet", rate="as recorded"),
            schema="patient string, ts timestamp, mv double", late="quarantine")
ward.source("acc", hf.read.files("ward_data/acc.parquet", rate="as recorded"),
            schema="patient string, ts timestamp, g double", late="drop")

@ward.operator(over="frame")                      # the frame is a plain DataFrame: all of SQL works
def motion(acc: DataFrame) -> DataFrame:
    return acc.groupBy("patient").agg(F.stddev("g").alias("shake"))

@ward.keyed("patient", state="last_mv double, last_beat timestamp",
            emits="patient string, ts timestamp, bpm double", protect=hf.ecoc(every="30 seconds"))
def pulse(state: pd.DataFrame, ecg: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All patients of the frame at once; state has a row for each one seen before."""
    x = ecg.merge(state, on="patient", how="left")
    before = x.groupby("patient").mv.shift().fillna(x.last_mv)
    beat = x[(before < 0.6) & (x.mv >= 0.6)]      # only the R wave of this lead rises above 0.6 mV
    since = beat.groupby("patient").ts.shift().fillna(beat.last_beat)
    out = beat.assign(bpm=60 / (beat.ts - since).dt.total_seconds()).dropna(subset="bpm")
    after = x.groupby("patient").agg(last_mv=("mv", "last"), last_beat=("last_beat", "last"))
    after["last_beat"] = beat.groupby("patient").ts.last().combine_first(after.last_beat)
    return after.reset_index(), out[["patient", "ts", "bpm"]]

@ward.operator(over="frame", delay_max="5 seconds")
def alarms(pulse: DataFrame, motion: DataFrame, *, pulse_max) -> DataFrame:
    calm = F.coalesce("shake", F.lit(0.0)) < 0.3  # positional = streams, keyword-only = parameters
    return pulse.join(motion, "patient", "left").where(calm & (F.col("bpm") > pulse_max)).select("patient", "ts", "bpm")

ward.sink("alarms", hf.write.sqlite("ward.db", "alarms", keys=["patient", "ts"]),
          promise=[hf.lossless, hf.within("15 seconds"), hf.in_order])
ward.sink("pulse", hf.write.sqlite("ward.db", "pulse", keys=["patient", "ts"]))

if __name__ == "__main__":
    ward.run()
