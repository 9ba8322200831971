"""Window and aggregate: how much each product sold in each minute, by the time of the sale.

A minute is written when no sale can come that belongs to it: when one has come that is ten seconds later.

    python examples/streams/sales_by_minute.py localhost:9092 /tmp/checkpoints
"""

import sys

from pyspark.sql import functions as F  # noqa: N812

from ottla.pipelines.streams import Streams


def build(streams: Streams) -> None:
    sales = streams.read("sales", "product STRING, amount DOUBLE, sold_at TIMESTAMP").withWatermark(
        "sold_at", "10 seconds"
    )
    minutes = sales.groupBy(F.window("sold_at", "1 minute"), "product").agg(
        F.count("*").alias("sales"), F.sum("amount").alias("amount")
    )
    streams.write(
        minutes.select("product", F.col("window.start").alias("minute"), "sales", "amount"),
        "sales-by-minute",
        key="product",
    )


if __name__ == "__main__":
    streams = Streams(sys.argv[1], "sales-by-minute", sys.argv[2])
    build(streams)
    streams.wait()
