"""Rows a second that Spark reads from topics: with the source ottla, and with Spark's own Kafka source.

Both read the same topics of the same broker, to a sink that throws everything away, on two cores. The rate of a stream
is that of its batches behind the first one: what it costs to begin and end a query is a figure of its own.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.broker_servers import Ottla, servers
from bench.clients_raw import start_to_first_record
from bench.compiled_modules import with_compiled_broker
from bench.report import Result, spread_of
from ottla.client import Admin, NewTopic, Producer
from ottla.pipelines.session import spark_session
from tests.pipelines.jars import JarsUnavailable, kafka_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
SIZES = {"100 B": (100, 6_000_000, 1.3), "1 KB": (1000, 2_400_000, 1.5)}
"""Bytes of a value, how many rows, and how many times Spark's own rate is to be reached."""
TINY = "tiny"
TINY_ROWS = 1_000
QUICK_SHARE = 6
ROUNDS, QUICK_ROUNDS = 4, 2
TITLES = {"ottla": "source ottla", "kafka": "Spark's own source"}
BATCHES = 6
"""Of a stream: the first one is not counted, for it starts the source."""


def run(quick: bool) -> list[Result]:
    with servers([Ottla]) as [server]:
        start_to_first_record(server)
        bootstrap = f"127.0.0.1:{server.port}"
        counts = _fill(bootstrap, quick)
        with _session() as (spark, formats):
            return _measure(spark, formats, bootstrap, counts, QUICK_ROUNDS if quick else ROUNDS)


def _fill(bootstrap: str, quick: bool) -> dict[str, int]:
    """Topics of both sizes, with values without keys."""
    counts = {TINY: TINY_ROWS}
    with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=0) as producer:
        admin.create_topics([NewTopic(TINY, PARTITIONS)])
        producer.send_many(TINY, [b"x"] * TINY_ROWS)
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
    os.environ.update(with_compiled_broker())  # the workers of Spark find compiled modules, as where pip installed them
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
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
    for label in SIZES:
        for way, read in (("batch", _batch), ("stream", _stream)):
            topic, rows = label.replace(" ", ""), counts[label]
            rates: dict[str, list[float]] = {name: [] for name in formats}
            for number in range(rounds + 1):  # the first time is not counted: everything is cold
                for name in formats if number % 2 else reversed(formats):
                    rate = read(spark, name, bootstrap, topic, rows)
                    if number:
                        rates[name].append(rate)
            results += [
                Result.of(f"{TITLES[name]}, {way}, {label}", spread_of(rates[name]), "rows/s") for name in formats
            ]
            if "kafka" in formats:
                ratios = [mine / own for mine, own in zip(rates["ottla"], rates["kafka"], strict=True)]
                target = f">= {SIZES[label][2]}"
                results.append(Result.of(f"ottla by Spark's own, {way}, {label}", spread_of(ratios), "times", target))
    for name in formats:
        seconds = [_seconds(spark, name, bootstrap) for _ in range(rounds)]
        title = f"{TITLES[name]}, a stream of {TINY_ROWS:,} rows from start to end"
        results.append(Result.of(title, spread_of(seconds), "s"))
    return results


def _batch(spark: "SparkSession", name: str, bootstrap: str, topic: str, rows: int) -> float:
    reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    begun = time.perf_counter()
    reader.load().write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - begun)


def _stream(spark: "SparkSession", name: str, bootstrap: str, topic: str, rows: int) -> float:
    batches = _run_stream(spark, name, bootstrap, topic, rows, -(-rows // BATCHES))[1:]
    seconds = sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000
    return float(sum(batch["numInputRows"] for batch in batches) / seconds)


def _seconds(spark: "SparkSession", name: str, bootstrap: str) -> float:
    begun = time.perf_counter()
    _run_stream(spark, name, bootstrap, TINY, TINY_ROWS, TINY_ROWS)
    return time.perf_counter() - begun


def _run_stream(
    spark: "SparkSession", name: str, bootstrap: str, topic: str, rows: int, most: int
) -> Sequence[Mapping[str, Any]]:
    """What Spark says of each batch."""
    reader = spark.readStream.format(name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    frame = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(most)).load()
    checkpoint = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    try:
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        read = sum(batch["numInputRows"] for batch in batches)
        if read != rows:
            raise AssertionError(f"{name} read {read} of {rows} rows")
        return batches
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
