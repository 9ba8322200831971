"""Consumers, groups and transactions of the client against the real Kafka."""

from collections.abc import Iterator

import pytest

from tests.apache_kafka.harness import ApacheKafka
from tests.client.admin_groups_contract import AdminGroupsContract
from tests.client.consumer_contract import ConsumerContract

# New groups move at their members' heartbeats, which the coordinator spaces: seconds apart, if nothing is said.
QUICK_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def bootstrap(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ApacheKafka(tmp_path_factory.mktemp("quick-groups"), QUICK_GROUPS) as kafka:
        yield kafka.bootstrap


class TestOnApacheKafka(ConsumerContract):
    pass


class TestGroupsOfApacheKafka(AdminGroupsContract):
    pass
