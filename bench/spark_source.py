"""Rows a second that Spark reads from topics: with the source ottla, and with Spark's own Kafka source.

Both read the same topics of the same broker, to a sink that throws everything away, on two cores.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.broker_servers import Ottla, servers
from bench.report import Result, spread_of
from ottla.client import Admin, NewTopic, Producer
from ottla.pipelines.session import spark_session
from tests.pipelines.kafka_jars import JarsUnavailable, kafka_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
SIZES = {"100 B": (100, 6_000_000, 1.3), "1 KB": (1000, 1_500_000, 1.5)}
"""Bytes of a value, how many rows, and how many times Spark's own rate is to be reached."""
QUICK_SHARE = 10
ROUNDS, QUICK_ROUNDS = 5, 2


def run(quick: bool) -> list[Result]:
    with servers([Ottla]) as [server]:
        server.start()
        bootstrap = f"127.0.0.1:{server.port}"
        counts = _fill(bootstrap, quick)
        with _session() as (spark, formats):
            return _measure(spark, formats, bootstrap, counts, QUICK_ROUNDS if quick else ROUNDS)


def _fill(bootstrap: str, quick: bool) -> dict[str, int]:
    """Topics of both sizes, with values without keys."""
    counts = {}
    with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=0) as producer:
        for label, (size, rows, _) in SIZES.items():
            counts[label] = rows // QUICK_SHARE if quick else rows
            topic = label.replace(" ", "")
            admin.create_topics([NewTopic(topic, PARTITIONS)])
            values = [b"x" * size] * 50_000
            for _ in range(counts[label] // len(values)):
                producer.send_many(topic, values)
    return counts


@contextmanager
def _session() -> "Iterator[tuple[SparkSession, list[str]]]":
    folder = tempfile.mkdtemp(prefix="ottla-bench-")
    configs = {"spark.driver.memory": "2g", "spark.local.dir": folder, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    formats = ["ottla"]
    try:
        configs["spark.jars"] = kafka_jars()
        formats.append("kafka")
    except JarsUnavailable as reason:
        print(f"alone, without Spark's own source: {reason}", file=sys.stderr)
    spark = spark_session("local[2]", name="bench", configs=configs)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark, formats
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(
    spark: "SparkSession", formats: list[str], bootstrap: str, counts: dict[str, int], rounds: int
) -> list[Result]:
    results = []
    for label, rows in counts.items():
        for way, read in (("batch", _batch), ("stream", _stream)):
            rates: dict[str, list[float]] = {name: [] for name in formats}
            for number in range(rounds + 1):  # the first time is not counted: everything is cold
                for name in formats:
                    begun = time.perf_counter()
                    read(spark, name, bootstrap, label.replace(" ", ""), rows)
                    if number:
                        rates[name].append(rows / (time.perf_counter() - begun))
            for name in formats:
                title = "source ottla" if name == "ottla" else "Spark's own source"
                results.append(Result.of(f"{title}, {way}, {label}", spread_of(rates[name]), "rows/s"))
            if "kafka" in formats:
                ratios = [mine / own for mine, own in zip(rates["ottla"], rates["kafka"], strict=True)]
                target = f">= {SIZES[label][2]}"
                results.append(Result.of(f"ottla by Spark's own, {way}, {label}", spread_of(ratios), "times", target))
    return results


def _batch(spark: "SparkSession", name: str, bootstrap: str, topic: str, rows: int) -> None:
    reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    reader.load().write.format("noop").mode("overwrite").save()


def _stream(spark: "SparkSession", name: str, bootstrap: str, topic: str, rows: int) -> None:
    reader = spark.readStream.format(name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    frame = reader.option("startingOffsets", "earliest").load()
    checkpoint = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    try:
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        if read != rows:
            raise AssertionError(f"{name} read {read} of {rows} rows")
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
