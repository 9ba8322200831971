"""Records of the coordinators against bytes that Apache Kafka 4.3.1 wrote for the same values."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.coordinator_records import RecordTypes
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    PartitionMetadata,
    TargetTopicPartitions,
    TopicMetadata,
)
from ottla.wire.messages.group_records import GROUP_RECORDS
from ottla.wire.messages.offset_and_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.messages.transaction_records import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from ottla.wire.schema import Message
from ottla.wire.versioned import encode_versioned
from tests.wire.joined import joined
from tests.wire.strategies import structs

UUID = bytes(range(16))
UUID_HEX = "000102030405060708090a0b0c0d0e0f"


@dataclasses.dataclass
class Case:
    """A record and its bytes. What a version does not carry is at its default."""

    types: RecordTypes
    key: Message
    key_hex: str
    value: Message
    version: int
    value_hex: str


def offset_commit(version: int, value: OffsetCommitValue, value_hex: str) -> Case:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    # type 1, group "g", topic "t", partition 3
    return Case(GROUP_RECORDS, key, "0001 0001 67 0001 74 00000003", value, version, value_hex)


def group_metadata(version: int, value: GroupMetadataValue, value_hex: str) -> Case:
    # type 2, group "g"
    return Case(GROUP_RECORDS, GroupMetadataKey(group="g"), "0002 0001 67", value, version, value_hex)


def member(**fields: object) -> MemberMetadata:
    given: dict[str, object] = {
        "member_id": "m",
        "client_id": "c",
        "client_host": "/h",
        "session_timeout": 45,
        "subscription": b"\1\2",
        "assignment": b"",
    }
    return MemberMetadata(**(given | fields))  # type: ignore[arg-type]


def group(member: MemberMetadata, **fields: int) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer", generation=7, protocol="range", leader=None, members=[member], **fields
    )


def transaction(version: int, value: TransactionLogValue, value_hex: str) -> Case:
    # type 0, transactional id "x"
    key = TransactionLogKey(transactional_id="x")
    return Case(TRANSACTION_RECORDS, key, "0000 0001 78", value, version, value_hex)


OFFSETS = [
    Case(
        GROUP_RECORDS,
        LegacyOffsetCommitKey(group="g", topic="t", partition=3),
        "0000 0001 67 0001 74 00000003",
        LegacyOffsetCommitValue(offset=5, metadata="m", commit_timestamp=9),
        0,
        "0000 0000000000000005 0001 6d 0000000000000009",
    ),
    # version, offset, metadata, commit timestamp
    offset_commit(
        0,
        OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9),
        "0000 0000000000000005 0001 6d 0000000000000009",
    ),
    # ... and the timestamp of expiry
    offset_commit(
        1,
        OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, expire_timestamp=11),
        "0001 0000000000000005 0001 6d 0000000000000009 000000000000000b",
    ),
    offset_commit(
        2,
        OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9),
        "0002 0000000000000005 0001 6d 0000000000000009",
    ),
    # ... and the leader epoch, behind the offset
    offset_commit(
        3,
        OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9),
        "0003 0000000000000005 00000002 0001 6d 0000000000000009",
    ),
    # flexible: "m" behind 02, one tag: 0, 16 bytes, the topic id
    offset_commit(
        4,
        OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9, topic_id=UUID),
        f"0004 0000000000000005 00000002 02 6d 0000000000000009 01 00 10 {UUID_HEX}",
    ),
]

CLASSIC_GROUPS = [
    # version, protocol type, generation 7, protocol, leader null; 1 member: id, client id, client host,
    # session timeout 45, 2 bytes of subscription, no assignment
    group_metadata(
        0,
        group(member()),
        "0000 0008 636f6e73756d6572 00000007 0005 72616e6765 ffff"
        "00000001 0001 6d 0001 63 0002 2f68 0000002d 00000002 0102 00000000",
    ),
    # ... and the rebalance timeout 300, before that of the session
    group_metadata(
        1,
        group(member(rebalance_timeout=300)),
        "0001 0008 636f6e73756d6572 00000007 0005 72616e6765 ffff"
        "00000001 0001 6d 0001 63 0002 2f68 0000012c 0000002d 00000002 0102 00000000",
    ),
    # ... and when the state was entered, before the members
    group_metadata(
        2,
        group(member(rebalance_timeout=300), current_state_timestamp=9),
        "0002 0008 636f6e73756d6572 00000007 0005 72616e6765 ffff 0000000000000009"
        "00000001 0001 6d 0001 63 0002 2f68 0000012c 0000002d 00000002 0102 00000000",
    ),
    # ... and the instance id "i", behind the member's
    group_metadata(
        3,
        group(member(rebalance_timeout=300, group_instance_id="i"), current_state_timestamp=9),
        "0003 0008 636f6e73756d6572 00000007 0005 72616e6765 ffff 0000000000000009"
        "00000001 0001 6d 0001 69 0001 63 0002 2f68 0000012c 0000002d 00000002 0102 00000000",
    ),
    # flexible, with no tags for the member and for the group
    group_metadata(
        4,
        group(member(rebalance_timeout=300, group_instance_id="i"), current_state_timestamp=9),
        "0004 09 636f6e73756d6572 00000007 06 72616e6765 00 0000000000000009"
        "02 02 6d 02 69 02 63 03 2f68 0000012c 0000002d 03 0102 01 00 00",
    ),
]

CONSUMER_GROUPS = [
    Case(
        GROUP_RECORDS,
        ConsumerGroupMetadataKey(group_id="g"),
        "0003 0001 67",
        ConsumerGroupMetadataValue(epoch=4),
        0,
        "0000 00000004 00",
    ),
    # one tag: 0, 8 bytes, the hash
    Case(
        GROUP_RECORDS,
        ConsumerGroupMetadataKey(group_id="g"),
        "0003 0001 67",
        ConsumerGroupMetadataValue(epoch=4, metadata_hash=258),
        0,
        "0000 00000004 01 00 08 0000000000000102",
    ),
    # 1 topic: id, name, 2 partitions; 1 partition described: number 1, 1 rack
    Case(
        GROUP_RECORDS,
        ConsumerGroupPartitionMetadataKey(group_id="g"),
        "0004 0001 67",
        ConsumerGroupPartitionMetadataValue(
            topics=[
                TopicMetadata(
                    topic_id=UUID,
                    topic_name="t",
                    num_partitions=2,
                    partition_metadata=[PartitionMetadata(partition=1, racks=["r"])],
                )
            ]
        ),
        0,
        f"0000 02 {UUID_HEX} 02 74 00000002 02 00000001 02 02 72 00 00 00",
    ),
    # instance id null, rack, client id, client host, 1 topic, regex null, rebalance timeout, assignor, and one tag:
    # 0, 1 byte, null, for to Kafka a member of whom it is left out is a classic one
    Case(
        GROUP_RECORDS,
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        "0005 0001 67 0001 6d",
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id="r",
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            rebalance_timeout_ms=300,
            server_assignor="uniform",
        ),
        0,
        "0000 00 02 72 02 63 03 2f68 02 02 74 00 0000012c 08 756e69666f726d 01 00 01 00",
    ),
    # one tag: 0, 16 bytes: present, session timeout 45, 1 protocol of a name and 1 byte, no tags twice
    Case(
        GROUP_RECORDS,
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        "0005 0001 67 0001 6d",
        ConsumerGroupMemberMetadataValue(
            instance_id="i",
            rack_id=None,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=[],
            subscribed_topic_regex="t.*",
            rebalance_timeout_ms=300,
            server_assignor=None,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=45, supported_protocols=[ClassicProtocol(name="range", metadata=b"\1")]
            ),
        ),
        0,
        "0000 02 69 00 02 63 03 2f68 01 04 742e2a 0000012c 0001 00 10 01 0000002d 02 06 72616e6765 02 01 00 00",
    ),
    Case(
        GROUP_RECORDS,
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        "0006 0001 67",
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4, assignment_timestamp=258),
        0,
        "0000 00000004 01 00 08 0000000000000102",
    ),
    # 1 topic: id, partitions 0 and 2
    Case(
        GROUP_RECORDS,
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        "0007 0001 67 0001 6d",
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TargetTopicPartitions(topic_id=UUID, partitions=[0, 2])]
        ),
        0,
        f"0000 02 {UUID_HEX} 03 00000000 00000002 00 00",
    ),
    # epochs 4 and 3, state 1; assigned: partition 0, with a tag: 0, 5 bytes, 1 epoch; revoking: partition 2
    Case(
        GROUP_RECORDS,
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        "0008 0001 67 0001 6d",
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=4,
            previous_member_epoch=3,
            state=1,
            assigned_partitions=[CurrentTopicPartitions(topic_id=UUID, partitions=[0], assignment_epochs=[4])],
            partitions_pending_revocation=[CurrentTopicPartitions(topic_id=UUID, partitions=[2])],
        ),
        0,
        f"0000 00000004 00000003 01 02 {UUID_HEX} 02 00000000 01 00 05 02 0000000402 {UUID_HEX} 02 00000002 00 00",
    ),
    Case(
        GROUP_RECORDS,
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*"),
        "0010 0001 67 0003 742e2a",
        ConsumerGroupRegularExpressionValue(topics=["t"], version=8, timestamp=9),
        0,
        "0000 02 02 74 0000000000000008 0000000000000009 00",
    ),
]

TRANSACTIONS = [
    # producer id, epoch, timeout 60 s, status 1; 1 topic: name, partitions 0 and 2; two timestamps
    transaction(
        0,
        TransactionLogValue(
            producer_id=1000,
            producer_epoch=2,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
            transaction_last_update_timestamp_ms=9,
            transaction_start_timestamp_ms=8,
        ),
        "0000 00000000000003e8 0002 0000ea60 01 00000001 0001 74 00000002 00000000 00000002"
        "0000000000000009 0000000000000008",
    ),
    transaction(
        1,
        TransactionLogValue(
            producer_id=1000,
            producer_epoch=2,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
            transaction_last_update_timestamp_ms=9,
            transaction_start_timestamp_ms=8,
        ),
        "0001 00000000000003e8 0002 0000ea60 01 02 02 74 03 00000000 00000002 000000000000000009 0000000000000008 00",
    ),
    # no partitions at all; four tags: the id before, the id after, the client's version, the epoch after
    transaction(
        1,
        TransactionLogValue(
            producer_id=1000,
            previous_producer_id=999,
            next_producer_id=1001,
            producer_epoch=2,
            next_producer_epoch=3,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=9,
            transaction_start_timestamp_ms=8,
            client_transaction_version=2,
        ),
        "0001 00000000000003e8 0002 0000ea60 01 00 0000000000000009 0000000000000008"
        "04 00 08 00000000000003e7 01 08 00000000000003e9 02 02 0002 03 02 0003",
    ),
]

CASES = [*OFFSETS, *CLASSIC_GROUPS, *CONSUMER_GROUPS, *TRANSACTIONS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{type(case.value).__name__}-{case.version}")
def test_bytes_are_those_of_kafka(case: Case) -> None:
    key_bytes = bytes.fromhex(case.key_hex)
    value_bytes = bytes.fromhex(case.value_hex)
    assert case.types.encode_key(case.key) == key_bytes
    assert case.types.decode_key(key_bytes) == case.key
    assert encode_versioned(case.value, case.version) == value_bytes
    assert case.types.decode_value(case.key, value_bytes) == case.value


def test_every_type_and_version_has_a_case() -> None:
    covered = {(type(case.key), type(case.value), case.version) for case in CASES}
    assert covered == {
        (key, value, version)
        for types in (GROUP_RECORDS, TRANSACTION_RECORDS)
        for key, value in types.types.values()
        for version in range(value.versions.least, value.versions.highest + 1)
    }


VALUES = sorted({(type(case.value), case.version) for case in CASES}, key=str)


@pytest.mark.parametrize(("value", "version"), VALUES, ids=[f"{v.__name__}-{n}" for v, n in VALUES])
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_comes_back(value: type[Message], version: int, data: st.DataObject) -> None:
    drawn = data.draw(structs(value, version))
    written = joined(value.writers[version](drawn))
    assert value.readers[version](written, 0) == (drawn, len(written))


@pytest.mark.parametrize("record_type", [9, 15, 17, -1, 300])
def test_records_of_other_features_are_passed_over(record_type: int) -> None:
    assert GROUP_RECORDS.decode_key(record_type.to_bytes(2, "big", signed=True) + b"\0\1g") is None


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1", b"\0\1\0\5g"])
def test_a_broken_key_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        GROUP_RECORDS.decode_key(data)


def test_a_value_from_the_future_is_refused() -> None:
    with pytest.raises(ProtocolError, match="OffsetCommitValue has no version 5"):
        GROUP_RECORDS.decode_value(OffsetCommitKey(group="g", topic="t", partition=0), b"\0\5")
