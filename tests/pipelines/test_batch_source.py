"""Reading topics into DataFrames, all at once."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from ottla.client import Admin, Offset, TopicPartition
from ottla.testing import LocalBroker
from tests.pipelines.topics import KEPT, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: "SparkSession", broker: LocalBroker, **options: object) -> "DataFrame":
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def test_a_batch_read_has_the_columns_of_sparks_own_source(spark: "SparkSession", ottla_session: LocalBroker) -> None:
    ottla_session.topic("columns", partitions=2, config=KEPT)
    write(ottla_session, "columns", range(10), is_old=True)
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
    ottla_session.topic("conditions", partitions=2, config=KEPT)
    write(ottla_session, "conditions", range(20), is_old=True)
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
    # A session of anybody's, which does not push them: the rows are the same.
    plain = spark.newSession()
    plain.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    frame = read(plain, ottla_session, subscribe="conditions")
    assert frame.count() == 20
    assert frame.where("partition = 1 AND offset > 7").count() == 2


def test_a_pattern_does_not_take_topics_of_the_cluster_itself(spark: "SparkSession", ottla: LocalBroker) -> None:
    ottla.topic("plain", partitions=1)
    write(ottla, "plain", range(3), partitions=1)
    with Admin(ottla.bootstrap) as admin:
        admin.alter_group_offsets("a-group", {TopicPartition("plain", 0): Offset(1)})
        assert "__consumer_offsets" in [topic.name for topic in admin.list_topics()]
    assert {row.topic for row in read(spark, ottla, subscribePattern=".*").collect()} == {"plain"}
    assert read(spark, ottla, subscribe="__consumer_offsets", columns="topic").count() > 0


def test_a_range_is_read_by_offset_and_by_time_and_in_parts(spark: "SparkSession", ottla_session: LocalBroker) -> None:
    ottla_session.topic("ranges", partitions=2, config=KEPT)
    write(ottla_session, "ranges", range(20), is_old=True)
    by_offset = read(
        spark, ottla_session, assign='{"ranges": [1]}', startingOffsets='{"ranges": {"1": 3}}',
        endingOffsets='{"ranges": {"1": 8}}', maxRecordsPerPartition=2, columns="value",
    )  # fmt: skip
    assert by_offset.columns == ["value"]
    assert by_offset.rdd.getNumPartitions() == 3
    assert [row.value for row in by_offset.collect()] == [b"v%d" % number for number in (7, 9, 11, 13, 15)]
    by_time = read(spark, ottla_session, subscribePattern="range.", startingTimestamp=4000, endingTimestamp=9000)
    assert sorted(row.value for row in by_time.collect()) == [b"v%d" % number for number in range(4, 9)]


def test_an_edge_that_is_not_there_any_more_is_told(spark: "SparkSession", ottla_session: LocalBroker) -> None:
    ottla_session.topic("short", partitions=1, config=KEPT)
    write(ottla_session, "short", range(4), partitions=1, is_old=True)
    wanted = {"subscribe": "short", "endingOffsets": '{"short": {"0": 9}}'}
    with pytest.raises(AnalysisException, match="short-0 has the offsets from 0 to 4, not from 0 to 9"):
        read(spark, ottla_session, **wanted).count()
    assert read(spark, ottla_session, **wanted, failOnDataLoss="false").count() == 4
