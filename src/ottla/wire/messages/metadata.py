"""Metadata (3), versions 0 to 13: tells brokers, topics, partitions and their leaders.

0 takes no topics for all of them, later ones null. 1 names the controller; 4 may create topics; 5 lists
offline replicas; 7 the leader epochs; 8 the operations allowed; 9 is flexible; 10 has topic ids and 12
asks by them; 11 leaves the cluster's operations to DescribeCluster; 13 has an error for the whole.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Bool, Int16, Int32, String, Uuid
from ottla.wire.uuids import ZERO_UUID


class MetadataRequestTopic(Struct):
    topic_id: Uuid = ignorable("10+", ZERO_UUID)
    name: String | None = at("0+", None, nullable="10+")


class MetadataRequest(Request, api=apis.METADATA):
    topics: list[MetadataRequestTopic] | None = at("0+", [], nullable="1+")  # null asks for all
    allow_auto_topic_creation: Bool = at("4+", True)
    include_cluster_authorized_operations: Bool = at("8-10", False)
    include_topic_authorized_operations: Bool = at("8+", False)


class MetadataResponseBroker(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = ignorable("1+", None)


class MetadataResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32  # -1: none
    leader_epoch: Int32 = ignorable("7+", -1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = ignorable("5+", [])


class MetadataResponseTopic(Struct):
    error_code: Int16
    name: String | None = at("0+", None, nullable="12+")
    topic_id: Uuid = ignorable("10+", ZERO_UUID)
    is_internal: Bool = ignorable("1+", False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = at("8+", -2147483648)


class MetadataResponse(Response, api=apis.METADATA):
    throttle_time_ms: Int32 = ignorable("3+", 0)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = ignorable("2+", None)
    controller_id: Int32 = ignorable("1+", -1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = at("8-10", -2147483648)
    error_code: Int16 = ignorable("13+", 0)
