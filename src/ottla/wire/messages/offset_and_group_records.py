"""Records of __consumer_offsets for offsets and classic groups.

Types 0 and 1 are committed offsets (0 in an old form), 2 is a group. Kafka 4.3.1 writes offsets in version 4,
with the topic's id, and groups in version 3; a group's `client_host` is "/1.2.3.4".
"""

from __future__ import annotations

from ottla.wire.schema import Message, Struct, ignorable, tagged
from ottla.wire.types import Bytes, Int32, Int64, String, Uuid
from ottla.wire.uuids import ZERO_UUID


class LegacyOffsetCommitKey(Message, versions="0"):
    group: String
    topic: String
    partition: Int32


class LegacyOffsetCommitValue(Message, versions="0"):
    offset: Int64
    metadata: String
    commit_timestamp: Int64


class OffsetCommitKey(Message, versions="0"):
    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: Int64
    leader_epoch: Int32 = ignorable("3+", -1)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = ignorable("1", -1)
    topic_id: Uuid = tagged(0, "4+", ZERO_UUID, ignorable=True)


class GroupMetadataKey(Message, versions="0"):
    group: String


class MemberMetadata(Struct):
    member_id: String
    group_instance_id: String | None = ignorable("3+", None)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = ignorable("1+", -1)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = ignorable("2+", -1)
    members: list[MemberMetadata]
