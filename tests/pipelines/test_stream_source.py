"""Streams: what a query reads as topics grow, and what it says when they shrink."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from ottla.client import Admin, NewRecord, Producer
from ottla.testing import LocalBroker
from tests.pipelines.topics import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def stream(spark: "SparkSession", broker: LocalBroker, **options: object) -> "DataFrame":
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(startingOffsets="earliest", **{name: str(value) for name, value in options.items()}).load()


def start(frame: "DataFrame", table: str, folder: Path) -> "StreamingQuery":
    return frame.writeStream.format("memory").queryName(table).option("checkpointLocation", str(folder)).start()


def run_to_nowhere(frame: "DataFrame", folder: Path) -> int:
    """How many rows there are now behind the checkpoint."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def values(spark: "SparkSession", table: str) -> list[str]:
    return sorted(row.value.decode() for row in spark.table(table).select("value").collect())


def numbered(count: int) -> list[str]:
    return sorted(f"v{number}" for number in range(count))


def test_a_running_query_finds_new_partitions_and_topics(
    spark: "SparkSession", ottla: LocalBroker, tmp_path: Path
) -> None:
    ottla.topic("grow-a", partitions=1)
    write(ottla, "grow-a", range(2), partitions=1)
    query = start(stream(spark, ottla, subscribePattern="grow-.*"), "growing", tmp_path)
    try:
        query.processAllAvailable()
        assert values(spark, "growing") == numbered(2)
        with Admin(ottla.bootstrap) as admin:
            admin.expand_topics({"grow-a": 3})
        ottla.topic("grow-b", partitions=2)
        write(ottla, "grow-a", range(2, 8), partitions=3)
        write(ottla, "grow-b", range(8, 12), partitions=2)
        query.processAllAvailable()
        assert values(spark, "growing") == numbered(12)
    finally:
        query.stop()


def test_what_is_available_now_is_read_in_batches_and_the_group_shows_it(
    spark: "SparkSession", ottla: LocalBroker, tmp_path: Path
) -> None:
    ottla.topic("limited", partitions=2)
    write(ottla, "limited", range(10))
    options = {"subscribe": "limited", "maxOffsetsPerTrigger": 6, "kafka.group.id": "lag-of-query"}
    writer = stream(spark, ottla, **options).writeStream.format("memory").queryName("limited_rows")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert values(spark, "limited_rows") == numbered(10)
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [6, 4]
    assert ottla.lag("lag-of-query") == 0


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
def test_records_that_grow_in_the_middle_of_a_topic_come_in_more_batches(
    trigger: dict[str, Any], spark: "SparkSession", ottla: LocalBroker, tmp_path: Path
) -> None:
    """By their number all of them would be one batch, of 650 kB."""
    ottla.topic("mixed", partitions=1)
    sizes = [10] * 4000 + [1000] * 500 + [100_000]
    with Producer(ottla.bootstrap) as producer:
        producer.send_many("mixed", [NewRecord(b"%0*d" % (size, number)) for number, size in enumerate(sizes)])
    frame = stream(spark, ottla, subscribe="mixed", maxBytesPerTrigger=120_000, maxOffsetsPerTrigger=10_000)
    taken: list[int] = []

    def take(batch: "DataFrame", _: int) -> None:
        row = batch.selectExpr("sum(length(value))").collect()[0]
        taken.append(row[0])

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).trigger(**trigger).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sum(taken) == sum(sizes)
    assert max(taken) <= 120_000
    assert 6 <= len(taken) <= 9


def test_a_topic_that_was_created_again_stops_the_query(
    spark: "SparkSession", ottla: LocalBroker, tmp_path: Path
) -> None:
    ottla.topic("again", partitions=1)
    write(ottla, "again", range(4), partitions=1)
    frame = stream(spark, ottla, subscribe="again")
    assert run_to_nowhere(frame, tmp_path) == 4
    with Admin(ottla.bootstrap) as admin:
        admin.delete_topics(["again"])
    ottla.topic("again", partitions=1)
    write(ottla, "again", range(6), partitions=1)
    with pytest.raises(StreamingQueryException, match="topic again was deleted and created again"):
        run_to_nowhere(frame, tmp_path)
    assert run_to_nowhere(stream(spark, ottla, subscribe="again", failOnDataLoss="false"), tmp_path) == 6


def test_a_topic_that_grows_in_order_is_read_in_order(
    spark: "SparkSession", ottla: LocalBroker, tmp_path: Path
) -> None:
    """A new partition is in a batch behind the one that has come to the fence of its parent."""
    keys = [b"key-%d" % number for number in range(8)]
    ottla.topic("ordered", partitions=1)
    with Admin(ottla.bootstrap) as admin:
        for total in (2, 4, None):
            with Producer(ottla.bootstrap) as producer:
                for number in range(10):
                    for key in keys:
                        producer.send("ordered", b"%d" % number, key=key)
            if total is not None:
                admin.expand_in_order({"ordered": total}, quiet_ms=0)
                while admin.describe_growths(["ordered"])["ordered"][-1].phase.value != "open":
                    time.sleep(0.05)
        growths = admin.describe_growths(["ordered"])["ordered"]
    ends: list[dict[int, int]] = []

    def note(frame: "DataFrame", _batch_id: int) -> None:
        rows = frame.groupBy("partition").max("offset").collect()
        ends.append({row["partition"]: row["max(offset)"] + 1 for row in rows})

    query = stream(spark, ottla, subscribe="ordered").writeStream.foreachBatch(note)
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    read: dict[int, int] = {}
    for batch in ends:
        for growth in growths:
            for index in growth.new_partitions:
                if index in batch:
                    assert read.get(growth.parent_of(index), 0) >= growth.fences.get(growth.parent_of(index), 0)
        read |= batch
    assert set(read) == {0, 1, 2, 3}
    assert len(ends) >= 3
