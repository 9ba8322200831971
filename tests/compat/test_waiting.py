"""Consumers that wait: woken when there is something for them, and not before; and those under a quota."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.broker.quotas.quotas import CONSUMER_BYTE_RATE, client_entity
from ottla.testing import LocalBroker

LONG_MS = 60_000


def consumer(broker: LocalBroker, topic: str, **settings: object) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "waiting",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    made.assign([TopicPartition(topic, 0, 0)])
    return made


def fetches(broker: LocalBroker) -> int:
    return broker.call(lambda inside: inside.metrics.requests["Fetch"])


def test_a_committed_transaction_is_delivered_when_it_is_committed(broker: LocalBroker, topic: str) -> None:
    """However many bytes a reader waits for: what was held back counts when it can be read."""
    AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"x" * 2000)
    producer.flush()
    reader = consumer(
        broker, topic, isolation_level="read_committed", fetch_min_bytes=1000, fetch_wait_max_ms=LONG_MS,
        socket_timeout_ms=2 * LONG_MS,
    )  # fmt: skip
    try:
        assert reader.poll(2) is None
        producer.commit_transaction()
        message = reader.poll(20)  # and the wait is a minute
        assert message is not None
        assert message.value() == b"x" * 2000
    finally:
        reader.close()


def test_readers_of_committed_records_sleep_while_a_transaction_is_open(broker: LocalBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush()
    reader = consumer(
        broker, topic, isolation_level="read_committed", fetch_wait_max_ms=LONG_MS, socket_timeout_ms=2 * LONG_MS
    )
    try:
        assert reader.poll(1) is None
        before = fetches(broker)
        for number in range(50):
            producer.produce(topic, b"%d" % number)
            producer.flush()
        assert fetches(broker) - before <= 2
    finally:
        reader.close()
        producer.abort_transaction()


def test_a_backlog_comes_at_the_pace_of_the_quota(broker: LocalBroker, topic: str) -> None:
    """A reply is no larger than what the quota has left, or nothing would come for very long."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 10_000, "linger.ms": 0})
    for _ in range(100):
        producer.produce(topic, b"x" * 20_000)
    producer.flush()
    client_id = f"slow-{topic}"
    broker.call(lambda inside: inside.quotas.set_limits(client_entity(client_id), {CONSUMER_BYTE_RATE: 50_000}))
    reader = consumer(broker, topic, client_id=client_id)
    try:
        started, received = time.monotonic(), 0
        while received < 400_000 and time.monotonic() - started < 30:
            message = reader.poll(5)
            received += len(message.value() or b"") if message is not None and message.error() is None else 0
        assert received >= 400_000
    finally:
        reader.close()
