"""Groups that are behind when their topic grows: nobody is given a new partition before its parent is read."""

from __future__ import annotations

import time
from contextlib import ExitStack

import confluent_kafka
import pytest

import ottla.testing
from ottla.client import Admin, NewTopic
from tests.growing.ledger import wait_until
from tests.growing.test_plain_readers import KEYS, TOPIC, grow, write

REBALANCE_SECONDS = 2.0


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_that_rests_waits_for_the_parent(strategy: str) -> None:
    """librdkafka's cooperative-sticky sends data along with assignments once it had one."""
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin, ExitStack() as stack:
        admin.create_topics([NewTopic(TOPIC, 1)])
        write(broker, 0, 30)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "partition.assignment.strategy": strategy,
                "topic.metadata.refresh.interval.ms": 200,
                "heartbeat.interval.ms": 200,
            }
        )
        stack.callback(consumer.close)
        consumer.subscribe([TOPIC])
        numbers: dict[bytes | None, list[int]] = {key: [] for key in KEYS}

        def read(*, is_resting: bool = False) -> set[int]:
            for message in consumer.consume(100, 0.1):
                numbers[message.key()].append(int(message.value() or b""))
            assignment = consumer.assignment()
            if is_resting:
                consumer.pause(assignment)
            return {place.partition for place in assignment}

        wait_until(lambda: read(is_resting=True) == {0}, "it has joined")
        grow(admin, 2)
        write(broker, 30, 40)
        wait_until(lambda: len(consumer.list_topics(TOPIC, 5).topics[TOPIC].partitions) == 2, "it knows of both")
        deadline = time.monotonic() + REBALANCE_SECONDS
        while time.monotonic() < deadline:
            assert read(is_resting=True) == {0}
        consumer.resume(consumer.assignment())
        wait_until(lambda: read() == {0, 1}, "it is given both")
        wait_until(lambda: bool(read()) and sum(map(len, numbers.values())) >= 40 * len(KEYS), "all is read")
    assert all(found == list(range(40)) for found in numbers.values())
