"""Readers without a group choose whether they wait for what was written before a partition was added."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.broker.broker import Broker
from ottla.client import LATEST, Admin, NewRecord, NewTopic, Producer, Reader
from ottla.records.build import build_batch
from ottla.records.growth import Phase
from ottla.records.validate import MisplacedKeys
from ottla.testing import LocalBroker
from tests.growing.ledger import wait_until

TOPIC = "t"
KEYS = [b"key-%d" % number for number in range(16)]


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as broker:
        yield broker


def write(broker: LocalBroker, first: int, last: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(first, last):
            for key in KEYS:
                producer.send(TOPIC, b"%d" % number, key=key)
            producer.flush()


def grow(admin: Admin, count: int) -> None:
    admin.expand_in_order({TOPIC: count}, quiet_ms=0)
    wait_until(lambda: admin.describe_growths([TOPIC])[TOPIC][-1].phase is Phase.OPEN, "the topic has grown")


def test_a_reader_that_asks_for_it_reads_every_key_in_order(broker: LocalBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1)])
        write(broker, 0, 20)
        grow(admin, 2)
        write(broker, 20, 40)
        grow(admin, 4)
        write(broker, 40, 60)
    numbers: dict[bytes, list[int]] = {key: [] for key in KEYS}
    with Reader(broker.bootstrap, TOPIC, end=LATEST, in_order=True, partition_bytes=200) as reader:
        for fetched in reader:
            for record in fetched.records:
                assert record.key is not None
                assert record.value is not None
                numbers[record.key].append(int(record.value))
    assert all(read == list(range(60)) for read in numbers.values())


def test_partitions_are_read_for_themselves_where_their_parents_are_not(broker: LocalBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1)])
        write(broker, 0, 10)
        grow(admin, 2)
        write(broker, 10, 20)
    with Reader(broker.bootstrap, TOPIC, [1], end=LATEST, in_order=True) as reader:
        assert sum(len(fetched.records) for fetched in reader)
    with Reader(broker.bootstrap, TOPIC, end=5, in_order=True) as reader:  # of the parent, less than up to its fence
        assert sum(len(fetched.records) for fetched in reader) == 10


def test_a_batch_that_comes_late_is_refused_unless_it_was_appended_before(broker: LocalBroker) -> None:
    """A producer that never learned of the new partitions, and one whose acknowledgement was lost."""

    def batch(sequence: int) -> bytearray:
        values = [b"v"] * len(KEYS)
        return bytearray(
            build_batch(values, keys=KEYS, timestamp=1_000, producer_id=7, producer_epoch=0, base_sequence=sequence)
        )

    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, configs={"message.timestamp.before.max.ms": str(1 << 60)})])

        def produce(broker: Broker, sequence: int) -> int:
            partition = broker.topics.by_name[TOPIC].replicas[0]
            try:
                placed = partition.writer.produce(batch(sequence), 9, 2_000)
            except MisplacedKeys as refusal:
                earlier = partition.writer.earlier(refusal.header)
                return -1 if earlier is None else earlier[0]
            return placed[0]

        assert broker.call(lambda broker: produce(broker, 0)) == 0
        grow(admin, 2)
        assert broker.call(lambda broker: produce(broker, 0)) == 0
        assert broker.call(lambda broker: produce(broker, len(KEYS))) == -1


def test_a_producer_that_rested_while_the_topic_grew_writes_where_keys_belong(broker: LocalBroker) -> None:
    """The broker has ended its connection: it asks before it chooses partitions."""
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap, delivery_timeout_ms=20_000) as producer:
        admin.create_topics([NewTopic("rested", 3)])
        producer.send_many("rested", [NewRecord(b"0", b"%d" % key) for key in range(20)])
        admin.expand_in_order({"rested": 6}, quiet_ms=100)
        wait_until(lambda: admin.describe_growths(["rested"])["rested"][-1].phase is Phase.OPEN, "the topic has grown")
        producer.send_many("rested", [NewRecord(b"1", b"%d" % key) for key in range(20)])
        ends = admin.find_offsets("rested", LATEST)
        assert sum(ends.values()) == 40
        assert any(ends[index] for index in (3, 4, 5))
