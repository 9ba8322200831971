"""DescribeQuorum (55), versions 0 to 2: tells who decides in the cluster, and who may.

Flexible from the start; 1 tells when a replica was last heard of; 2 where to reach them.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Int16, Int32, Int64, String, UInt16, Uuid
from ottla.wire.uuids import ZERO_UUID


class PartitionData(Struct):
    partition_index: Int32


class TopicData(Struct):
    topic_name: String
    partitions: list[PartitionData]


class DescribeQuorumRequest(Request, api=apis.DESCRIBE_QUORUM):
    topics: list[TopicData]


class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: Uuid = at("2+", ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = ignorable("1+", -1)
    last_caught_up_timestamp: Int64 = ignorable("1+", -1)


class QuorumPartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = ignorable("2+", None)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class QuorumTopic(Struct):
    topic_name: String
    partitions: list[QuorumPartition]


class Listener(Struct):
    name: String
    host: String
    port: UInt16


class Node(Struct):
    node_id: Int32
    listeners: list[Listener]


class DescribeQuorumResponse(Response, api=apis.DESCRIBE_QUORUM):
    error_code: Int16
    error_message: String | None = ignorable("2+", None)
    topics: list[QuorumTopic]
    nodes: list[Node] = at("2+", [])
