"""Throughput through a client that both brokers know: confluent-kafka, which is librdkafka."""

import time
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.broker_servers import Server
from bench.event_values import DIFFERENT_VALUES, event_values

CONSUME_AT_ONCE = 5_000
WAIT_SECONDS = 60
TRANSACTIONAL_VALUE_BYTES = 100


class Served(Protocol):
    """A broker, or several."""

    @property
    def name(self) -> str: ...

    @property
    def bootstrap(self) -> str: ...


class Load(NamedTuple):
    """What is produced to a topic, and then consumed from it."""

    value_bytes: int
    acks: str
    codec: str
    record_count: int
    partitions: int = 1


def produce(server: Served, topic: str, load: Load) -> float:
    """Seconds until every record is acknowledged."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "acks": load.acks,
            "compression.type": load.codec,
            "enable.idempotence": False,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    values = event_values(load.value_bytes)
    producer.list_topics(topic, WAIT_SECONDS)  # so that the connection stands when the clock starts
    started = time.perf_counter()
    for number in range(load.record_count):
        value = values[number % DIFFERENT_VALUES]
        while True:
            try:
                producer.produce(topic, value, partition=number % load.partitions)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(WAIT_SECONDS)
    taken = time.perf_counter() - started
    if left or failures:
        raise RuntimeError(f"{server.name}: {left} records not acknowledged, {len(failures)} failed")
    return taken


def produce_in_transactions(server: Server, topic: str, records_a_transaction: int, seconds: float) -> float:
    """Records a second of one producer that commits after each so many."""
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": topic,
            "linger.ms": 0,
            "delivery.report.only.error": True,
        }
    )
    values = event_values(TRANSACTIONAL_VALUE_BYTES)
    producer.init_transactions(WAIT_SECONDS)
    committed = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        producer.begin_transaction()
        for number in range(records_a_transaction):
            producer.produce(topic, values[number % DIFFERENT_VALUES], partition=0)
        producer.commit_transaction(WAIT_SECONDS)
        committed += records_a_transaction
    return committed / (time.perf_counter() - started)


def consume(server: Server, topic: str, count: int) -> float:
    """Seconds from the assignment to the last of `count` records."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": 8 << 20,
        }
    )
    consumer.list_topics(topic, WAIT_SECONDS)
    started = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = 0
    while got < count:
        messages = consumer.consume(CONSUME_AT_ONCE, WAIT_SECONDS)
        if not messages or messages[0].error() is not None:
            raise RuntimeError(f"{server.name} gave {got} of {count} records")
        got += len(messages)
    taken = time.perf_counter() - started
    consumer.close()
    return taken
