"""Tests as users write them, many times each, each with a broker of its own: run by `bench/testkit.py`."""

from collections.abc import Iterator

import pytest

from ottla.testing import LocalBroker

TESTS = 100
TESTS_WITH_MOCK = 5  # it lets every new group wait for three seconds, which Python cannot change
WAIT_SECONDS = 30


@pytest.mark.parametrize("number", range(TESTS))
def test_ottla_client(ottla: LocalBroker, number: int) -> None:
    from ottla.client import Consumer, Producer

    ottla.topic("orders")
    with Producer(ottla.bootstrap) as producer:
        producer.send("orders", b"%d" % number)
    with Consumer(ottla.bootstrap, "orders", group="shipping") as consumer:
        assert next(iter(consumer)).value == b"%d" % number


@pytest.mark.parametrize("number", range(TESTS))
def test_confluent_kafka(ottla: LocalBroker, number: int) -> None:
    ottla.topic("orders")
    _produce_and_consume(ottla.bootstrap, number)


@pytest.fixture
def mock() -> Iterator[str]:
    """librdkafka's own: it lives in a client, and other clients of librdkafka may connect to it."""
    from confluent_kafka import Producer

    host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    [broker] = host.list_topics(timeout=WAIT_SECONDS).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del host  # and its brokers with it


@pytest.mark.parametrize("number", range(TESTS_WITH_MOCK))
def test_mock(mock: str, number: int) -> None:
    _produce_and_consume(mock, number)


def _produce_and_consume(bootstrap: str, number: int) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", b"%d" % number)
    assert producer.flush(WAIT_SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shipping", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(WAIT_SECONDS)
    assert message is not None
    assert message.value() == b"%d" % number
    consumer.close()
