"""The topic `orders` into a table, and the large ones of them into the topic `large-orders`."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

BOOTSTRAP = os.environ.get("OTTLA_BOOTSTRAP", "localhost:9092")
SCHEMA = "order_id LONG, customer STRING, amount DOUBLE"

dp.create_sink(
    "large_orders",
    "ottla",
    {
        "kafka.bootstrap.servers": BOOTSTRAP,
        "topic": "large-orders",
        # To send everything again after --full-refresh-all, raise it by one.
        "generation": os.environ.get("ORDERS_GENERATION", "0"),
    },
)


def read_orders() -> DataFrame:
    reader = SparkSession.active().readStream.format("ottla").option("kafka.bootstrap.servers", BOOTSTRAP)
    records = reader.option("subscribe", "orders").option("startingOffsets", "earliest").load()
    return records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order")).select("order.*")


@dp.table
def orders() -> DataFrame:
    return read_orders()


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    large = read_orders().where("amount >= 100")
    return large.select(F.to_json(F.struct("*")).alias("value"), F.col("customer").alias("key"))
