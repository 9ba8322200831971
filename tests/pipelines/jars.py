"""Jars that only tests and comparisons need, from Maven, fetched once into the repository's cache."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.apache_kafka.distribution import made_once

# Single jars, because Spark's parent pom names repositories that are not everywhere to be reached.
KAFKA = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
HDFS = ("org.apache.hadoop:hadoop-client-minicluster:3.5.0",)  # of the Hadoop that PySpark 4.2 brings
CACHE = Path(__file__).parents[2] / ".cache"


class JarsUnavailable(Exception):
    """The jars cannot be had here; the message says what to install."""


def kafka_jars() -> str:
    """Spark's own Kafka source and sink, as a value for spark.jars; JarsUnavailable where they cannot be had."""
    return _jars("Spark's own Kafka source", "spark-kafka-4.2.0", KAFKA)


def delta_jars() -> str:
    """delta-spark, as a value for spark.jars; JarsUnavailable where it cannot be had."""
    return _jars("delta-spark", "delta-spark-4.4.0", DELTA)


def hdfs_jars() -> str:
    """A small HDFS, to be put before PySpark's own jars; JarsUnavailable where it cannot be had."""
    return _jars("HDFS", "hadoop-minicluster-3.5.0", HDFS)


def _jars(what: str, name: str, artifacts: Sequence[str]) -> str:
    import pyspark

    if not pyspark.__version__.startswith("4.2."):
        raise JarsUnavailable(f"{what} is tested with PySpark 4.2; this is {pyspark.__version__}")
    if shutil.which("mvn") is None:
        raise JarsUnavailable(f"{what} comes from Maven: install it")

    def fetch(folder: Path) -> None:
        for artifact in artifacts:
            command = ("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
            ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if ended.returncode:
                reason = (ended.stdout.strip().splitlines() or ["no output"])[0]
                raise JarsUnavailable(f"Maven could not fetch {artifact}: {reason}")

    return ",".join(sorted(str(path) for path in made_once(CACHE / name, fetch).glob("*.jar")))
