"""The same pipelines on Spark's own Kafka source and sink, by one option; and all of it against Apache Kafka."""

import contextlib
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from examples.streams import large_orders
from ottla.client import Admin, NewRecord, NewTopic, Producer
from ottla.pipelines import Pipeline, Table, encode_key
from ottla.pipelines.streams import Streams
from ottla.pipelines.tables.runner import run_pipeline
from ottla.testing import LocalBroker
from tests.apache_kafka.distribution import KafkaUnavailable, classpath
from tests.apache_kafka.harness import ApacheKafka
from tests.pipelines.tables.model import Change, current, disturbed, random_changes
from tests.pipelines.tables.test_apply import event_of
from tests.pipelines.tables.test_table import rows_in
from tests.pipelines.topics import read_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS: list[dict[str, Any]] = [{"order_id": n, "customer": f"c{n % 3}", "amount": 20.0 * n} for n in range(12)]


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    try:
        classpath()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with ApacheKafka(tmp_path_factory.mktemp("apache-kafka")) as kafka:
        yield kafka


def send_orders(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 2), NewTopic("large-orders", 2)])
    records = [
        NewRecord(
            json.dumps(order).encode(),
            b"%d" % order["order_id"],
            headers=[("n", b"1")],
            timestamp_ms=time.time_ns() // 1_000_000,
        )
        for order in ORDERS
    ]
    with Producer(bootstrap, codec="zstd") as producer:
        producer.send_many("orders", records)


def run_twice(spark: "SparkSession", bootstrap: str, folder: Path, format: Literal["ottla", "kafka"]) -> None:
    """The example, from the first order on; and once more when it has all."""
    for _ in range(2):
        streams = Streams(
            bootstrap, "large-orders", str(folder / format), spark=spark, format=format, available_now=True
        )
        large_orders.build(streams)
        streams.wait()
    found = sorted(json.loads(value)["order_id"] for value in read_values(bootstrap, "large-orders"))
    assert found == [order["order_id"] for order in ORDERS if order["amount"] >= 100]


def check_same_rows(spark: "SparkSession", bootstrap: str) -> None:
    """All columns of all rows, with both sources."""
    rows = []
    for name in ("ottla", "kafka"):
        reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(subscribe="orders", includeHeaders="true").load()
        rows.append((frame.schema.simpleString(), sorted(frame.collect(), key=lambda row: (row.partition, row.offset))))
    assert rows[0] == rows[1]
    assert len(rows[0][1]) == len(ORDERS)


class Aborted(Exception):
    pass


def check_table(spark: "SparkSession", bootstrap: str, folder: Path, format: Literal["ottla", "kafka"]) -> None:
    """A pipeline into a table, run twice; what was aborted on the way is not in it."""
    topic, chance = f"changes-{format}", random.Random(7)
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    target = folder / format
    pipeline = Pipeline(bootstrap, (Table(topic, str(target), ("id",), buckets=3),), format=format)
    sent: list[Change] = []
    for batch in disturbed(chance, random_changes(chance, 60), 40):
        records = [NewRecord(event_of(change), encode_key({"id": change.key})) for change in batch]
        with Producer(bootstrap, transactional_id=topic) as producer:
            with contextlib.suppress(Aborted), producer.transaction():
                producer.send(topic, event_of(Change(1, 1000, "aborted"))).result()
                raise Aborted
            with producer.transaction():
                producer.send_many(topic, records)
        sent += batch
        run_pipeline(spark, pipeline, is_once=True)
        assert rows_in(target) == current(sent)


def test_sparks_own_source_and_sink_do_the_same_on_ottla(
    spark: "SparkSession", kafka_format: Literal["kafka"], ottla: LocalBroker, tmp_path: Path
) -> None:
    send_orders(ottla.bootstrap)
    check_same_rows(spark, ottla.bootstrap)
    run_twice(spark, ottla.bootstrap, tmp_path, kafka_format)
    check_table(spark, ottla.bootstrap, tmp_path, kafka_format)


def test_the_source_and_the_sink_work_on_apache_kafka(
    spark: "SparkSession", apache_kafka: ApacheKafka, kafka_format: str, tmp_path: Path
) -> None:
    send_orders(apache_kafka.bootstrap)
    check_same_rows(spark, apache_kafka.bootstrap)
    run_twice(spark, apache_kafka.bootstrap, tmp_path, "ottla")
    for format in ("ottla", "kafka"):
        check_table(spark, apache_kafka.bootstrap, tmp_path, format)
