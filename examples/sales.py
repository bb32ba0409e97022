"""sales.py: sales per shop and minute. Lines marked + are new; all others are the old job's.

Needs ORDERS (a folder of JSON files; the old job may read Kafka here, any Spark stream
will do) and PG_URL (a database with a table sales: shop, minute, amount, unique by the
first two). How to move a job: docs/howto/plain-jobs.md.
"""

import os

import psycopg
from pyspark.sql import functions as F

import holdfast as hf  # +

SCHEMA = "shop string, ts timestamp, amount decimal(12,2)"
sales = hf.StreamProcess("sales", frame="1 second", time=hf.ARRIVAL)  # + was: trigger(processingTime="1 second")


@sales.source(keep="1 day")  # +
def orders(spark):  # +
    return spark.readStream.schema(SCHEMA).json(os.environ["ORDERS"])


@sales.operator(over="stream", mode="update")  # + was: outputMode("update")
def per_minute(orders):  # +
    return (
        orders.withWatermark("ts", "2 minutes")
        .groupBy(F.window("ts", "1 minute"), "shop")
        .agg(F.sum("amount").alias("amount"))
        .select("shop", F.col("window.start").alias("minute"), "amount")
    )


def upsert(df, batch_id):  # unchanged; batch_id is the frame, for ever
    rows = [tuple(row) for row in df.collect()]
    with psycopg.connect(os.environ["PG_URL"]) as pg, pg.cursor() as cursor:
        cursor.executemany(
            "insert into sales values (%s, %s, %s) on conflict (shop, minute) do update set amount = excluded.amount",
            rows,
        )


sales.sink("per_minute", hf.write.foreach_batch(upsert), promise=hf.lossless)  # + was: foreachBatch, checkpointLocation

if __name__ == "__main__":
    sales.run()  # + was: start().awaitTermination()
