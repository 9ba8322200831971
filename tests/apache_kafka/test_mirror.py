"""The mirror between Ottla and Apache Kafka, either way, with runners that are killed and batches that have rotted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ottla import testing
from ottla.client import (
    Admin,
    ConfigChange,
    ConfigOperation,
    NewRecord,
    NewTopic,
    Producer,
    Resource,
    ResourceKind,
    TopicPartition,
)
from tests.apache_kafka.harness import ApacheKafka
from tests.connect.mirror.damage_contract import MirrorDamageContract, spoil
from tests.connect.mirror.kills_contract import MirrorKillsContract
from tests.connect.mirror.mirroring import failed_with, mirroring
from tests.connect.running import until, values_of


@pytest.fixture
def ottla_broker() -> Iterator[str]:
    with testing.broker() as broker:
        yield broker.bootstrap


class TestMirrorToApacheKafka(MirrorKillsContract):
    @pytest.fixture
    def source(self, ottla_broker: str) -> str:
        return ottla_broker

    @pytest.fixture
    def target(self, apache_kafka: ApacheKafka) -> str:
        return apache_kafka.bootstrap


class TestDamageOnTheWayToApacheKafka(MirrorDamageContract):
    @pytest.fixture
    def target(self, apache_kafka: ApacheKafka) -> str:
        return apache_kafka.bootstrap


class TestMirrorFromApacheKafka(MirrorKillsContract):
    @pytest.fixture
    def source(self, apache_kafka: ApacheKafka) -> str:
        return apache_kafka.bootstrap

    @pytest.fixture
    def target(self, ottla_broker: str) -> str:
        return ottla_broker


def test_damage_on_apache_kafka(kafka_classpath: str, ottla_broker: str, tmp_path: Path) -> None:
    """In a topic that is compacted, and in one that is not: it is told, and passed over as the page says."""

    def is_copied(topic: str, values: list[bytes]) -> bool:
        return values_of(ottla_broker, topic) == values

    sent = [b"%030d" % number for number in range(50)]
    cut = ConfigChange("cleanup.policy", ConfigOperation.SET, "compact,delete")
    with ApacheKafka(tmp_path / "kafka") as kafka:
        with Admin(kafka.bootstrap) as admin, Producer(kafka.bootstrap) as producer:
            for policy in ("delete", "compact"):
                admin.create_topics([NewTopic(policy, 1, configs={"cleanup.policy": policy})])
                for first in range(0, 50, 10):
                    producer.send_many(policy, [NewRecord(value, key=value) for value in sent[first : first + 10]])
        kafka.stop()
        for policy in ("delete", "compact"):
            spoil(kafka.partition_dir(policy) / f"{0:020}.log", 80, 4)
        kafka.start()
        for policy, copied in (("delete", 20), ("compact", 10)):
            settings = {"name": policy, "session_timeout_ms": 6_000, "retries": 1, "backoff_ms": 10}
            with mirroring(tmp_path, kafka.bootstrap, ottla_broker, [policy], **settings):
                assert "a damaged batch at or behind offset 20: checksum is" in failed_with(ottla_broker, policy)
            assert values_of(ottla_broker, policy) == sent[:copied]
            with Admin(kafka.bootstrap) as admin:
                admin.alter_configs(Resource(ResourceKind.TOPIC, policy), [cut])
                admin.delete_records({TopicPartition(policy, 0): 30})
            with mirroring(tmp_path, kafka.bootstrap, ottla_broker, [policy], lost="skip", **settings):
                until(partial(is_copied, policy, sent[:copied] + sent[30:]))
