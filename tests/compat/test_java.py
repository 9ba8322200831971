"""Kafka's own Java client: records, topics, groups of both protocols and transactions. Needs a JDK and Maven."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.apache_kafka.distribution import KafkaUnavailable, classpath
from tests.apache_kafka.harness import JAVA, LOG_WARNINGS, TOOL_SECONDS
from tests.compat.killable import KillableBroker

PROGRAMS = Path(__file__).parent / "java"


@pytest.fixture(scope="module")
def java_classpath() -> str:
    try:
        return classpath()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("program", ["Records", "Groups classic", "Groups consumer", "Transactions"])
def test_the_java_client_is_content(killable: KillableBroker, java_classpath: str, program: str) -> None:
    name, *arguments = program.split()
    source = PROGRAMS / f"{name}.java"
    command = (*JAVA, LOG_WARNINGS, "-cp", java_classpath, str(source), killable.bootstrap, *arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS)
    assert ended.stdout == "done\n", ended.stderr
    assert ended.returncode == 0
