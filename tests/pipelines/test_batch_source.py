"""Reading topics into DataFrames, all at once."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.client import NewRecord, Producer
from ottla.testing import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: "SparkSession", broker: LocalBroker, **options: object) -> "DataFrame":
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def write(broker: LocalBroker, topic: str, count: int, partitions: int = 2) -> None:
    """Records whose number is in their value, key and timestamp; a third of them has no headers."""
    broker.topic(topic, partitions=partitions)
    records = [
        NewRecord(
            b"v%d" % number,
            b"k%d" % number,
            timestamp_ms=1000 * number,
            partition=number % partitions,
            headers=[("number", b"%d" % number)] if number % 3 else [],
        )
        for number in range(count)
    ]
    with Producer(broker.bootstrap) as producer:
        producer.send_many(topic, records)


def test_a_batch_read_has_the_columns_of_sparks_own_source(spark: "SparkSession", ottla_session: LocalBroker) -> None:
    write(ottla_session, "columns", 10)
    frame = read(spark, ottla_session, subscribe="columns", includeHeaders="true")
    types = [(field.name, field.dataType.simpleString()) for field in frame.schema]
    assert types == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    rows = sorted(frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect(), key=lambda row: row.ms)
    assert [(row.key, row.value, row.topic, row.partition, row.offset, row.ms, row.timestampType) for row in rows] == [
        (b"k%d" % number, b"v%d" % number, "columns", number % 2, number // 2, 1000 * number, 0) for number in range(10)
    ]
    headers = [row.headers and [(header.key, header.value) for header in row.headers] for row in rows]
    assert headers == [[("number", b"%d" % number)] if number % 3 else None for number in range(10)]


def test_conditions_reach_the_source(spark: "SparkSession", ottla_session: LocalBroker) -> None:
    write(ottla_session, "conditions", 20)
    frame = read(spark, ottla_session, subscribe="conditions", minPartitions=4)
    seven = datetime.fromtimestamp(7, UTC).isoformat()
    cases = {
        "topic = 'conditions' AND partition = 1 AND offset > 7": 2,
        "topic IN ('others')": 0,
        "partition IN (0, 5) AND offset BETWEEN 2 AND 3": 2,
        f"timestamp >= '{seven}' AND timestamp < '{seven}' + INTERVAL 1500 MILLISECONDS": 2,
        f"timestamp = '{seven}'": 1,
    }
    assert {case: frame.where(case).count() for case in cases} == cases
