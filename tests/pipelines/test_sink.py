"""DataFrames into topics, from a session."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from ottla.client import LATEST, Reader
from ottla.testing import LocalBroker
from tests.pipelines.test_stream_source import stream
from tests.pipelines.topics import read_values, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(frame: "DataFrame", broker: LocalBroker, folder: Path, **options: str) -> None:
    """All that is there now, to the topic `out`."""
    writer = frame.writeStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    writer = writer.options(topic="out", checkpointLocation=str(folder), **options)
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.ottla(topics={"in": 2, "out": 2})
def test_a_stream_is_written_once_and_not_again_without_being_asked(
    spark: "SparkSession", ottla: LocalBroker, tmp_path: Path
) -> None:
    frame = stream(spark, ottla, subscribe="in", maxOffsetsPerTrigger=15)
    write(ottla, "in", range(20))
    run(frame, ottla, tmp_path / "first")
    write(ottla, "in", range(20, 25))
    run(frame, ottla, tmp_path / "first")
    expected = sorted(f"v{number}" for number in range(25))
    assert sorted(read_values(ottla.bootstrap, "out")) == expected
    with pytest.raises(StreamingQueryException, match="set option generation to 1"):
        run(frame, ottla, tmp_path / "second")
    assert sorted(read_values(ottla.bootstrap, "out")) == expected
    run(frame, ottla, tmp_path / "second", generation="1")
    assert sorted(read_values(ottla.bootstrap, "out")) == sorted(2 * expected)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_batch_is_written_with_keys_headers_partitions_and_times(
    spark: "SparkSession", ottla: LocalBroker, delivery: str
) -> None:
    ottla.topic("a", partitions=3)
    ottla.topic("b", partitions=3)
    frame = spark.range(12).selectExpr(
        "IF(id % 2 = 0, 'a', 'b') AS topic", "CAST(id AS STRING) AS key",
        "IF(id > 9, NULL, CAST(id AS STRING)) AS value", "CAST(id % 3 AS INT) AS partition",
        "timestamp_millis(id) AS timestamp", "'ignored' AS other",
        "array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers",
    )  # fmt: skip
    writer = frame.write.format("ottla").mode("append").option("kafka.bootstrap.servers", ottla.bootstrap)
    writer.options(delivery=delivery, includeTimestamp="true").save()
    for topic, first in (("a", 0), ("b", 1)):
        with Reader(ottla.bootstrap, topic, end=LATEST) as reader:
            found = [(fetched.partition, record) for fetched in reader for record in fetched.records]
        assert sorted(int(record.key or b"") for _, record in found) == list(range(first, 12, 2))
        for partition, record in found:
            number = int(record.key or b"")
            assert (partition, record.timestamp) == (number % 3, number)
            assert record.headers == (("h", b"x"),)
            assert record.value == (None if number > 9 else record.key)


def test_rows_that_cannot_be_sent_are_refused_before_anything_runs(spark: "SparkSession", ottla: LocalBroker) -> None:
    frames = {
        "needs a column value": spark.range(1),
        "needs a column topic or the option topic": spark.range(1).selectExpr("'x' AS value"),
        "column value is binary or string, not bigint": spark.range(1).selectExpr("id AS value", "'t' AS topic"),
        "column headers is array": spark.range(1).selectExpr("'x' AS value", "'t' AS topic", "array(1) AS headers"),
    }
    for sentence, frame in frames.items():
        writer = frame.write.format("ottla").mode("append").option("kafka.bootstrap.servers", ottla.bootstrap)
        with pytest.raises(AnalysisException, match=sentence):
            writer.save()
    with pytest.raises(AnalysisException, match="a topic cannot be overwritten"):
        spark.range(1).selectExpr("'x' AS value").write.format("ottla").mode("overwrite").save()
