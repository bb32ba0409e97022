"""ward.py: three beds, their hearts, oxygen and pressure; alarms that know whether a patient moves.

Three minutes from files (ward_data/README.md: real recordings, and what was repeated or made up):
    holdfast run ward.py --rate fast && sqlite3 ward.db "select * from alarms"
For one patient alone, while it runs: holdfast set ward.py pulse_max=85 --for bed_3
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.apps.telemonitoring.operators import BEATS, CLEAN, beats, clean
from holdfast.apps.telemonitoring.rhythm import RHYTHM, rhythm

ward = hf.StreamProcess("ward_4", frame="5 seconds", time="ts")
ward.param("pulse_max", 105.0, per="patient", between=(40, 220), doc="beats a minute that raise an alarm")
ward.param("oxygen_min", 94.0, per="patient", between=(50, 100), doc="percent below which an alarm is raised")
ward.param("pressure_max", 150.0, per="patient", between=(80, 250), doc="systolic mmHg that raise an alarm")

for name, columns in {
    "ecg": "patient string, lead string, ts timestamp, mv double",
    "acc": "patient string, ts timestamp, g double",
    "light": "patient string, ts timestamp, a double, b double",  # of a finger clip, two colours
    "pressure_generated": "patient string, ts timestamp, systolic double, diastolic double",
}.items():
    ward.source(name, hf.read.files(f"ward_data/{name}.parquet", rate="as recorded"), schema=columns, late="quarantine")

ward.keyed("patient", "lead", **CLEAN)(clean)  # ecg -> noise filter
ward.keyed("patient", "lead", **BEATS, protect=hf.ecoc(every="30 seconds"))(beats)


@ward.operator(over="frame")  # the frame is a plain DataFrame: all of SQL works
def motion(acc: DataFrame) -> DataFrame:
    second = F.date_trunc("second", "ts").alias("ts")
    return acc.groupBy("patient", second).agg((F.stddev("g") > 0.1).alias("moving"))


ward.keyed("patient", **RHYTHM)(rhythm)  # beats + motion -> rate, variability


@ward.operator(over="frame")
def oxygen(light: DataFrame) -> DataFrame:
    """How much each colour pulses, against its mean; the scale is a guess (ward_data/README.md)."""
    before = Window.partitionBy("patient").orderBy("ts")
    steps = light.withColumns({f"{c}_step": F.col(c) - F.lag(c, 3).over(before) for c in "ab"})
    pulse = lambda c: F.stddev(f"{c}_step") / F.avg(c)
    ratio = steps.groupBy("patient").agg(F.max("ts").alias("ts"), (pulse("a") / pulse("b")).alias("ratio"))
    return ratio.select("patient", "ts", F.least(F.lit(100.0), 110 - 17 * F.col("ratio")).alias("percent"))


@ward.operator(over="frame", delay_max="5 seconds")
def alarms(
    rhythm: DataFrame, oxygen: DataFrame, pressure_generated: DataFrame, *, pulse_max, oxygen_min, pressure_max
) -> DataFrame:
    """Positional = streams, keyword-only = parameters. The first of each kind per bed and frame."""
    is_high, is_low = F.col("value") > F.col("limit"), F.col("value") < F.col("limit")
    watch = lambda df, kind, value, limit: df.select(
        "patient", "ts", F.lit(kind).alias("kind"), value.alias("value"), limit.alias("limit")
    )
    pulse = watch(rhythm.where(~F.col("moving")), "pulse", F.col("bpm"), pulse_max).where(is_high)
    low = watch(oxygen, "oxygen", F.col("percent"), oxygen_min).where(is_low)
    pressure = watch(pressure_generated, "pressure", F.col("systolic"), pressure_max).where(is_high)
    return (
        pulse.union(low)
        .union(pressure)
        .groupBy("patient", "kind")
        .agg(F.min("ts").alias("ts"), F.min_by("value", "ts").alias("value"), F.min_by("limit", "ts").alias("limit"))
    )


ward.sink(
    "alarms",
    hf.write.sqlite("ward.db", "alarms", keys=["patient", "kind", "ts"]),
    promise=[hf.lossless, hf.within("15 seconds"), hf.in_order],
)
for name in ("rhythm", "oxygen", "motion"):
    ward.sink(name, hf.write.sqlite("ward.db", name, keys=["patient", "ts"]))
ward.sink("clean", hf.write.parquet("record"))  # the record store

if __name__ == "__main__":
    ward.run()
