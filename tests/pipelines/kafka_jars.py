"""Spark's own Kafka source, to compare with: four jars from Maven, fetched once into the repository's cache."""

import shutil
import subprocess
from pathlib import Path

from tests.apache_kafka.distribution import made_once

ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
CACHE = Path(__file__).parents[2] / ".cache" / "spark-kafka-4.2.0"


class JarsUnavailable(Exception):
    """The jars cannot be had here; the message says what to install."""


def kafka_jars() -> str:
    """A value for spark.jars; JarsUnavailable where Maven is not there or cannot fetch them."""
    if shutil.which("mvn") is None:
        raise JarsUnavailable("Spark's own Kafka source comes from Maven: install it")
    folder = made_once(CACHE, _fetch)
    return ",".join(sorted(str(path) for path in folder.glob("*.jar")))


def _fetch(folder: Path) -> None:
    for artifact in ARTIFACTS:
        command = ("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ended.returncode:
            reason = (ended.stdout.strip().splitlines() or ["no output"])[0]
            raise JarsUnavailable(f"Maven could not fetch {artifact}: {reason}")
