"""kiln.py: a zone's readings are damped while its ten-second mean runs hot."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")
kiln.param("limit", 80.0, between=(20, 120), doc="mean above which a zone is damped, degrees C")
kiln.param("gain", 0.5, between=(0, 1), doc="what is left of a reading when damped")

kiln.source(
    "probes",
    hf.read.files("probes/*.parquet", rate="as recorded"),
    schema="ts timestamp, zone int, celsius double",
    late="admit",
)


@kiln.operator(over="frame", inputs={"last": hf.feedback("average", schema="zone int, mean double")})
def damped(probes: DataFrame, last: DataFrame, *, limit, gain) -> DataFrame:
    """`last` is the average of the frame before; in frame 1 it has columns and no rows."""
    hot = F.coalesce(F.col("mean") > limit, F.lit(False))
    celsius = F.when(hot, F.col("celsius") * gain).otherwise(F.col("celsius"))
    return probes.join(last, "zone", "left").select("ts", "zone", celsius.alias("celsius"))


kiln.aggregate("average", of="damped", by="zone", window="10 seconds", every="1 second", emits={"mean": "avg(celsius)"})

kiln.sink("damped", hf.write.duckdb("kiln.duckdb", "damped", keys=["zone", "ts"]), promise=[hf.lossless, hf.in_order])
kiln.protect(hf.ecoc(every=hf.frames(10), extended=True))  # plain ecoc is refused on a cycle

if __name__ == "__main__":
    with kiln.start() as run:  # the shell has the same: holdfast run, holdfast set
        run.wait(frame=60)
        change = run.set(limit=75.0, note="night shift")  # checked against `between`, logged, replayed
        print(f"limit is 75 from frame {change.frame} on")
        run.wait()
