"""Topics are made, described, changed, emptied and deleted by clients of every make."""

from __future__ import annotations

import pytest

from ottla.wire.errors import ErrorCode
from tests.compat.client import AdminClient, Client, Fetched, Record, Refused
from tests.compat.samples import FIRST_MS, PLAIN, numbered

ALL = -1


def test_a_new_topic_is_seen_by_all(admin: AdminClient, readers: dict[str, Client], topic: str) -> None:
    admin.create_topic(topic, 3, {})
    assert {name: reader.partition_counts()[topic] for name, reader in readers.items()} == dict.fromkeys(readers, 3)


def test_a_topic_is_created_by_the_first_write(client: Client, topic: str) -> None:
    client.write(topic, 0, PLAIN[:1], codec="none", acks=ALL)
    assert client.partition_counts()[topic] == 1
    assert client.read(topic, 0, 0, 1)[0].record.value == PLAIN[0].value


def test_a_topic_that_is_there_cannot_be_created(admin: AdminClient, topic: str) -> None:
    admin.create_topic(topic, 1, {})
    with pytest.raises(Refused) as refused:
        admin.create_topic(topic, 1, {})
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("name", "partition_count", "configs", "code"),
    [
        ("no/slash", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("no-partitions", 0, {}, ErrorCode.INVALID_PARTITIONS),
        ("bad-config", 1, {"retention.ms": "long"}, ErrorCode.INVALID_CONFIG),
        ("unknown-config", 1, {"no.such.thing": "1"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_topics_are_refused(
    admin: AdminClient, name: str, partition_count: int, configs: dict[str, str], code: int
) -> None:
    with pytest.raises(Refused) as refused:
        admin.create_topic(name, partition_count, configs)
    assert refused.value.code == code
    assert name not in admin.partition_counts()


def test_a_deleted_topic_is_gone(admin: AdminClient, topic: str) -> None:
    admin.create_topic(topic, 2, {})
    admin.delete_topic(topic)
    assert topic not in admin.partition_counts()
    with pytest.raises(Refused) as refused:
        admin.delete_topic(topic)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_of_the_same_name_starts_anew(admin: AdminClient, topic: str) -> None:
    for count in (5, 2):
        admin.create_topic(topic, 1, {})
        admin.write(topic, 0, numbered(count), codec="none", acks=ALL)
        assert admin.offsets(topic, 0) == (0, count)
        admin.delete_topic(topic)


def test_added_partitions_take_records(admin: AdminClient, topic: str) -> None:
    admin.create_topic(topic, 1, {})
    admin.add_partitions(topic, 4)
    assert admin.partition_counts()[topic] == 4
    for partition in range(4):
        records = numbered(partition + 1)
        admin.write(topic, partition, records, codec="none", acks=ALL)
        assert [fetched.record for fetched in admin.read(topic, partition, 0, partition + 1)] == records
    with pytest.raises(Refused) as refused:
        admin.add_partitions(topic, 2)
    assert refused.value.code == ErrorCode.INVALID_PARTITIONS


def test_deleted_records_are_gone(admin: AdminClient, created_topic: str) -> None:
    topic, records = created_topic, numbered(10)
    admin.write(topic, 0, records, codec="none", acks=ALL)
    assert admin.delete_records(topic, 0, 4) == 4
    assert admin.offsets(topic, 0) == (4, 10)
    assert admin.read(topic, 0, 4, 6) == [Fetched(offset, records[offset]) for offset in range(4, 10)]
    assert admin.delete_records(topic, 0, -1) == 10
    assert admin.offsets(topic, 0) == (10, 10)


def test_configs_of_a_topic_are_described(admin: AdminClient, topic: str) -> None:
    admin.create_topic(topic, 1, {"retention.ms": "60000", "cleanup.policy": "compact,delete"})
    configs = admin.topic_configs(topic)
    assert configs["retention.ms"] == "60000"
    assert configs["cleanup.policy"] == "compact,delete"
    assert configs["segment.bytes"] == "1073741824"


def test_an_altered_config_takes_effect(admin: AdminClient, topic: str) -> None:
    admin.create_topic(topic, 1, {})
    admin.set_topic_config(topic, "max.message.bytes", "200")
    assert admin.topic_configs(topic)["max.message.bytes"] == "200"
    large = [Record(None, b"x" * 500, FIRST_MS)]
    with pytest.raises(Refused) as refused:
        admin.write(topic, 0, large, codec="none", acks=ALL)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    admin.set_topic_config(topic, "max.message.bytes", "1000")
    admin.write(topic, 0, large, codec="none", acks=ALL)
    assert admin.read(topic, 0, 0, 1) == [Fetched(0, large[0])]


def test_a_bad_config_is_refused_and_changes_nothing(admin: AdminClient, topic: str) -> None:
    admin.create_topic(topic, 1, {"retention.ms": "60000"})
    with pytest.raises(Refused) as refused:
        admin.set_topic_config(topic, "retention.ms", "-5")
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert admin.topic_configs(topic)["retention.ms"] == "60000"


def test_configs_of_the_broker_are_described(admin: AdminClient) -> None:
    configs = admin.broker_configs(1)
    assert configs["num.partitions"] == "1"
