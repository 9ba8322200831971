"""Fixtures around a real Apache Kafka. Without Java and Maven, what asks for them is skipped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apache_kafka.distribution import KafkaUnavailable, classpath
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.mixed_topic import MixedTopic, write_mixed_topic

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all of these tests, so that the session's broker is started once."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("apache_kafka"))


@pytest.fixture(scope="session")
def kafka_classpath() -> str:
    """The class path of Apache Kafka 4.3.1 and the helpers beside this file."""
    try:
        return classpath()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def apache_kafka(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A running broker, the same for all tests of the session: each uses topics of its own."""
    with ApacheKafka(tmp_path_factory.mktemp("apache-kafka")) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def mixed_topics(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[MixedTopic, MixedTopic]:
    """The same mixed partition as two broker ends left it: (killed, stopped clean)."""
    return write_mixed_topic(tmp_path_factory.mktemp("mixed-topic"))


@pytest.fixture
def killed_topic(mixed_topics: tuple[MixedTopic, MixedTopic]) -> MixedTopic:
    return mixed_topics[0]


@pytest.fixture
def stopped_topic(mixed_topics: tuple[MixedTopic, MixedTopic]) -> MixedTopic:
    return mixed_topics[1]
