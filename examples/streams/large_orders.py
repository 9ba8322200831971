"""Filter and map: orders above an amount, with a price that has the tax in it, to a topic of their own.

python examples/streams/large_orders.py localhost:9092 /tmp/checkpoints
"""

import sys

from pyspark.sql import functions as F  # noqa: N812

from ottla.pipelines.streams import Streams


def build(streams: Streams) -> None:
    orders = streams.read("orders", "order_id LONG, customer STRING, amount DOUBLE")
    large = orders.where("amount >= 100").select(
        "order_id", "customer", F.round(F.col("amount") * 1.25, 2).alias("with_tax")
    )
    streams.write(large, "large-orders", key="customer")


if __name__ == "__main__":
    streams = Streams(sys.argv[1], "large-orders", sys.argv[2])
    build(streams)
    streams.wait()
