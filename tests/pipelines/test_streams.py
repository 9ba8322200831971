"""The worked examples of Streams, run against a broker; and again on what is there already."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.streams import large_orders, paid_orders, sales_by_minute
from ottla.client import LATEST, NewRecord, Producer, Reader
from ottla.pipelines.streams import Streams
from ottla.testing import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send(broker: LocalBroker, topic: str, *values: dict[str, Any]) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_many(topic, [NewRecord(json.dumps(value).encode()) for value in values])


def received(broker: LocalBroker, topic: str) -> list[tuple[str, dict[str, Any]]]:
    with Reader(broker.bootstrap, topic, end=LATEST) as reader:
        records = [record for fetched in reader for record in fetched.records]
    found = [((record.key or b"").decode(), json.loads(record.value or b"")) for record in records]
    return sorted(found, key=str)


def streams(spark: "SparkSession", broker: LocalBroker, folder: Path, name: str) -> Streams:
    return Streams(broker.bootstrap, name, str(folder), spark=spark, available_now=True)


@pytest.mark.ottla(topics={"orders": 2, "large-orders": 2})
def test_large_orders(spark: "SparkSession", ottla: LocalBroker, tmp_path: Path) -> None:
    send(ottla, "orders", *({"order_id": n, "customer": f"c{n % 2}", "amount": 60.0 * n} for n in range(4)))
    for _ in range(2):  # the second time there is nothing new
        running = streams(spark, ottla, tmp_path, "large-orders")
        large_orders.build(running)
        running.wait()
        assert received(ottla, "large-orders") == [
            ("c0", {"order_id": 2, "customer": "c0", "with_tax": 150.0}),
            ("c1", {"order_id": 3, "customer": "c1", "with_tax": 225.0}),
        ]


@pytest.mark.ottla(topics={"sales": 1, "sales-by-minute": 1})
def test_sales_by_minute(spark: "SparkSession", ottla: LocalBroker, tmp_path: Path) -> None:
    def sale(product: str, time: str) -> dict[str, Any]:
        return {"product": product, "amount": 2.5, "sold_at": f"2026-01-01T{time}Z"}

    send(ottla, "sales", sale("tea", "10:00:01"), sale("tea", "10:00:59"), sale("rum", "10:00:30"))
    send(ottla, "sales", sale("tea", "10:01:05"), sale("tea", "10:02:30"))
    running = streams(spark, ottla, tmp_path, "sales-by-minute")
    sales_by_minute.build(running)
    running.wait()
    minutes = [
        (key, value["minute"][11:16], value["sales"], value["amount"])
        for key, value in received(ottla, "sales-by-minute")
    ]
    assert sorted(minutes) == [("rum", "10:00", 1, 2.5), ("tea", "10:00", 2, 5.0), ("tea", "10:01", 1, 2.5)]


@pytest.mark.ottla(topics={"orders": 1, "payments": 1, "paid-orders": 1})
def test_paid_orders(spark: "SparkSession", ottla: LocalBroker, tmp_path: Path) -> None:
    at = "2026-01-01T10:{}:00Z"
    send(
        ottla,
        "orders",
        *({"order_id": n, "customer": "c", "amount": 5.0, "ordered_at": at.format("00")} for n in (1, 2)),
    )
    send(
        ottla,
        "payments",
        {"paid_order": 2, "method": "card", "paid_at": at.format("20")},
        {"paid_order": 9, "method": "card", "paid_at": at.format("20")},
    )
    running = streams(spark, ottla, tmp_path, "paid-orders")
    paid_orders.build(running)
    running.wait()
    [(key, value)] = received(ottla, "paid-orders")
    assert (key, value["customer"], value["method"]) == ("2", "c", "card")
