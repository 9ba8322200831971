"""Apache Storm's KafkaSpout in a local cluster reads a topic: each record once, and its offsets are committed.

Needs a JDK and Maven. OTTLA_TEST_BROKER=apache-kafka asks the same of Apache Kafka.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.client import LATEST, Admin, NewTopic, Producer, TopicPartition
from tests.apache_kafka.distribution import made_once
from tests.apache_kafka.harness import TOOL_SECONDS
from tests.compat.killable import killable_broker
from tests.light_java import LIGHT_JAVA

VERSION = "2.8.2"
KAFKA_CLIENT_VERSION = "3.9.1"
HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / f"storm-{VERSION}"
TOPIC, PARTITIONS, RECORDS = "read-by-storm", 3, 300
JAVA = ("java", *LIGHT_JAVA.split(), "-Xmx512m")
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>storm</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.storm</groupId><artifactId>storm-server</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.storm</groupId><artifactId>storm-kafka-client</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{KAFKA_CLIENT_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


@pytest.fixture(scope="module")
def classpath() -> str:
    missing = [command for command in ("java", "javac", "mvn") if shutil.which(command) is None]
    if missing:
        pytest.skip(f"Storm needs {', '.join(missing)}: install a JDK (17 or later) and Maven")

    def fetch(folder: Path) -> None:
        pom = folder.with_name("pom.xml")
        pom.write_text(POM)
        _run("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}")

    try:
        jars = made_once(CACHE / "jars", fetch)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Maven could not fetch Storm {VERSION}: {error}")
    # Storm sends bolts as bytes to itself, so their classes must be in files.
    source = HERE / "StormReads.java"
    classes = made_once(
        CACHE / f"classes-{source.stat().st_mtime_ns}",
        lambda folder: _run("javac", "-cp", f"{jars}/*", "-d", str(folder), str(source)),
    )
    return f"{classes}{os.pathsep}{jars}/*"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)


def test_the_spout_reads_each_record_once_and_commits(classpath: str, tmp_path: Path) -> None:
    with killable_broker(tmp_path) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
        with Producer(broker.bootstrap, codec="gzip") as producer:
            sent = [
                producer.send(TOPIC, f"v{number}".encode(), key=f"k{number % 7}".encode()) for number in range(RECORDS)
            ]
            places = [each.result() for each in sent]
        wanted = sorted(
            f"1 {place.partition} {place.offset} k{number % 7} v{number}" for number, place in enumerate(places)
        )
        command = (*JAVA, "-cp", classpath, "StormReads", broker.bootstrap, TOPIC, str(RECORDS))
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS)
        assert sorted(ended.stdout.splitlines()) == wanted, ended.stderr[-2000:]
        ends = admin.find_offsets(TOPIC, LATEST)
        committed = admin.list_group_offsets("storm")
    assert {place: offset.offset for place, offset in committed.items()} == {
        TopicPartition(TOPIC, index): end for index, end in ends.items() if end
    }
