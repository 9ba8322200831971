"""Join: orders and their payments, which may come up to an hour later, as one record.

python examples/streams/paid_orders.py localhost:9092 /tmp/checkpoints
"""

import sys

from pyspark.sql import functions as F  # noqa: N812

from ottla.pipelines.streams import Streams


def build(streams: Streams) -> None:
    orders = streams.read("orders", "order_id LONG, customer STRING, amount DOUBLE, ordered_at TIMESTAMP")
    payments = streams.read("payments", "paid_order LONG, method STRING, paid_at TIMESTAMP")
    paid = orders.withWatermark("ordered_at", "1 hour").join(
        payments.withWatermark("paid_at", "10 minutes"),
        F.expr("order_id = paid_order AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"),
    )
    streams.write(paid.select("order_id", "customer", "amount", "method", "paid_at"), "paid-orders", key="order_id")


if __name__ == "__main__":
    streams = Streams(sys.argv[1], "paid-orders", sys.argv[2])
    build(streams)
    streams.wait()
