"""Clients that a test kills in the middle of their work: each tells how far it has come, and waits for its end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import confluent_kafka

from ottla.client import ClientOptions, Consumer, Producer
from ottla.testing import LocalBroker
from tests.compat.reporting_process import ReportingProcess, tell

MODULE = "tests.modes.doomed"
COUNT = 10
VALUES = [b"%d" % number for number in range(COUNT)]
GROUP = "readers"
CLIENT_ID = "doomed"
HEARTBEAT_MS = 100
NEVER_MS = 3_600_000


class Doomed(ReportingProcess):
    """`what` is one of the functions below."""

    def __init__(self, what: Callable[..., None], broker: LocalBroker, *arguments: str) -> None:
        super().__init__(MODULE, what.__name__, broker.bootstrap, *arguments)
        self._broker = broker

    def kill_member(self) -> None:
        """And the group need not wait until it misses its heartbeats."""
        self.kill()
        self._broker.expel(GROUP, CLIENT_ID)


def wait_for_the_end() -> None:
    threading.Event().wait()


# Producers. All of them have room and time to wait for more before they send.


def send_and_go_on(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger_ms=NEVER_MS) as producer:
        for value in VALUES:
            producer.send(topic, value)
        tell("sent")
        wait_for_the_end()


def send_and_flush(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger_ms=NEVER_MS) as producer:
        for value in VALUES:
            producer.send(topic, value)
        producer.flush()
        tell("sent")
        wait_for_the_end()


def send_many(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger_ms=NEVER_MS) as producer:
        producer.send_many(topic, VALUES)
        tell("sent")
        wait_for_the_end()


# Consumers.


def consumer(bootstrap: str, topic: str, delivery: str, client_id: str = CLIENT_ID, **options: object) -> Consumer:
    common = {"group": GROUP, "heartbeat_ms": HEARTBEAT_MS, "auto_commit_ms": 50}
    named = ClientOptions(client_id=client_id)
    return Consumer(bootstrap, topic, delivery=delivery, options=named, **{**common, **options})  # type: ignore[arg-type]


def take(bootstrap: str, topic: str, delivery: str, count: str) -> None:
    """The last of so many is in hand, and never processed."""
    with consumer(bootstrap, topic, delivery) as reader:
        for taken, _message in enumerate(reader, 1):
            if taken == int(count):
                tell("took")
                wait_for_the_end()


def take_and_commit_by_the_clock(bootstrap: str, topic: str) -> None:
    """As other clients do it: what was handed out is committed, processed or not."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": CLIENT_ID,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 50,
        }
    )
    reader.subscribe([topic])
    assert len(reader.consume(COUNT, 60)) == COUNT
    tell("took")
    wait_for_the_end()


def copy(bootstrap: str, source: str, target: str) -> None:
    """Everything is copied when it ends, and nothing is committed."""
    with (
        consumer(bootstrap, source, "at-least-once", auto_commit_ms=NEVER_MS) as reader,
        Producer(bootstrap) as writer,
    ):
        for copied, message in enumerate(reader, 1):
            writer.send(target, message.value).result()
            if copied == COUNT:
                tell("copied")
                wait_for_the_end()


def copy_in_a_transaction(bootstrap: str, source: str, target: str) -> None:
    """Everything is copied when it ends, with the offsets, and the transaction is not committed."""
    with (
        consumer(bootstrap, source, "exactly-once") as reader,
        Producer(bootstrap, transactional_id="copier") as writer,
        writer.transaction() as transaction,
    ):
        copied = 0
        while copied < COUNT:
            for batch in reader.poll():
                writer.send_many(target, [record.value for record in batch.records])
                copied += len(batch.records)
        transaction.send_offsets(reader)
        tell("copied")
        wait_for_the_end()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
