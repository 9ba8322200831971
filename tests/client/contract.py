"""What the client does with a real broker. The same tests run against Ottla and against Apache Kafka."""

import asyncio
import time
import uuid
from collections.abc import Callable
from itertools import count
from typing import TypeVar

import pytest

from ottla.client import (
    EARLIEST,
    LATEST,
    Admin,
    AtTime,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    DeliveryFailed,
    ElectionKind,
    NewRecord,
    NewTopic,
    PartlyFailed,
    Position,
    Producer,
    Reader,
    Resource,
    ResourceKind,
    ServerError,
    TopicPartition,
    aio,
)
from ottla.records.codec import Record
from ottla.records.key_hash import partitions_of_keys
from ottla.wire.errors import ErrorCode

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME = 1_700_000_000_000
T = TypeVar("T")
_numbers = count()


def new_name() -> str:
    return f"client-{uuid.uuid4().hex[:8]}-{next(_numbers)}"


def make_topic(bootstrap: str, partition_count: int = 1, *, prefix: str = "", **configs: str) -> str:
    name = prefix + new_name()
    with Admin(bootstrap) as admin:
        # The records of these tests are years old, and a broker that lives for a while would remove them.
        named = {"retention.ms": "-1"} | {config.replace("_", "."): value for config, value in configs.items()}
        admin.create_topics([NewTopic(name, partition_count, 1, named)])
        eventually(lambda: {topic.name for topic in admin.list_topics()}, lambda names: name in names)
    return name


def read(bootstrap: str, topic: str, *, start: Position = EARLIEST, end: Position = LATEST) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    with Reader(bootstrap, topic, start=start, end=end) as reader:
        for fetched in reader:
            found.setdefault(fetched.partition, []).extend(fetched.records)
    return found


def eventually(look: Callable[[], T], is_so: Callable[[T], bool]) -> T:
    """What is seen when it is so. A broker of Kafka's answers before all of it knows of a change."""
    deadline = time.monotonic() + 30
    while not is_so(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)
    return seen


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def set_here(admin: Admin, topic: Resource) -> dict[str, str | None]:
    """The configurations that were set for the topic itself."""
    [described] = admin.describe_configs([topic])
    return {entry.name: entry.value for entry in described.entries if entry.source is ConfigSource.TOPIC}


class ClientContract:
    """A subclass has a fixture `bootstrap`: the address of the broker."""

    # Topics.

    def test_topics_from_their_creation_to_their_end(self, bootstrap: str) -> None:
        first, second = new_name(), new_name()
        with Admin(bootstrap) as admin:
            created = admin.create_topics([NewTopic(first, 3, 1), NewTopic(second, 1, 1, {"retention.ms": "1234567"})])
            assert {(topic.name, topic.partition_count, topic.replication_factor) for topic in created} == {
                (first, 3, 1),
                (second, 1, 1),
            }
            eventually(lambda: {topic.name for topic in admin.list_topics()}, lambda names: {first, second} <= names)
            assert admin.expand_topics({first: 5}) == [first]
            topics = eventually(
                lambda: admin.describe_topics([second, first]), lambda topics: len(topics[1].partitions) == 5
            )
            described = {topic.name: topic for topic in topics}
            assert list(described) == [second, first]
            assert [partition.index for partition in described[first].partitions] == [0, 1, 2, 3, 4]
            assert all(partition.has_leader for partition in described[second].partitions)
            assert {topic.name: topic.topic_id for topic in created} == {
                name: topic.topic_id for name, topic in described.items()
            }
            assert sorted(admin.delete_topics([first, second])) == sorted([first, second])
            eventually(lambda: {topic.name for topic in admin.list_topics()}, lambda names: not {first, second} & names)

    def test_what_is_refused_says_why(self, bootstrap: str) -> None:
        known, unknown = make_topic(bootstrap), new_name()
        with Admin(bootstrap) as admin:
            with pytest.raises(ServerError, match=f"topic {known}: Topic '{known}' already exists") as raised:
                admin.create_topics([NewTopic(known)])
            assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert not raised.value.is_retriable
            with pytest.raises(PartlyFailed, match="already exists") as partly:
                admin.create_topics([NewTopic(known), NewTopic(unknown)], validate_only=True)
            assert [error.topic for error in partly.value.errors] == [known]
            assert [topic.name for topic in partly.value.done] == [unknown]
            for refused in (
                lambda: admin.describe_topics([unknown]),
                lambda: admin.delete_topics([unknown]),
                lambda: admin.expand_topics({unknown: 2}),
            ):
                with pytest.raises(ServerError, match=f"topic {unknown}: ") as raised:
                    refused()
                assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(ServerError) as raised:
                admin.expand_topics({known: 1})
            assert raised.value.code == ErrorCode.INVALID_PARTITIONS

    # Leaders and moves, where one broker has them all.

    def test_leaders_are_elected_where_that_is_needed(self, bootstrap: str) -> None:
        name, unknown = make_topic(bootstrap, partition_count=2), TopicPartition(new_name(), 0)
        with Admin(bootstrap) as admin:
            assert admin.elect_leaders([TopicPartition(name, 0), TopicPartition(name, 1)]) == []
            assert admin.elect_leaders([TopicPartition(name, 0)], ElectionKind.UNCLEAN) == []
            with pytest.raises(ServerError, match=unknown.topic) as raised:
                admin.elect_leaders([unknown])
            assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_partitions_are_moved_and_refused_one_by_one(self, bootstrap: str) -> None:
        name = make_topic(bootstrap, partition_count=2)
        first, second = TopicPartition(name, 0), TopicPartition(name, 1)
        with Admin(bootstrap) as admin:
            [broker] = admin.describe_cluster().brokers
            assert admin.alter_partition_reassignments({first: [broker.node_id]}) == [first]
            with pytest.raises(PartlyFailed) as partly:
                admin.alter_partition_reassignments({first: [broker.node_id], second: [broker.node_id + 7]})
            assert list(partly.value.done) == [first]
            [refused] = partly.value.errors
            assert (refused.code, refused.partition) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, 1)
            with pytest.raises(ServerError) as raised:
                admin.alter_partition_reassignments({first: None})
            assert raised.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            assert admin.list_partition_reassignments() == {}
            assert admin.list_partition_reassignments([first]) == {}

    # Configurations and the cluster.

    def test_configurations_are_described_and_altered(self, bootstrap: str) -> None:
        topic = Resource(ResourceKind.TOPIC, make_topic(bootstrap, retention_ms="1234567"))
        with Admin(bootstrap) as admin:
            [described] = admin.describe_configs([topic], ["retention.ms", "cleanup.policy"])
            entries = {entry.name: entry for entry in described.entries}
            assert entries["retention.ms"].value == "1234567"
            assert entries["retention.ms"].source is ConfigSource.TOPIC
            assert entries["retention.ms"].type == "long"
            assert entries["cleanup.policy"].is_default
            changes = [
                ConfigChange("retention.ms", ConfigOperation.DELETE),
                ConfigChange("cleanup.policy", ConfigOperation.APPEND, "compact"),
                ConfigChange("max.message.bytes", ConfigOperation.SET, "4321"),
            ]
            admin.alter_configs(topic, changes, validate_only=True)
            assert admin.describe_configs([topic], ["retention.ms", "cleanup.policy"]) == [described]
            admin.alter_configs(topic, changes)
            expected = {"cleanup.policy": "delete,compact", "max.message.bytes": "4321"}
            eventually(lambda: set_here(admin, topic), lambda found: found == expected)
            with pytest.raises(ServerError, match=r"retention\.ms") as raised:
                admin.alter_configs(topic, [ConfigChange("retention.ms", ConfigOperation.SET, "soon")])
            assert raised.value.code == ErrorCode.INVALID_CONFIG
            with pytest.raises(ServerError) as raised:
                admin.describe_configs([Resource(ResourceKind.TOPIC, new_name())])
            assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_the_cluster_and_its_brokers_configuration(self, bootstrap: str) -> None:
        with Admin(bootstrap) as admin:
            cluster = admin.describe_cluster()
            assert str(cluster.brokers[0].address) == bootstrap
            broker = Resource(ResourceKind.BROKER, str(cluster.brokers[0].node_id))
            [described] = admin.describe_configs([broker], ["num.partitions"])
            assert [entry.name for entry in described.entries] == ["num.partitions"]

    # Writing and reading.

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("acks", ["all", "1"])
    def test_what_is_written_is_read(self, bootstrap: str, codec: str, acks: str) -> None:
        topic = make_topic(bootstrap)
        records = [
            NewRecord(b"value" * 20, b"key", [("name", b"header"), ("name", None)], timestamp_ms=TIME),
            NewRecord(None, b"", timestamp_ms=TIME + 1),
            NewRecord(b"", None, timestamp_ms=TIME + 2),
        ]
        with Producer(bootstrap, codec=codec, acks=acks) as producer:
            deliveries = producer.send_many(topic, records)
        assert [delivery.offset for delivery in deliveries] == [0, 1, 2]
        assert read(bootstrap, topic)[0] == [
            Record(0, TIME, b"key", b"value" * 20, (("name", b"header"), ("name", None))),
            Record(1, TIME + 1, b"", None),
            Record(2, TIME + 2, None, b""),
        ]

    def test_nobody_acknowledges_and_all_is_there(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)
        with Producer(bootstrap, acks="0", batch_bytes=1000) as producer:
            producer.send_many(topic, [NewRecord(b"%d" % number) for number in range(1000)])
            producer.send_many(topic, [NewRecord(b"last")])
        with Producer(bootstrap) as producer:  # behind it on the same partition, so what was sent before is there
            end = producer.send(topic, b"").result().offset
        assert end <= 1001
        with Reader(bootstrap, topic) as reader:
            seen: list[bytes | None] = []
            while b"last" not in seen:
                seen += [record.value for fetched in reader.poll() for record in fetched.records]
        assert [value for value in seen if value] == [*(b"%d" % number for number in range(1000)), b"last"]

    def test_keys_keep_their_partition_and_their_order(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, 4)
        records = [NewRecord(b"%d" % number, b"key-%d" % (number % 13)) for number in range(2000)]
        with Producer(bootstrap, batch_bytes=2000) as producer:
            deliveries = producer.send_many(topic, records)
        found = read(bootstrap, topic)
        for partition, read_records in found.items():
            assert set(partitions_of_keys([record.key for record in read_records], 4)) == {partition}
            assert values(read_records) == [
                record.value for record in records if partitions_of_keys([record.key], 4) == [partition]
            ]
        for record, delivery in zip(records, deliveries, strict=True):
            assert found[delivery.partition][delivery.offset].value == record.value

    def test_reading_by_offset_and_by_time(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)
        with Producer(bootstrap, batch_bytes=500) as producer:
            producer.send_many(topic, [NewRecord(b"%d" % number, timestamp_ms=TIME + number) for number in range(100)])
        numbers = [b"%d" % number for number in range(100)]
        for start, end, expected in (
            (30, 40, numbers[30:40]),
            (95, LATEST, numbers[95:]),
            (AtTime(TIME + 42), AtTime(TIME + 77), numbers[42:77]),
            (AtTime(TIME + 99), AtTime(TIME + 10_000), numbers[99:]),
            (AtTime(TIME + 100), LATEST, []),
            (LATEST, LATEST, []),
        ):
            assert values(read(bootstrap, topic, start=start, end=end).get(0, [])) == expected
        with Admin(bootstrap) as admin:
            assert admin.find_offsets(topic, EARLIEST) == {0: 0}
            assert admin.find_offsets(topic, LATEST) == {0: 100}

    def test_a_reader_waits_for_what_comes(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)

        async def run() -> list[bytes | None]:
            async with (
                aio.Reader(bootstrap, topic, start=LATEST) as reader,
                aio.Producer(bootstrap) as producer,
            ):
                await reader.poll(wait_ms=1)
                waiting = asyncio.ensure_future(reader.poll(wait_ms=10_000))
                await producer.send(topic, b"news")
                return [record.value for fetched in await waiting for record in fetched.records]

        assert asyncio.run(run()) == [b"news"]

    def test_an_offset_that_is_not_there(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)
        with pytest.raises(ServerError, match="offset 5 is not in the partition"):
            read(bootstrap, topic, start=5, end=9)

    def test_a_record_that_is_too_large_fails_alone(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, max_message_bytes="2000")
        records = [NewRecord(b"x" * size, partition=0) for size in (500, 900, 5000, 700, 1200)]
        with Producer(bootstrap) as producer, pytest.raises(DeliveryFailed) as raised:
            producer.send_many(topic, records)
        assert [delivery.error is None for delivery in raised.value.deliveries] == [True, True, False, True, True]
        assert [len(value or b"") for value in values(read(bootstrap, topic)[0])] == [500, 900, 700, 1200]

    def test_a_record_that_breaks_a_rule_of_its_topic_is_named(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, cleanup_policy="compact")
        with Producer(bootstrap) as producer, pytest.raises(DeliveryFailed, match="without key") as raised:
            producer.send_many(topic, [NewRecord(b"", b"key", partition=0), NewRecord(b"", partition=0)])
        errors = [delivery.error for delivery in raised.value.deliveries]
        assert errors[0] is None  # its neighbour is written
        assert "without key" in str(errors[1])
        assert isinstance(errors[1], ServerError)
        assert errors[1].code == ErrorCode.INVALID_RECORD

    def test_the_time_of_the_broker_is_told(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, message_timestamp_type="LogAppendTime")
        with Producer(bootstrap) as producer:
            delivery = producer.send(topic, b"", timestamp_ms=TIME).result()
        [record] = read(bootstrap, topic)[0]
        assert record.timestamp == delivery.timestamp_ms > TIME
