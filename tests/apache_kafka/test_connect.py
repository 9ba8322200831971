"""Runners of connectors, killed and stopped in the middle, on Apache Kafka."""

import pytest

from tests.apache_kafka.harness import ApacheKafka
from tests.connect.kills_contract import KillsContract


@pytest.fixture
def bootstrap(apache_kafka: ApacheKafka) -> str:
    return apache_kafka.bootstrap


class TestKillsOnApacheKafka(KillsContract):
    pass
