"""Consumers, groups and transactions of the client against the real Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apache_kafka.harness import ApacheKafka
from tests.client.admin_groups_contract import AdminGroupsContract
from tests.client.consumer_contract import ConsumerContract
from tests.client.judged_contract import JudgedContract

# New groups move at their members' heartbeats, which the coordinator spaces: seconds apart, if nothing is said.
QUICK_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def kafka(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("quick-groups"), QUICK_GROUPS) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(kafka: ApacheKafka) -> str:
    return kafka.bootstrap


@pytest.fixture(scope="module")
def folder(kafka: ApacheKafka) -> Path:
    return kafka.log_dir


class TestOnApacheKafka(ConsumerContract):
    pass


class TestGroupsOfApacheKafka(AdminGroupsContract):
    pass


class TestBesideItsJudge(JudgedContract):
    pass
