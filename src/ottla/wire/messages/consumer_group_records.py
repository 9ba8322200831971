"""Records of __consumer_offsets for the new consumer groups, types 3 to 8 and 16.

A group is its epoch (3), the topics it saw (4, no longer written), its members (5), the epoch (6) and the
members (7) of the assignment aimed at, what each member has (8), and what its patterns matched (16).
"""

from __future__ import annotations

from ottla.wire.schema import Message, Struct, tagged
from ottla.wire.types import Bytes, Int8, Int32, Int64, String, Uuid


class ConsumerGroupMetadataKey(Message, versions="0"):
    group_id: String


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64 = tagged(0, "0+", 0)  # of the subscribed topics, to notice their changes


class ConsumerGroupPartitionMetadataKey(Message, versions="0"):
    group_id: String


class PartitionMetadata(Struct):
    partition: Int32
    racks: list[String]


class TopicMetadata(Struct):
    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata]


class ConsumerGroupMemberMetadataKey(Message, versions="0"):
    group_id: String
    member_id: String


class ClassicProtocol(Struct):
    name: String
    metadata: Bytes


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = tagged(0, "0+", None, nullable="0+")


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0"):
    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = tagged(0, "0+", 0)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0"):
    group_id: String
    member_id: String


class TargetTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TargetTopicPartitions]


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0"):
    group_id: String
    member_id: String


class CurrentTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = tagged(0, "0+", None)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[CurrentTopicPartitions]
    partitions_pending_revocation: list[CurrentTopicPartitions]


class ConsumerGroupRegularExpressionKey(Message, versions="0"):
    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[String]
    version: Int64
    timestamp: Int64
