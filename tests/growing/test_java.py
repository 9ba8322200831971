"""The order of every key with Kafka's own Java client, while a topic grows in order twice. Needs a JDK and Maven."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

import ottla.testing
from ottla.client import LATEST, Admin, NewTopic
from tests.apache_kafka.distribution import KafkaUnavailable, classpath
from tests.apache_kafka.harness import JAVA, LOG_WARNINGS, TOOL_SECONDS
from tests.growing.clients import TOPIC
from tests.growing.ledger import wait_until
from tests.growing.test_order import grow

PROGRAM = Path(__file__).parent / "java" / "KeysInOrder.java"


def test_order_with_the_java_client() -> None:
    try:
        jars = classpath()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 2)])
        command = (*JAVA, LOG_WARNINGS, "-cp", jars, str(PROGRAM), broker.bootstrap, TOPIC, "8")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            try:
                wait_until(lambda: sum(admin.find_offsets(TOPIC, LATEST).values()) > 500, "the producer writes")
                grow(admin, 4)
                time.sleep(0.5)
                grow(admin, 8)
                time.sleep(0.5)
                told, complaints = program.communicate("end\n", timeout=TOOL_SECONDS)
            finally:
                program.kill()
    assert told == "done\n", complaints[-2000:]
