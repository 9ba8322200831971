"""The mirror between Ottla and Apache Kafka, either way, with runners that are killed and batches that have rotted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla import testing
from tests.apache_kafka.harness import ApacheKafka
from tests.connect.mirror.damage_contract import MirrorDamageContract
from tests.connect.mirror.kills_contract import MirrorKillsContract


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
